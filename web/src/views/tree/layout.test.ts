// The icicle's layout, view and keys against plain definitions, on random trees.

import assert from "node:assert/strict";
import { test } from "node:test";
import { treeOf } from "../../api.ts";
import type { TreeRequest } from "../../contract.ts";
import { childrenOf, idAt, type Layout, layOut, pathTo, placeAt } from "./layout.ts";
import { GLIDE_MS, keyOf, Markers } from "./markers.ts";
import { type Direction, neighbour } from "./neighbours.ts";
import { classify, legend, swatches } from "./palette.ts";
import { randomFrom, randomTree } from "./random_tree.ts";
import { describePlace, describeProgress, describeTree } from "./sentences.ts";
import { anchorOf, restore, Viewport } from "./viewport.ts";

const ROWS = 12;
const SIZES = [0, 1, 2, 30, 400];

function layoutOf(seed: number, size: number, requests: TreeRequest[] = []): Layout {
  return layOut(treeOf(randomTree(seed, size, requests)));
}

function* layouts(): Generator<Layout> {
  for (const size of SIZES) for (let seed = 1; seed <= 4; seed += 1) yield layoutOf(seed, size);
}

test("every node has its place, in preorder, as wide as all blocks at and below it", () => {
  for (const layout of layouts()) {
    const { columns, header } = layout.tree;
    assert.equal(layout.size, header.num_nodes + 1);
    assert.equal(layout.placeOf.size, header.num_nodes);
    for (let place = 1; place < layout.size; place += 1) {
      const node = layout.node[place]!;
      assert.equal(layout.placeOf.get(columns.id[node]!), place);
      assert.equal(idAt(layout, layout.parent[place]!), columns.parent[node]!);
      let blocks = 0;
      for (let at = place; at < layout.end[place]!; at += 1) blocks += columns.num_blocks[layout.node[at]!]!;
      assert.equal(layout.width[place], blocks);
    }
  }
});

test("children lie below their parent, side by side from its left, in the order of the smallest ids below them", () => {
  for (const layout of layouts()) {
    const smallest = (place: number) => {
      let least = Number.POSITIVE_INFINITY;
      for (let at = place; at < layout.end[place]!; at += 1) least = Math.min(least, idAt(layout, at));
      return least;
    };
    for (let place = 0; place < layout.size; place += 1) {
      let begin = layout.begin[place]!;
      let last = -1;
      for (const child of childrenOf(layout, place)) {
        assert.equal(layout.parent[child], place);
        assert.equal(layout.depth[child], layout.depth[place]! + 1);
        assert.equal(layout.begin[child], begin);
        begin += layout.width[child]!;
        assert.ok(smallest(child) > last);
        last = smallest(child);
      }
      assert.ok(begin <= layout.begin[place]! + layout.width[place]!);
    }
  }
});

test("the place at a point is the one whose box has it", () => {
  for (const layout of layouts()) {
    for (let place = 0; place < layout.size; place += 1) {
      const middle = layout.begin[place]! + layout.width[place]! / 2;
      if (layout.width[place]! > 0) assert.equal(placeAt(layout, middle, layout.depth[place]!), place);
    }
    assert.equal(placeAt(layout, -1, 0), -1);
    assert.equal(placeAt(layout, 0, layout.numRows), -1);
  }
});

test("arrow keys go to parent, child and siblings, and stay where there is nothing", () => {
  const directions: Direction[] = ["parent", "child", "previous", "next", "first", "last"];
  for (const layout of layouts()) {
    for (let place = 0; place < layout.size; place += 1) {
      const [parent, child, previous, next, first, last] = directions.map((to) => neighbour(layout, place, to));
      const all = place === 0 ? [0] : childrenOf(layout, layout.parent[place]!);
      const at = all.indexOf(place);
      assert.equal(parent, Math.max(0, layout.parent[place]!));
      assert.deepEqual([previous, next], [all[at - 1] ?? place, all[at + 1] ?? place]);
      assert.deepEqual([first, last], [all[0], all.at(-1)]);
      const own = childrenOf(layout, place);
      assert.ok(own.length === 0 ? child === place : own.includes(child!));
      assert.ok(own.every((other) => layout.width[other]! <= layout.width[child!]!));
    }
  }
});

test("views stay within the tree, and a new tree keeps what is seen", () => {
  const random = randomFrom(5);
  for (const layout of layouts()) {
    const view = new Viewport();
    view.fit(layout, 0, ROWS);
    for (let i = 0; i < 60; i += 1) {
      if (random() < 0.6) view.zoom(layout, 0.3 + 1.4 * random(), random(), ROWS);
      else view.pan(layout, random() - 0.5, 4 * random() - 2, ROWS);
      assert.ok(view.left >= 0 && view.left + view.span <= Math.max(1, layout.width[0]!) + 1e-6);
      assert.ok(view.top >= 0 && view.top <= layout.numRows);
      const again = new Viewport();
      restore(layout, again, anchorOf(layout, view), ROWS);
      assert.ok(Math.abs(again.left - view.left) < 1e-6 && Math.abs(again.span - view.span) < 1e-6);
      assert.ok(Math.abs(again.top - view.top) < 1e-9);
    }
  }
});

