// Markdown of models: what it becomes, that nothing of it is lost or linked elsewhere, and that hostile text is cheap.

import assert from "node:assert/strict";
import { test } from "node:test";
import { type Block, blocksOf } from "./markdown_blocks.ts";
import { type Inline, inlinesOf, safeAddress } from "./markdown_inline.ts";

function textOf(inlines: Inline[]): string {
  return inlines
    .map((inline) => {
      if (inline.kind === "break") return "\n";
      return "children" in inline ? textOf(inline.children) : inline.text;
    })
    .join("");
}

function linksOf(inlines: Inline[]): string[] {
  return inlines.flatMap((inline) => {
    const inner = "children" in inline ? linksOf(inline.children) : [];
    return inline.kind === "link" ? [inline.href, ...inner] : inner;
  });
}

function kinds(blocks: Block[]): string[] {
  return blocks.map(({ kind }) => kind);
}

test("what models write", () => {
  const text =
    "# A\n\nb **c** `d`\n\n- e\n  1. f\n- g\n\n```py\nh\n```\n\n| i | j |\n|---|:-:|\n| k |\n\n> l\n\n---\n- m";
  const blocks = blocksOf(text);
  assert.deepEqual(kinds(blocks), ["heading", "paragraph", "list", "code", "table", "quote", "rule", "list"]);
  const list = blocks[2];
  assert.ok(list?.kind === "list" && list.items.length === 2);
  assert.deepEqual(kinds(list.items[0] ?? []), ["paragraph", "list"]);
  const table = blocks[4];
  assert.ok(table?.kind === "table");
  assert.deepEqual(
    table.rows.map((row) => row.map(textOf)),
    [["k", ""]],
  );
});

test("spans", () => {
  const [strong, , em, , del] = inlinesOf("**a _b_** *c* ~~d~~");
  assert.ok(strong?.kind === "strong" && em?.kind === "em" && del?.kind === "del");
  for (const text of ["2 * 3 * 4", "snake_case_name", "a\\*b\\*", "**", "[a](b", "`a", "1 < 2"]) {
    assert.equal(textOf(inlinesOf(text)), text.replaceAll("\\", ""));
    assert.ok(inlinesOf(text).every(({ kind }) => kind === "text"));
  }
});

test("only http, https and mailto are linked, and HTML is text", () => {
  for (const address of ["javascript:a()", "data:text/html,a", "vbscript:a", "file:///a", "blob:a", "/a", "//a", "a"]) {
    assert.equal(safeAddress(address), null);
    const text = `[b](${address}) ![b](${address}) <${address}>`;
    assert.deepEqual(linksOf(inlinesOf(text)), []);
    assert.equal(textOf(inlinesOf(text)), text);
  }
  const text = "[a](https://b.c/d_(e)) https://f.g/h. <mailto:i@j.k> ![l](http://m.n)";
  assert.deepEqual(linksOf(inlinesOf(text)), ["https://b.c/d_(e)", "https://f.g/h", "mailto:i@j.k", "http://m.n/"]);
  const html = '<img src=x onerror="a()"><b>c</b></script>';
  assert.equal(textOf(inlinesOf(html)), html);
});

test("text of any kind ends, and hostile text soon", () => {
  const parts = [
    "**",
    "*a",
    "_",
    "`",
    "[",
    "](",
    "![",
    "> ",
    "- ",
    "1. ",
    "|",
    "|-",
    "\n",
    "```",
    "#",
    "\\",
    "<h",
    "~~",
  ];
  let seed = 1;
  const next = () => {
    seed = (seed * 48271) % 2147483647;
    return seed;
  };
  for (let round = 0; round < 500; round += 1) {
    blocksOf(Array.from({ length: next() % 30 }, () => parts[next() % parts.length]).join(""));
  }
  for (const part of parts) {
    blocksOf(part.repeat(4000));
    blocksOf(`${part} a `.repeat(2000));
    blocksOf(`${part}\n`.repeat(2000));
  }
});

test("long hostile lines are read in one pass", () => {
  const spaces = " ".repeat(50_000);
  assert.equal(blocksOf(`# a${spaces}b`)[0]?.kind, "heading");
  assert.equal(blocksOf(`~~~${"a".repeat(50_000)}\``)[0]?.kind, "paragraph");
  assert.equal(blocksOf(`a|b\n-${spaces}x`)[0]?.kind, "paragraph");
  assert.equal(blocksOf(`[a](${spaces}`)[0]?.kind, "paragraph");
  const runs = Array.from({ length: 900 }, (_, length) => "`".repeat(length + 1)).join(" ");
  assert.equal(blocksOf(runs)[0]?.kind, "paragraph");
});

test("a run of backticks is closed by one of its length, and is text if none is", () => {
  assert.deepEqual(inlinesOf("``a ` b`` c"), [
    { kind: "code", text: "a ` b" },
    { kind: "text", text: " c" },
  ]);
  assert.deepEqual(inlinesOf("`a"), [{ kind: "text", text: "`a" }]);
});

test("headings lose the marks that close them, tables need a rule in each column", () => {
  assert.deepEqual(blocksOf("## a # b ##"), [
    { kind: "heading", level: 2, children: [{ kind: "text", text: "a # b" }] },
  ]);
  assert.equal(blocksOf("a|b\n:-|-:\n1|2")[0]?.kind, "table");
  assert.equal(blocksOf("a|b\n-|x\n1|2")[0]?.kind, "paragraph");
});
