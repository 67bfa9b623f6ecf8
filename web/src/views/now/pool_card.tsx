// The pool of KV blocks as one bar, and the tiers below it.

import type { Now } from "../../contract.ts";
import { bytes, count, counted } from "../../format.ts";
import { poolParts, poolSentence } from "./pool.ts";

export function PoolCard({ now }: { now: Now }) {
  const parts = poolParts(now.pool);
  return (
    <section class="card pool" aria-labelledby="pool">
      <h2 id="pool">Pool</h2>
      <p>{poolSentence(now.pool)}</p>
      <div class="pool-bar" aria-hidden="true">
        {parts.map((part) => (
          <span key={part.name} class={`pool-${part.name}`} style={{ flexGrow: part.num_blocks }} />
        ))}
      </div>
      <ul class="pool-parts">
        {parts.map((part) => (
          <li key={part.name}>
            <span class={`swatch pool-${part.name}`} />
            <strong>{count(part.num_blocks)}</strong> {part.label} <span class="hint">{part.meaning}</span>
          </li>
        ))}
      </ul>
      {now.tiers.length > 0 && (
        <>
          <h3>Tiers below</h3>
          <ul class="tiers">
            {now.tiers.map((tier) => (
              <li key={tier.name}>
                {tier.name} <strong>{bytes(tier.bytes)}</strong>
              </li>
            ))}
          </ul>
        </>
      )}
      <p class="hint">
        {counted(now.evictions, "block")} evicted and {counted(now.preemptions, "preemption")} since the start.
      </p>
    </section>
  );
}
