// Three constraints to begin with, each with a text that leaves its language somewhere.

import type { ConstraintKind } from "../../contract.ts";

export interface Example {
  name: string;
  kind: ConstraintKind;
  source: string;
  text: string;
}

const PERSON = {
  type: "object",
  properties: {
    name: { type: "string", minLength: 1, maxLength: 40 },
    born: { type: "string", format: "date" },
    role: { enum: ["author", "editor", "reader"] },
  },
  required: ["name", "born", "role"],
  additionalProperties: false,
};

export const FIRST: Example = {
  name: "A person, as JSON",
  kind: "json_schema",
  source: JSON.stringify(PERSON, null, 2),
  text: '{"name":"Ada Lovelace","born":"1815-12-10","role":"painter"}',
};

export const EXAMPLES: Example[] = [
  FIRST,
  {
    name: "A date, by a regex",
    kind: "regex",
    source: "(19|20)[0-9]{2}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])",
    text: "2026-13-01",
  },
  {
    name: "Sums, by a grammar",
    kind: "grammar",
    source: 'root ::= sum\nsum ::= term (" + " term)*\nterm ::= [0-9]+ | "(" sum ")"\n',
    text: "12 + (3 + 40) * 2",
  },
];
