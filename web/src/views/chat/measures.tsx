// What became of a request: what was cached, how the output came about, how fast.

import { count, counted, duration } from "../../format.ts";
import type { Reply } from "./conversation.ts";

/**
 * One line: what was cached, how the output came about, how fast. Then the cache's own sentence, unless all that it has
 * to say is that the last message is new.
 */
export function Measures({ reply }: { reply: Reply }) {
  const { usage, counts, firstTokenMs, totalMs } = reply;
  if (!usage) {
    return null;
  }
  const cached = usage.prompt_tokens_details?.cached_tokens ?? 0;
  const loaded = usage.prompt_tokens_details?.loaded_tokens ?? 0;
  const { forced, foreseen, sampled } = counts ?? { forced: 0, foreseen: 0, sampled: usage.completion_tokens };
  const parts = [
    reply.answers.length > 1 ? `${count(reply.answers.length)} answers together:` : null,
    forced > 0 ? `${count(forced)} forced` : null,
    foreseen > 0 ? `${count(foreseen)} foreseen` : null,
    `${count(sampled)} sampled`,
    firstTokenMs === null ? null : `first token in ${duration(firstTokenMs)}`,
    totalMs ? `${count(Math.round((1000 * usage.completion_tokens) / totalMs))} tokens/s` : null,
  ];
  const why = usage.prompt_tokens_details?.cache_explanation;
  const isNextTurn = why?.reason === "never_seen" && 2 * cached >= usage.prompt_tokens;
  return (
    <div class="measures">
      <p>
        <span class="cached-share">
          <progress
            value={cached}
            max={Math.max(1, usage.prompt_tokens)}
            aria-label="Share of the prompt that was cached"
          />
          {count(cached)} of {counted(usage.prompt_tokens, "prompt token")} cached
          {loaded > 0 && `, ${count(loaded)} of them read from a lower tier`}
        </span>
        {parts
          .filter((part) => part !== null)
          .map((part) => (
            <span key={part}>{part}</span>
          ))}
      </p>
      {why && !isNextTurn && <p class="cache-sentence">{why.sentence}</p>}
    </div>
  );
}
