// Kinds, places in texts and the picture's view, against plain definitions.

import assert from "node:assert/strict";
import { test } from "node:test";
import { EXAMPLES } from "./examples.ts";
import { guessKind } from "./kind.ts";
import { characterEnd, rangeOfError, rangeOfPointer, utf16At } from "./places.ts";
import { beginning, padded, panned, zoomed } from "./view_box.ts";

test("the kind of every example, and of other forms, is guessed", () => {
  for (const { kind, source } of EXAMPLES) assert.equal(guessKind(source), kind);
  assert.equal(guessKind('["yes", "no"]'), "choice");
  assert.equal(guessKind('[{"begin": "<a>", "schema": true, "end": "</a>"}]'), "structural_tag");
  assert.equal(guessKind('{"triggers": ["<"], "structures": []}'), "structural_tag");
  assert.equal(guessKind('{"type": "object", "properties": {'), "json_schema");
  assert.equal(guessKind('start: "(" start ")" | /[0-9]+/'), "grammar");
  assert.equal(guessKind("[a-z]+:[0-9]{2}"), "regex");
  assert.equal(guessKind("\\d+"), "regex");
  assert.equal(guessKind("yes\nno\nnot yet\n"), "choice");
  assert.equal(guessKind("yes"), "regex");
});

test("code points are found in UTF-16", () => {
  for (const text of ["", "abc", "a😀b", "😀😀", "é\n漢"]) {
    const points = [...text];
    for (let i = 0; i <= points.length; i += 1) {
      assert.equal(utf16At(text, i), points.slice(0, i).join("").length);
      if (i < points.length) assert.equal(characterEnd(text, utf16At(text, i)), points.slice(0, i + 1).join("").length);
    }
    assert.equal(utf16At(text, 99), text.length);
  }
});

test("the text at a JSON pointer is that of the value, for every value of every layout", () => {
  const value = { a: [1, "x]", { "b/c": { "~": [true, null] }, é: -1.5e3 }], "": {}, 'q"': "}{" };
  const pointers = (at: unknown, path: string): [string, unknown][] => [
    [path, at],
    ...(typeof at === "object" && at !== null
      ? Object.entries(at).flatMap(([name, inner]) =>
          pointers(inner, `${path}/${name.replaceAll("~", "~0").replaceAll("/", "~1")}`),
        )
      : []),
  ];
  for (const indent of [0, 1, 4]) {
    const source = JSON.stringify(value, null, indent);
    for (const [pointer, at] of pointers(value, "")) {
      const range = rangeOfPointer(source, pointer);
      assert.ok(range, pointer);
      const text = source.slice(range.begin, range.end);
      const isMember = !/\/\d+$/.test(pointer) && pointer !== "";
      assert.deepEqual(isMember ? Object.values(JSON.parse(`{${text}}`) as object)[0] : JSON.parse(text), at);
    }
  }
  assert.equal(rangeOfPointer('{"a": 1}', "/b"), null);
  assert.equal(rangeOfPointer('{"a": ', "/a"), null);
});

test("a picture's view keeps what is under the pointer, and its middle within the picture", () => {
  const whole = { x: 0, y: 0, width: 400, height: 100 };
  let box = whole;
  for (let i = 0; i < 40; i += 1) {
    const [u, v] = [(i * 37) % 100, (i * 61) % 100].map((share) => share / 100) as [number, number];
    box = i % 3 === 2 ? panned(box, whole, u - 0.5, v - 0.5) : zoomed(box, whole, i % 2 ? 0.7 : 1.2, u, v);
    assert.ok(box.width <= 1.06 * whole.width && box.width >= whole.width / 12.1);
    assert.ok(Math.abs(box.width / box.height - 4) < 1e-9);
    const middle = [box.x + box.width / 2, box.y + box.height / 2] as const;
    assert.ok(middle[0] >= 0 && middle[0] <= 400 && middle[1] >= 0 && middle[1] <= 100);
  }
  const closer = zoomed(whole, whole, 0.5, 0.25, 0.75);
  assert.deepEqual([closer.x + 0.25 * closer.width, closer.y + 0.75 * closer.height], [100, 75]);
});

test("a picture begins whole where that can be read, else with its beginning", () => {
  for (const [width, height] of [
    [200, 100],
    [300, 2000],
    [4000, 60],
  ] as const) {
    const picture = { x: 0, y: 0, width, height };
    const whole = padded(picture, 2);
    assert.ok(Math.abs(whole.width / whole.height - 2) < 1e-9);
    assert.ok(whole.width >= width && whole.height >= height && (whole.width === width || whole.height === height));
    const first = beginning(picture, whole, 600);
    assert.ok(first.width <= whole.width && first.y === 0 && Math.abs(first.width / first.height - 2) < 1e-9);
    assert.ok(600 / first.width >= 0.9 - 1e-9);
    assert.ok(first.x <= 0);
  }
});

test("the places that errors name are found in the source", () => {
  const text = (source: string, pointer: string | null, message = "") => {
    const range = rangeOfError(source, pointer, message);
    return range && source.slice(range.begin, range.end);
  };
  assert.equal(text("a😀[b", "offset 2"), "[");
  assert.equal(text("x ::= y\n  😀z", "line 2, column 4"), "z");
  assert.equal(text('{"a": }', null, "no JSON text: Expecting value: line 1 column 7 (char 6)."), "}");
  assert.equal(text('{"a": [1, 2]}', "/a/1"), "2");
  assert.equal(text('{"a": 1}', ""), null);
  assert.equal(text('{"a": 1}', null), null);
});
