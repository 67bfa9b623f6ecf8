// A conversation: a tree of turns, one path of which is shown. An edit or another try adds a branch; nothing is lost.
// A turn's `parent` is a key: "" at the beginning, the id of a user's turn, or "<id of a reply>:<answer>" after the
// answer of a reply that the reader went on from.

import type { Problem } from "../../api.ts";

export type How = "sampled" | "forced" | "foreseen";

export interface AnswerToken {
  text: string;
  how: How;
  /** How many tokens the mask left; null without a constraint. */
  allowed: number | null;
  logprob: number | null;
  top: { text: string; logprob: number }[];
}

export interface ToolCall {
  id: string;
  name: string;
  arguments: string;
}

export interface Answer {
  content: string;
  reasoning: string;
  calls: ToolCall[];
  tokens: AnswerToken[];
  finish: string | null;
}

export interface Usage {
  prompt_tokens: number;
  completion_tokens: number;
  prompt_tokens_details?: {
    cached_tokens?: number;
    loaded_tokens?: number;
    cache_explanation?: { reason: string; sentence: string } | null;
  };
  completion_tokens_details?: {
    jumped_tokens?: number;
    drafted_tokens?: number;
    sampled_tokens?: number;
    reasoning_tokens?: number;
  };
}

export interface TextDocument {
  name: string;
  text: string;
}

export interface ToolResult {
  id: string;
  name: string;
  content: string;
}

export interface UserTurn {
  role: "user";
  id: string;
  parent: string;
  text: string;
  documents: TextDocument[];
}

export interface ToolsTurn {
  role: "tools";
  id: string;
  parent: string;
  results: ToolResult[];
}

export interface Reply {
  role: "reply";
  id: string;
  parent: string;
  answers: Answer[];
  picked: number;
  state: "streaming" | "done" | "stopped" | "failed";
  problem: Problem | null;
  /** What the request said of format and tools, to tell whether a refusal is about what stands there now. */
  asked: { format: string; tools: string };
  promptPieces: string[];
  usage: Usage | null;
  /** How its tokens came about, of all answers; null until it has ended. */
  counts: Record<How, number> | null;
  firstTokenMs: number | null;
  totalMs: number | null;
}

export type Turn = UserTurn | ToolsTurn | Reply;

export const SAMPLING = ["temperature", "top_p", "max_tokens", "seed", "n"] as const;
export type SamplingName = (typeof SAMPLING)[number];
export const FORMATS = ["none", "json_schema", "regex", "grammar", "choice"] as const;
export type FormatKind = (typeof FORMATS)[number];

export interface Conversation {
  id: string;
  title: string;
  changedAt: number;
  model: string | null;
  system: string;
  /** As typed; "" is the server's default. */
  sampling: Record<SamplingName, string>;
  format: { kind: FormatKind } & Record<Exclude<FormatKind, "none">, string>;
  tools: string;
  draft: string;
  documents: TextDocument[];
  turns: Record<string, Turn>;
  chosen: Record<string, string>;
  numTurns: number;
  /** Its settings are those of an example, and not for the next conversation. */
  isExample: boolean;
}

/** An empty one, with the settings of the one before unless those were an example's. */
export function newConversation(last: Conversation | null): Conversation {
  const before = last?.isExample ? null : last;
  return {
    id: crypto.randomUUID?.() ?? `${Date.now()}-${Math.random()}`,
    title: "",
    changedAt: Date.now(),
    model: last?.model ?? null,
    system: before?.system ?? "",
    sampling: before ? { ...before.sampling } : { temperature: "", top_p: "", max_tokens: "", seed: "", n: "1" },
    format: { json_schema: "", regex: "", grammar: "", choice: "", ...before?.format, kind: "none" },
    tools: "",
    draft: "",
    documents: [],
    turns: {},
    chosen: {},
    numTurns: 0,
    isExample: false,
  };
}

export function titleOf(conversation: Conversation): string {
  return conversation.title || "New conversation";
}

/** The key under which the turns after `turn` stand. */
export function keyAfter(turn: Turn): string {
  return turn.role === "reply" ? `${turn.id}:${turn.picked}` : turn.id;
}

/** The turns that are shown, first to last. */
export function pathOf(conversation: Conversation): Turn[] {
  const path: Turn[] = [];
  let turn = conversation.turns[conversation.chosen[""] ?? ""];
  while (turn) {
    path.push(turn);
    turn = conversation.turns[conversation.chosen[keyAfter(turn)] ?? ""];
  }
  return path;
}

/** The turns before `turn` on the way to it, first to last. */
export function pathBefore(conversation: Conversation, turn: Turn): Turn[] {
  const path: Turn[] = [];
  let parent = turn.parent;
  while (parent !== "") {
    const before = conversation.turns[parent.split(":")[0] ?? ""];
    if (!before) {
      break;
    }
    path.unshift(before);
    parent = before.parent;
  }
  return path;
}

/** The text of an answer that is on the way to the turn with this `parent`. */
export function answerBefore(reply: Reply, parent: string): Answer | undefined {
  const [id, index] = parent.split(":");
  return reply.answers[id === reply.id && index !== undefined ? Number(index) : reply.picked];
}

/** The turns that stand at the same place, oldest first. */
export function branchesAt(conversation: Conversation, turn: Turn): Turn[] {
  return Object.values(conversation.turns).filter(({ parent }) => parent === turn.parent);
}

/** Adds a turn and shows it. */
export function addTurn<T extends Turn>(conversation: Conversation, turn: Omit<T, "id">): T {
  conversation.numTurns += 1;
  const added = { ...turn, id: `t${conversation.numTurns}` } as T;
  conversation.turns[added.id] = added;
  conversation.chosen[added.parent] = added.id;
  conversation.changedAt = Date.now();
  return added;
}

export function newReply(parent: string, numAnswers: number, asked: Reply["asked"]): Omit<Reply, "id"> {
  const answers = Array.from({ length: numAnswers }, () => ({
    content: "",
    reasoning: "",
    calls: [],
    tokens: [],
    finish: null,
  }));
  return {
    role: "reply",
    parent,
    answers,
    picked: 0,
    state: "streaming",
    problem: null,
    asked,
    promptPieces: [],
    usage: null,
    counts: null,
    firstTokenMs: null,
    totalMs: null,
  };
}

/** The user's text after its documents, each between marks. */
export function textWithDocuments(text: string, documents: TextDocument[]): string {
  const parts = documents.map(({ name, text: body }) => {
    const shown = name.replaceAll('"', "'");
    return `<document name="${shown}">\n${body.trimEnd()}\n</document>\n\n`;
  });
  return parts.join("") + text;
}
