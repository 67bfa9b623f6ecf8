// From a conversation to the body of a request. Knows no server and no page.

import {
  type Conversation,
  keyAfter,
  SAMPLING,
  type SamplingName,
  type Turn,
  textWithDocuments,
} from "./conversation.ts";

interface Message {
  role: string;
  content: string | null;
  [name: string]: unknown;
}

/** `value`, or what is wrong with the JSON of `source` and where. */
export type Read = { value: unknown; fault: null } | { value: null; fault: string };

/** Reads JSON; a fault tells the line where that can be known. */
export function readJson(source: string): Read {
  try {
    return { value: JSON.parse(source), fault: null };
  } catch (error) {
    const message = error instanceof Error ? error.message : String(error);
    const place = /position (\d+)/.exec(message);
    if (!place) {
      return { value: null, fault: `Not JSON yet: ${message}.` };
    }
    const before = source.slice(0, Number(place[1])).split("\n");
    const column = (before.at(-1)?.length ?? 0) + 1;
    const what = message
      .replace(/ in JSON at position.*$/, "")
      .replace(/ \(line.*$/, "")
      .replace(/ at position.*$/, "");
    return { value: null, fault: `Not JSON yet: ${what}, line ${before.length}, column ${column}.` };
  }
}

/** What is wrong with the format, or null. */
export function faultOfFormat(format: Conversation["format"]): string | null {
  if (format.kind === "none") {
    return null;
  }
  const source = format[format.kind];
  if (!source.trim()) {
    return EMPTY[format.kind];
  }
  return format.kind === "json_schema" ? readJson(source).fault : null;
}

const EMPTY = {
  json_schema: "Enter a JSON Schema.",
  regex: "Enter a pattern.",
  grammar: "Enter a grammar.",
  choice: "Enter a choice.",
};

/** The choices of a text: one a line, or a JSON array of them. */
export function choicesOf(source: string): string[] {
  const read = readJson(source);
  if (Array.isArray(read.value) && read.value.every((each) => typeof each === "string")) {
    return read.value;
  }
  return source.split("\n").filter((line) => line.trim() !== "");
}

/** The tools as the API takes them: an array of them, of functions without their wrapper, or a single one. */
export function readTools(source: string): Read {
  if (!source.trim()) {
    return { value: [], fault: null };
  }
  const read = readJson(source);
  if (read.fault !== null) {
    return read;
  }
  const tools = Array.isArray(read.value) ? read.value : [read.value];
  const value = tools.map((tool: unknown) => {
    const { type, function: inner } = (tool ?? {}) as Record<string, unknown>;
    return type === "function" && inner ? tool : { type: "function", function: tool };
  });
  const isNamed = value.every((tool) => typeof (tool as { function?: { name?: unknown } }).function?.name === "string");
  return isNamed ? { value, fault: null } : { value: null, fault: 'Each tool needs a "name".' };
}

const BOUNDS: Record<SamplingName, { low: number; high: number; isWhole: boolean }> = {
  temperature: { low: 0, high: 2, isWhole: false },
  top_p: { low: 0, high: 1, isWhole: false },
  max_tokens: { low: 1, high: 1e9, isWhole: true },
  seed: { low: -(2 ** 53), high: 2 ** 53, isWhole: true },
  n: { low: 1, high: 8, isWhole: true },
};

/** What is wrong with a number as typed, or null. */
export function faultOfNumber(name: SamplingName, typed: string): string | null {
  const { low, high, isWhole } = BOUNDS[name];
  const value = Number(typed);
  if (typed === "") {
    return null;
  }
  if (!Number.isFinite(value) || (isWhole && !Number.isInteger(value))) {
    return isWhole ? "a whole number" : "a number";
  }
  if (value < low || value > high) {
    return high > 1e8 ? `at least ${low}` : `from ${low} to ${high}`;
  }
  return null;
}

/** How many answers a request asks for. */
export function numAnswers({ sampling }: Conversation): number {
  return faultOfNumber("n", sampling.n) === null ? Number(sampling.n || 1) : 1;
}

/** What a format and tools are recognised by later. */
export function askedOf({ format, tools }: Conversation): { format: string; tools: string } {
  return { format: format.kind === "none" ? "" : `${format.kind}:${format[format.kind]}`, tools };
}

/** `conversation` after the turns of `path`, as the body of POST /v1/chat/completions. */
export function chatBody(conversation: Conversation, path: Turn[]): Record<string, unknown> {
  const { format } = conversation;
  const tools = readTools(conversation.tools).value as unknown[] | null;
  return {
    ...(conversation.model ? { model: conversation.model } : {}),
    messages: messagesOf(conversation, path),
    ...samplingOf(conversation),
    ...formatOf(format),
    ...(tools?.length ? { tools } : {}),
    stream: true,
    stream_options: { include_usage: true },
    explain_cache: true,
    explain_tokens: true,
    return_token_ids: true,
    logprobs: true,
    top_logprobs: 5,
  };
}

export function samplingOf({ sampling }: Conversation): Record<string, number> {
  const given = SAMPLING.filter((name) => sampling[name] !== "" && faultOfNumber(name, sampling[name]) === null);
  return Object.fromEntries(given.map((name) => [name, Number(sampling[name])]));
}

export function formatOf(format: Conversation["format"]): Record<string, unknown> {
  switch (format.kind) {
    case "none":
      return {};
    case "regex":
      return { structured_outputs: { regex: format.regex } };
    case "grammar":
      return { structured_outputs: { grammar: format.grammar } };
    case "choice":
      return { structured_outputs: { choice: choicesOf(format.choice) } };
    case "json_schema": {
      const schema = readJson(format.json_schema).value;
      return { response_format: { type: "json_schema", json_schema: { name: "answer", schema } } };
    }
  }
}

function messagesOf(conversation: Conversation, path: Turn[]): Message[] {
  const messages: Message[] = [];
  if (conversation.system.trim()) {
    messages.push({ role: "system", content: conversation.system });
  }
  path.forEach((turn, place) => {
    if (turn.role === "user") {
      messages.push({ role: "user", content: textWithDocuments(turn.text, turn.documents) });
    } else if (turn.role === "tools") {
      for (const { id, content } of turn.results) {
        messages.push({ role: "tool", tool_call_id: id, content });
      }
    } else {
      const after = path[place + 1]?.parent ?? keyAfter(turn);
      const answer = turn.answers[Number(after.split(":")[1])];
      if (answer) {
        messages.push(messageOf(answer));
      }
    }
  });
  return messages;
}

function messageOf({ content, reasoning, calls }: { content: string; reasoning: string; calls: unknown[] }): Message {
  const message: Message = { role: "assistant", content: content || (calls.length ? null : "") };
  if (reasoning) {
    message.reasoning_content = reasoning;
  }
  if (calls.length) {
    message.tool_calls = (calls as { id: string; name: string; arguments: string }[]).map((call) => ({
      id: call.id,
      type: "function",
      function: { name: call.name, arguments: call.arguments },
    }));
  }
  return message;
}
