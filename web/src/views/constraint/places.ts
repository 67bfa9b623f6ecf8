// Places in texts: from the server's code points to the browser's UTF-16, and from JSON pointers to their text.

export interface Range {
  begin: number;
  end: number;
}

/** The UTF-16 index of the code point `position`. */
export function utf16At(text: string, position: number): number {
  let index = 0;
  for (let left = position; left > 0 && index < text.length; left -= 1) {
    index += (text.codePointAt(index) ?? 0) > 0xffff ? 2 : 1;
  }
  return index;
}

/** The end of the character at a UTF-16 index; one more than the index at the end of the text. */
export function characterEnd(text: string, index: number): number {
  return index + ((text.codePointAt(index) ?? 0) > 0xffff ? 2 : 1);
}

/** The place that an error names: a JSON pointer, "offset 3", "line 1, column 10", or "(char 9)" in its message. */
export function rangeOfError(source: string, pointer: string | null, message: string): Range | null {
  const offset = /^offset (\d+)$/.exec(pointer ?? "") ?? /\(char (\d+)\)/.exec(message);
  if (offset) return characterAt(source, utf16At(source, Number(offset[1])));
  const line = /^line (\d+), column (\d+)$/.exec(pointer ?? "");
  if (line) {
    const lines = source.split("\n");
    const before = lines.slice(0, Number(line[1]) - 1).reduce((sum, one) => sum + one.length + 1, 0);
    return characterAt(source, before + utf16At(lines[Number(line[1]) - 1] ?? "", Number(line[2]) - 1));
  }
  return pointer?.startsWith("/") ? rangeOfPointer(source, pointer) : null;
}

function characterAt(text: string, begin: number): Range {
  return { begin, end: characterEnd(text, begin) };
}

/** Where the value that a JSON pointer names stands in JSON text, or null. The key of a member belongs to its place. */
export function rangeOfPointer(source: string, pointer: string): Range | null {
  const steps = pointer
    .replace(/^#/, "")
    .split("/")
    .slice(1)
    .map((step) => decoded(step).replaceAll("~1", "/").replaceAll("~0", "~"));
  const scan = new Scanner(source);
  try {
    return scan.value(steps);
  } catch {
    return null;
  }
}

function decoded(step: string): string {
  try {
    return decodeURIComponent(step);
  } catch {
    return step;
  }
}

/** Reads JSON text just far enough to find one value; throws where it is no JSON. */
class Scanner {
  private at = 0;

  constructor(private readonly text: string) {}

  /** The range of the value that `steps` lead to from here; null if they lead nowhere. Reads past the value. */
  value(steps: string[] | null): Range | null {
    this.blanks();
    const begin = this.at;
    const found = this.content(steps);
    return steps?.length === 0 ? { begin, end: this.at } : found;
  }

  private content(steps: string[] | null): Range | null {
    const first = this.text[this.at];
    if (first === "{") return this.items("}", true, steps);
    if (first === "[") return this.items("]", false, steps);
    if (first === '"') this.string();
    else {
      const rest = /^[-+.\w]+/.exec(this.text.slice(this.at));
      if (!rest) throw new Error("no JSON");
      this.at += rest[0].length;
    }
    return null;
  }

  private items(close: string, isObject: boolean, steps: string[] | null): Range | null {
    const [wanted, ...rest] = steps ?? [];
    let found: Range | null = null;
    this.at += 1;
    for (let index = 0; ; index += 1) {
      this.blanks();
      if (this.text[this.at] === close) break;
      const begin = this.at;
      const name = isObject ? (JSON.parse(this.string()) as string) : String(index);
      if (isObject) this.skip(":");
      const isIt = wanted !== undefined && name === wanted;
      const inner = this.value(isIt ? rest : null);
      if (isIt) found = rest.length === 0 ? { begin, end: this.at } : inner;
      this.blanks();
      if (this.text[this.at] === ",") this.at += 1;
      else if (this.text[this.at] !== close) throw new Error("no JSON");
    }
    this.at += 1;
    return found;
  }

  private string(): string {
    const found = /^"(?:[^"\\]|\\.)*"/s.exec(this.text.slice(this.at));
    if (!found) throw new Error("no JSON");
    this.at += found[0].length;
    return found[0];
  }

  private skip(sign: string): void {
    this.blanks();
    if (this.text[this.at] !== sign) throw new Error("no JSON");
    this.at += 1;
  }

  private blanks(): void {
    while (/\s/.test(this.text[this.at] ?? "")) this.at += 1;
  }
}
