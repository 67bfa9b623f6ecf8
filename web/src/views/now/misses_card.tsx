// Why prompts were not found whole: the latest, newest first.

import type { Now } from "../../contract.ts";
import { duration } from "../../format.ts";

const REASONS: Record<string, string> = {
  never_seen: "never seen",
  evicted: "evicted",
  block_rounding: "block rounding",
  no_state: "no state of recurrent layers",
  no_window: "window let go",
  dropped: "keys dropped",
  other_namespace: "other namespace",
  disabled: "no prefix cache",
  complete: "complete",
};

export function MissesCard({ misses }: { misses: Now["misses"] }) {
  return (
    <section class="card misses" aria-labelledby="misses">
      <h2 id="misses">Last misses</h2>
      {misses.length === 0 && <p class="hint">No request has missed yet.</p>}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard has to reach it */}
      <ol tabIndex={0} aria-labelledby="misses">
        {misses.map((miss) => (
          <li key={miss.request_id}>
            <p>{miss.sentence}</p>
            <p class="hint">
              <span class="reason">{REASONS[miss.reason] ?? miss.reason}</span> {duration(1000 * miss.seconds_ago)} ago
              · <span class="mono">{miss.request_id}</span>
            </p>
          </li>
        ))}
      </ol>
    </section>
  );
}
