// From the chunks of a streamed chat to a reply.

import type { AnswerToken, How, Reply, Usage } from "./conversation.ts";

interface LogprobEntry {
  token: string;
  logprob: number;
  top_logprobs?: { token: string; logprob: number }[];
}

interface TokenDetail {
  id: number;
  text: string;
  how: How;
  allowed: number | null;
}

interface ChunkChoice {
  index: number;
  delta?: {
    content?: string | null;
    reasoning_content?: string | null;
    tool_calls?: { index: number; id?: string; function?: { name?: string; arguments?: string } }[];
  };
  text?: string;
  logprobs?: { content?: LogprobEntry[] } | null;
  token_details?: TokenDetail[];
  finish_reason?: string | null;
}

export interface Chunk {
  choices?: ChunkChoice[];
  prompt_pieces?: string[];
  usage?: Usage | null;
}

/** Adds a chunk to `reply`; true if it brought something of an answer. */
export function addChunk(reply: Reply, chunk: Chunk): boolean {
  let hasBrought = false;
  if (chunk.prompt_pieces) {
    reply.promptPieces = chunk.prompt_pieces;
  }
  if (chunk.usage) {
    reply.usage = chunk.usage;
  }
  for (const choice of chunk.choices ?? []) {
    hasBrought = addChoice(reply, choice) || hasBrought;
  }
  return hasBrought;
}

/** How the tokens of all answers came about. */
export function countsOf(reply: Reply): Record<How, number> {
  const counts = { sampled: 0, forced: 0, foreseen: 0 };
  for (const { tokens } of reply.answers) {
    for (const { how } of tokens) {
      counts[how] += 1;
    }
  }
  return counts;
}

function addChoice(reply: Reply, choice: ChunkChoice): boolean {
  const answer = reply.answers[choice.index];
  if (!answer) {
    return false;
  }
  const { delta } = choice;
  const tokens = tokensOf(choice);
  answer.content += delta?.content ?? choice.text ?? "";
  answer.reasoning += delta?.reasoning_content ?? "";
  answer.tokens.push(...tokens);
  answer.finish = choice.finish_reason ?? answer.finish;
  for (const { index, id, function: called } of delta?.tool_calls ?? []) {
    const call = answer.calls[index] ?? { id: "", name: "", arguments: "" };
    answer.calls[index] = call;
    call.id = id ?? call.id;
    call.name += called?.name ?? "";
    call.arguments += called?.arguments ?? "";
  }
  return tokens.length > 0 || Boolean(delta?.content || delta?.reasoning_content || delta?.tool_calls || choice.text);
}

/** Details and log-probabilities come in the same order; the end token has a detail only. */
function tokensOf({ token_details, logprobs }: ChunkChoice): AnswerToken[] {
  const scores = logprobs?.content ?? [];
  const details: Partial<TokenDetail>[] = token_details ?? scores.map(() => ({}));
  return details.map((detail, place) => {
    const score = scores[place];
    return {
      text: detail.text ?? score?.token ?? "",
      how: detail.how ?? "sampled",
      allowed: detail.allowed ?? null,
      logprob: score?.logprob ?? null,
      top: (score?.top_logprobs ?? []).map(({ token, logprob }) => ({ text: token, logprob })),
    };
  });
}
