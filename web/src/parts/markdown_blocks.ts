// Blocks of Markdown: paragraphs, headings, code, lists, quotes, tables and rules. HTML is text. What models write, not
// all of CommonMark: no setext headings, no link definitions, no code by indent.

import { type Inline, inlinesOf } from "./markdown_inline.ts";

export type Block =
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; children: Block[] }
  | { kind: "list"; start: number | null; items: Block[][] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][] }
  | { kind: "rule" };

const MAX_DEPTH = 8;
// Each is decided in one pass over the line: no two parts of a pattern may take the same characters.
const FENCE = /^ {0,3}(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?= )(.*)$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const QUOTE = /^ {0,3}> ?/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(\s+|$)/;
const DASHES = /^:?-+:?$/;

export function blocksOf(text: string): Block[] {
  return read(text.replaceAll("\r\n", "\n").replaceAll("\t", "    ").split("\n"), 0);
}

function isBlank(line: string | undefined): boolean {
  return !line?.trim();
}

function read(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    if (isBlank(line)) {
      at += 1;
      continue;
    }
    const [block, end] = blockAt(lines, at, depth);
    blocks.push(block);
    at = Math.max(end, at + 1);
  }
  return blocks;
}

/** The block that begins at line `at`, and the line after it. */
function blockAt(lines: string[], at: number, depth: number): [Block, number] {
  const line = lines[at] ?? "";
  const fence = FENCE.exec(line);
  if (fence) {
    return codeAt(lines, at, fence[1] ?? "", (fence[2] ?? "").trim().split(" ", 1)[0] ?? "");
  }
  const heading = HEADING.exec(line);
  if (heading) {
    const children = inlinesOf(withoutMarks(heading[2] ?? ""));
    return [{ kind: "heading", level: heading[1]?.length ?? 1, children }, at + 1];
  }
  if (RULE.test(line)) {
    return [{ kind: "rule" }, at + 1];
  }
  if (depth < MAX_DEPTH && QUOTE.test(line)) {
    let end = at;
    while (end < lines.length && QUOTE.test(lines[end] ?? "")) {
      end += 1;
    }
    const quoted = lines.slice(at, end).map((each) => each.replace(QUOTE, ""));
    return [{ kind: "quote", children: read(quoted, depth + 1) }, end];
  }
  if (depth < MAX_DEPTH && ITEM.test(line)) {
    return listAt(lines, at, depth);
  }
  if (line.includes("|") && isTableRule(lines[at + 1] ?? "")) {
    return tableAt(lines, at);
  }
  return paragraphAt(lines, at);
}

/** A heading's text without the marks that may close it. */
function withoutMarks(text: string): string {
  const trimmed = text.trim();
  let end = trimmed.length;
  while (end > 0 && trimmed[end - 1] === "#") {
    end -= 1;
  }
  return trimmed.slice(0, end).trimEnd();
}

function isTableRule(line: string): boolean {
  const cells = line.trim().split("|");
  const first = cells[0] === "" ? 1 : 0;
  const last = cells.length > 1 && cells.at(-1) === "" ? cells.length - 1 : cells.length;
  return first < last && cells.slice(first, last).every((cell) => DASHES.test(cell.trim()));
}

function codeAt(lines: string[], at: number, mark: string, language: string): [Block, number] {
  const closing = new RegExp(`^ {0,3}${mark.charAt(0)}{${mark.length},}\\s*$`);
  let end = at + 1;
  while (end < lines.length && !closing.test(lines[end] ?? "")) {
    end += 1;
  }
  return [{ kind: "code", language, text: lines.slice(at + 1, end).join("\n") }, end + 1];
}

function listAt(lines: string[], at: number, depth: number): [Block, number] {
  const first = ITEM.exec(lines[at] ?? "");
  const indent = first?.[1]?.length ?? 0;
  const isNumbered = /\d/.test(first?.[2] ?? "");
  const items: string[][] = [];
  let end = at;
  while (end < lines.length) {
    const line = lines[end] ?? "";
    const item = ITEM.exec(line);
    const indentOfLine = line.length - line.trimStart().length;
    if (item && indentOfLine < indent + 2 && indentOfLine >= indent) {
      if (/\d/.test(item[2] ?? "") !== isNumbered || RULE.test(line)) {
        break;
      }
      items.push([line.slice(item[0].length)]);
    } else if (isBlank(line)) {
      const next = lines[end + 1] ?? "";
      const goesOn = ITEM.test(next) || next.length - next.trimStart().length >= indent + 2;
      if (isBlank(next) || !goesOn) {
        break;
      }
      items.at(-1)?.push("");
    } else if (indentOfLine >= indent + 2) {
      items.at(-1)?.push(line.slice(Math.min(indentOfLine, indent + (first?.[0].length ?? 2) - indent)));
    } else {
      break;
    }
    end += 1;
  }
  const start = isNumbered ? Number.parseInt(first?.[2] ?? "1", 10) : null;
  return [{ kind: "list", start, items: items.map((item) => read(item, depth + 1)) }, end];
}

function tableAt(lines: string[], at: number): [Block, number] {
  const head = cellsOf(lines[at] ?? "");
  let end = at + 2;
  while (end < lines.length && !isBlank(lines[end]) && (lines[end] ?? "").includes("|")) {
    end += 1;
  }
  const rows = lines.slice(at + 2, end).map((line) => {
    const cells = cellsOf(line);
    return head.map((_, column) => cells[column] ?? []);
  });
  return [{ kind: "table", head, rows }, end];
}

function cellsOf(line: string): Inline[][] {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => inlinesOf(cell.trim().replaceAll("\\|", "|")));
}

function paragraphAt(lines: string[], at: number): [Block, number] {
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end])) {
    const line = lines[end] ?? "";
    if (FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line)) {
      break;
    }
    end += 1;
  }
  const text = lines.slice(at, end).map((line) => line.trim());
  return [{ kind: "paragraph", children: inlinesOf(text.join("\n")) }, end];
}