test("a view of a node that is gone shows its nearest ancestor that is left", () => {
  const layout = layoutOf(2, 400);
  const view = new Viewport();
  const deepest = Array.from(layout.depth).indexOf(layout.numRows - 1);
  view.fit(layout, deepest, ROWS);
  const anchor = anchorOf(layout, view);
  const path = pathTo(layout, deepest);
  const smaller = {
    ...layout,
    placeOf: new Map([...layout.placeOf].filter(([, place]) => !path.slice(3).includes(place))),
  };
  restore(smaller, view, anchor, ROWS);
  const kept = path[2]!;
  assert.deepEqual([view.left, view.span], [layout.begin[kept], layout.width[kept]]);
});

test("classes follow age, hits and namespace, and each has a word and a colour", () => {
  const layout = layoutOf(3, 400);
  const { columns, header } = layout.tree;
  const classes = new Uint8Array(layout.size);
  for (const by of ["age", "hits", "namespace"] as const) {
    classify(layout, by, 0, classes);
    const shown = swatches(by, header.namespaces, by === "hits");
    const words = legend(shown).map((entry) => entry.label);
    assert.equal(new Set(words).size, words.length);
    const value = (place: number) =>
      columns[by === "age" ? "age_ms" : by === "hits" ? "hits" : "namespace"][layout.node[place]!]!;
    for (let place = 2; place < layout.size; place += 1) {
      const order = Math.sign(value(place) - value(place - 1));
      const classOrder = Math.sign(classes[place]! - classes[place - 1]!);
      assert.ok(classOrder === 0 || classOrder === order);
      assert.ok(shown[classes[place]!]?.label);
    }
  }
  classify(layout, "age", 1e12, classes);
  assert.ok(
    classes.slice(1).every((found) => found === 6),
    "all grow old",
  );
});

test("the word of a class has the number in it", () => {
  const layout = layoutOf(2, 30);
  const words = legend(swatches("hits", [], false)).map((entry) => entry.label);
  const classes = new Uint8Array(layout.size);
  for (let hits = 0; hits < 80; hits += 1) {
    layout.tree.columns.hits.fill(hits);
    classify(layout, "hits", 0, classes);
    const [from, to] = words[classes[1]!]!.split(/–| or more/);
    assert.ok(Number(from) <= hits && hits <= (to === undefined ? Number(from) : to === "" ? 1e9 : Number(to)));
  }
});

test("what fills the width has two of its ancestors above it", () => {
  const layout = layoutOf(2, 400);
  const view = new Viewport();
  for (let place = 0; place < layout.size; place += 1) {
    view.fit(layout, place, 1);
    assert.equal(view.top, Math.max(0, layout.depth[place]! - 2));
  }
});

test("a tree without a column is refused by its name", () => {
  const bytes = randomTree(1, 3);
  const text = new TextDecoder().decode(bytes);
  const without = new TextEncoder().encode(text.replace('"rank"', '"rnak"'));
  assert.throws(() => treeOf(without.buffer as ArrayBuffer), /no column rank/);
});

test("markers glide from node to node, and stand still where motion is reduced", () => {
  const at = (node: number): TreeRequest => ({
    request_id: "r1",
    index: 0,
    node,
    phase: "decode",
    num_tokens: 20,
    num_prompt_tokens: 10,
    num_computed_tokens: 19,
    num_output_tokens: 10,
  });
  const plain = layoutOf(2, 30);
  const [a, b] = [idAt(plain, 1), idAt(plain, plain.size - 1)];
  const first = layoutOf(2, 30, [at(a), { ...at(-1), request_id: "r2" }]);
  const markers = new Markers();
  markers.update(first, 0, false);
  assert.deepEqual(markers.keys, ["r1"], "a request at no node has no marker");
  const from = markers.column[0]!;
  const second = layoutOf(2, 30, [at(b)]);
  markers.update(second, 1000, false);
  assert.equal(markers.column[0], from);
  assert.ok(markers.step(1000 + GLIDE_MS / 2));
  assert.ok(!markers.step(1000 + GLIDE_MS));
  const place = second.placeOf.get(b)!;
  assert.equal(markers.column[0], second.begin[place]! + second.width[place]! / 2);
  assert.equal(markers.row[0], second.depth[place]);
  markers.update(first, 2000, true);
  assert.equal(markers.column[0], from);
  assert.notEqual(keyOf(at(a)), keyOf({ ...at(a), index: 1 }));
});

test("nodes and trees are described in words", () => {
  const layout = layoutOf(2, 30);
  assert.match(describePlace(layout, 0, 0), /^The whole cache: 30 nodes, [\d,]+ blocks, 3 first nodes\.$/);
  assert.match(describePlace(layout, 1, 0), /^Node \d+, level 1, \d+ blocks?, [\d,]+ tokens, .*used .* ago, .*\.$/);
  layout.tree.columns.pinned.fill(1);
  assert.match(describePlace(layout, 1, 0), /, pinned/);
  const request = {
    request_id: "r",
    index: 0,
    node: 1,
    num_prompt_tokens: 10,
    num_computed_tokens: 4,
    num_output_tokens: 3,
  };
  assert.equal(describeProgress({ ...request, phase: "prefill", num_tokens: 10 }), "4 of 10 prompt tokens computed");
  assert.equal(describeProgress({ ...request, phase: "waiting", num_tokens: 10 }), "waits with a prompt of 10 tokens");
  assert.equal(
    describeProgress({ ...request, phase: "decode", num_tokens: 13 }),
    "3 tokens written after a prompt of 10",
  );
  assert.match(describeTree(layout.tree), /^30 nodes · [\d,]+ of 100,000 blocks$/);
});
