// A conversation out of the browser's storage, where another page of this origin, or another version, may have left
// anything: it is taken whole if it has the shape of one, and else left alone.

import { type Conversation, FORMATS, newConversation, SAMPLING, type Turn } from "./conversation.ts";

type Fields = Record<string, unknown>;

export function conversationOf(text: string): Conversation | null {
  let found: unknown;
  try {
    found = JSON.parse(text);
  } catch {
    return null;
  }
  if (!isFields(found)) {
    return null;
  }
  const empty = newConversation(null);
  const format = isFields(found.format) ? { ...empty.format, ...found.format } : found.format;
  const filled = { ...empty, ...found, format } as Fields;
  return isConversation(filled) ? (filled as unknown as Conversation) : null;
}

function isConversation(value: Fields): boolean {
  const { sampling, format, documents, turns, chosen } = value;
  return (
    has(value, "string", "id", "title", "system", "tools", "draft") &&
    value.id !== "" &&
    has(value, "number", "changedAt", "numTurns") &&
    (value.model === null || typeof value.model === "string") &&
    isFields(sampling) &&
    has(sampling, "string", ...SAMPLING) &&
    isFields(format) &&
    has(format, "string", ...FORMATS.filter((kind) => kind !== "none")) &&
    (FORMATS as readonly unknown[]).includes(format.kind) &&
    typeof value.isExample === "boolean" &&
    isList(documents, "name", "text") &&
    isFields(turns) &&
    Object.entries(turns).every(([id, turn]) => isTurn(turn, id)) &&
    isFields(chosen) &&
    Object.entries(chosen).every(([key, id]) => (turns as Record<string, Turn>)[id as string]?.parent === key)
  );
}

/** A turn has one parent and that is where it is chosen, so a path cannot come to it twice. */
function isTurn(value: unknown, id: string): boolean {
  if (!isFields(value) || value.id !== id || id === "" || typeof value.parent !== "string") {
    return false;
  }
  switch (value.role) {
    case "user":
      return typeof value.text === "string" && isList(value.documents, "name", "text");
    case "tools":
      return isList(value.results, "id", "name", "content");
    case "reply":
      return isReply(value);
    default:
      return false;
  }
}

function isReply(value: Fields): boolean {
  const { answers, picked, asked, promptPieces } = value;
  return (
    Array.isArray(answers) &&
    answers.length > 0 &&
    answers.every(isAnswer) &&
    Number.isInteger(picked) &&
    (picked as number) >= 0 &&
    (picked as number) < answers.length &&
    typeof value.state === "string" &&
    isFields(asked) &&
    has(asked, "string", "format", "tools") &&
    Array.isArray(promptPieces) &&
    [value.problem, value.usage, value.counts].every((each) => each === null || isFields(each)) &&
    [value.firstTokenMs, value.totalMs].every((each) => each === null || typeof each === "number")
  );
}

function isAnswer(value: unknown): boolean {
  return (
    isFields(value) &&
    has(value, "string", "content", "reasoning") &&
    isList(value.calls, "id", "name", "arguments") &&
    Array.isArray(value.tokens) &&
    value.tokens.every((token) => isFields(token) && has(token, "string", "text", "how") && Array.isArray(token.top))
  );
}

function isFields(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function has(value: Fields, type: "string" | "number", ...names: readonly string[]): boolean {
  return names.every((name) => typeof value[name] === type);
}

function isList(value: unknown, ...names: string[]): boolean {
  return Array.isArray(value) && value.every((each) => isFields(each) && has(each, "string", ...names));
}
