// Spans of Markdown: code, emphasis, links, line breaks. HTML is text. Only http, https and mailto are linked.

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "break" }
  | { kind: "strong" | "em" | "del"; children: Inline[] }
  | { kind: "link"; href: string; children: Inline[] };

const MAX_DEPTH = 8;
const MARKS = [
  { mark: "**", kind: "strong" },
  { mark: "__", kind: "strong" },
  { mark: "~~", kind: "del" },
  { mark: "*", kind: "em" },
  { mark: "_", kind: "em" },
] as const;
const WORD = /[\p{L}\p{N}]/u;
const ESCAPABLE = /[!-/:-@[-`{-~]/;
const PLAIN = /[^\\`*_~![\n<hm]+/y;
const ADDRESS = /(?:https?:\/\/|mailto:)[^\s<>"'`)\]]*[^\s<>"'`)\].,;:!?]/y;
// A link is read part by part, so that none is tried in several lengths.
const LABEL = /!?\[((?:[^[\]\\]|\\.)*)\]\(/y;
const TARGET = /[^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*/y;
const TITLE = /"[^"]*"/y;
const SPACE = /\s*/y;
const BACKTICKS = /`+/g;

/** `address` if it may be linked, else null. */
export function safeAddress(address: string): string | null {
  try {
    const { protocol, href } = new URL(address);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}

function matchAt(pattern: RegExp, text: string, place: number): RegExpExecArray | null {
  pattern.lastIndex = place;
  return pattern.exec(text);
}

export function inlinesOf(text: string, depth = 0): Inline[] {
  const found: Inline[] = [];
  const push = (plain: string) => {
    const last = found.at(-1);
    if (last?.kind === "text") {
      last.text += plain;
    } else {
      found.push({ kind: "text", text: plain });
    }
  };
  const unclosed = new Set<string>();
  const codes = new Codes(text);
  let place = 0;
  while (place < text.length) {
    const plain = matchAt(PLAIN, text, place);
    if (plain) {
      push(plain[0]);
      place += plain[0].length;
      continue;
    }
    const span = depth < MAX_DEPTH ? spanAt(text, place, depth, unclosed, codes) : null;
    if (span) {
      found.push(span.inline);
      place = span.end;
    } else {
      push(text.charAt(place));
      place += 1;
    }
  }
  return found;
}

interface Found {
  inline: Inline;
  end: number;
}

/** Spans of code: a run of backticks is closed by the next one of its length, and else it is text. */
class Codes {
  private runs: Map<number, number[]> | null = null;

  constructor(private readonly text: string) {}

  /** The span, or the text, of the run that begins at `place`. */
  at(place: number): Found {
    this.runs ??= this.found();
    let end = place;
    while (this.text[end] === "`") {
      end += 1;
    }
    const starts = this.runs.get(end - place) ?? [];
    while (starts.length > 0 && (starts.at(-1) ?? 0) < end) {
      starts.pop(); // the last is the first in the text, and text is read once
    }
    const close = starts.at(-1);
    if (close === undefined) {
      return { inline: { kind: "text", text: this.text.slice(place, end) }, end };
    }
    const inline: Inline = { kind: "code", text: this.text.slice(end, close).trim() };
    return { inline, end: close + end - place };
  }

  /** Where runs begin, by their length, from the last to the first. */
  private found(): Map<number, number[]> {
    const runs = new Map<number, number[]>();
    for (const run of [...this.text.matchAll(BACKTICKS)].reverse()) {
      const starts = runs.get(run[0].length) ?? [];
      starts.push(run.index);
      runs.set(run[0].length, starts);
    }
    return runs;
  }
}

/** The span that begins at `place`; unclosed: marks of emphasis that nothing closes from here on. */
function spanAt(text: string, place: number, depth: number, unclosed: Set<string>, codes: Codes): Found | null {
  const next = text.charAt(place + 1);
  switch (text[place]) {
    case "\\":
      if (next === "\n") {
        return { inline: { kind: "break" }, end: place + 2 };
      }
      return ESCAPABLE.test(next) ? { inline: { kind: "text", text: next }, end: place + 2 } : null;
    case "\n":
      return { inline: { kind: "break" }, end: place + 1 };
    case "`":
      return codes.at(place);
    case "!":
    case "[":
      return linkAt(text, place, depth);
    case "h":
    case "m":
    case "<":
      return addressAt(text, place);
    default:
      return emphasisAt(text, place, depth, unclosed);
  }
}

/** A link; an image is linked too and never loaded. */
function linkAt(text: string, place: number, depth: number): Found | null {
  const label = matchAt(LABEL, text, place);
  if (!label) {
    return null;
  }
  const spaceEnd = (from: number) => from + (matchAt(SPACE, text, from)?.[0].length ?? 0);
  let end = spaceEnd(place + label[0].length);
  end += text[end] === "<" ? 1 : 0;
  const target = matchAt(TARGET, text, end)?.[0] ?? "";
  end += target.length;
  end += text[end] === ">" ? 1 : 0;
  const title = matchAt(TITLE, text, spaceEnd(end));
  end = spaceEnd(title ? title.index + title[0].length : end);
  if (text[end] !== ")") {
    return null;
  }
  end += 1;
  const href = safeAddress(target);
  if (href === null) {
    return { inline: { kind: "text", text: text.slice(place, end) }, end };
  }
  return { inline: { kind: "link", href, children: inlinesOf(label[1] || href, depth + 1) }, end };
}

function addressAt(text: string, place: number): Found | null {
  const isAngled = text[place] === "<";
  if (!isAngled && place > 0 && WORD.test(text.charAt(place - 1))) {
    return null;
  }
  const address = matchAt(ADDRESS, text, isAngled ? place + 1 : place);
  const href = address && safeAddress(address[0]);
  if (!address || !href) {
    return null;
  }
  const end = address.index + address[0].length;
  if (isAngled && text[end] !== ">") {
    return null;
  }
  const children: Inline[] = [{ kind: "text", text: address[0] }];
  return { inline: { kind: "link", href, children }, end: isAngled ? end + 1 : end };
}

function emphasisAt(text: string, place: number, depth: number, unclosed: Set<string>): Found | null {
  for (const { mark, kind } of MARKS) {
    if (unclosed.has(mark) || !text.startsWith(mark, place)) {
      continue;
    }
    const start = place + mark.length;
    const isInWord = mark.startsWith("_") && place > 0 && WORD.test(text.charAt(place - 1));
    if (isInWord || /\s|^$/.test(text.charAt(start))) {
      continue;
    }
    const end = endOfEmphasis(text, start, mark);
    if (end === -1) {
      unclosed.add(mark); // what closes a mark does not depend on where it was opened
    }
    if (end > start) {
      const children = inlinesOf(text.slice(start, end), depth + 1);
      return { inline: { kind, children }, end: end + mark.length };
    }
  }
  return null;
}

function endOfEmphasis(text: string, start: number, mark: string): number {
  const single = mark.charAt(0);
  for (let end = text.indexOf(mark, start + 1); end !== -1; end = text.indexOf(mark, end + 1)) {
    const isSpaced = /\s/.test(text.charAt(end - 1));
    const isInWord = single === "_" && WORD.test(text.charAt(end + mark.length));
    const isLonger = mark.length === 1 && (text[end + 1] === single || text[end - 1] === single);
    if (!isSpaced && !isInWord && !isLonger) {
      return end;
    }
  }
  return -1;
}
