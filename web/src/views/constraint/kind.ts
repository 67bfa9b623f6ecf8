// Which kind of constraint a text is, guessed by its form.

import type { ConstraintKind } from "../../contract.ts";

export const KINDS: [ConstraintKind, string][] = [
  ["json_schema", "JSON Schema"],
  ["regex", "Regex"],
  ["grammar", "Grammar"],
  ["choice", "Choice"],
  ["structural_tag", "Structural tag"],
];

/**
 * JSON objects are schemas or structural tags; arrays of strings, and several lines of plain words, are choices; rules
 * make a grammar; else a regex.
 */
export function guessKind(source: string): ConstraintKind {
  const text = source.trim();
  if (text === "") return "json_schema";
  const value = parsed(text);
  if (Array.isArray(value)) {
    return value.every((option) => typeof option === "string") ? "choice" : "structural_tag";
  }
  if (typeof value === "object" && value !== null) {
    const isTag = "structures" in value || "triggers" in value || "begin" in value || "format" in value;
    return isTag && !("type" in value && value.type === "object") ? "structural_tag" : "json_schema";
  }
  if (text === "true" || text === "false" || /^\{\s*("|$)/.test(text)) return "json_schema";
  if (/^[\w ,'-]+(\n[\w ,'-]+)+$/.test(text)) return "choice";
  if (/::=/.test(text) || /^\s*[?!]*[A-Za-z_]\w*(\.\d+)?\s*:\s*\S/m.test(text)) return "grammar";
  return "regex";
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}
