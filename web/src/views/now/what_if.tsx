// What the hit rate would have been with other sizes of the pool and other policies: a curve, bars and a sentence.

import type { Now } from "../../contract.ts";
import { count, duration, percent } from "../../format.ts";
import { OPTIMUM, sizeInUse, type WhatIf, whatIfSentence } from "./what_if_sentence.ts";

export function WhatIfCard({ now }: { now: Now }) {
  const { what_if: whatIf, pool } = now;
  return (
    <section class="card what-if" aria-labelledby="what-if">
      <h2 id="what-if">What if?</h2>
      {whatIf && whatIf.sizes.length > 0 ? (
        <>
          <p>{withOptions(whatIfSentence(whatIf, pool.num_blocks))}</p>
          <Curve sizes={whatIf.sizes} inUse={sizeInUse(whatIf.sizes, pool.num_blocks)} />
          <Policies policies={whatIf.policies} />
          <p class="hint">
            The last requests, played again one by one from an empty cache, {duration(1000 * whatIf.seconds_ago)} ago.
          </p>
        </>
      ) : (
        <p class="hint">
          Other sizes and policies are tried on the requests of late; send a few, and look again in half a minute.
        </p>
      )}
    </section>
  );
}

/** A sentence in which options of the command line look like code and are not broken. */
function withOptions(sentence: string) {
  return sentence.split(/(--[a-z-]+ \w+)/).map((part, i) => (i % 2 ? <code key={part}>{part}</code> : part));
}

const WIDTH = 420;
const HEIGHT = 150;
const LEFT = 40;
const BOTTOM = 22;
const TOP = 18;

/** Hit rate over the size of the pool, which doubles from point to point. */
function Curve({ sizes, inUse }: { sizes: WhatIf["sizes"]; inUse: number }) {
  const logs = sizes.map(({ num_blocks }) => Math.log2(Math.max(1, num_blocks)));
  const first = Math.min(...logs);
  const range = Math.max(1e-9, Math.max(...logs) - first);
  const top = Math.max(0.1, ...sizes.map((size) => size.hit_rate));
  const x = (i: number) => LEFT + 24 + ((logs[i] ?? first) - first) * ((WIDTH - LEFT - 60) / range);
  const y = (rate: number) => TOP + (1 - rate / top) * (HEIGHT - TOP - BOTTOM);
  const line = sizes.map((size, i) => `${x(i).toFixed(1)},${y(size.hit_rate).toFixed(1)}`).join(" ");
  const said = sizes.map((size) => `${count(size.num_blocks)} blocks ${percent(size.hit_rate)}`).join(", ");
  return (
    <svg
      class="curve"
      viewBox={`0 0 ${WIDTH} ${HEIGHT}`}
      role="img"
      aria-label={`Hit rate by size of the pool: ${said}`}
    >
      <line class="curve-base" x1={LEFT} x2={WIDTH} y1={HEIGHT - BOTTOM} y2={HEIGHT - BOTTOM} />
      <text class="curve-axis" x={0} y={HEIGHT - BOTTOM + 4}>
        0 %
      </text>
      <polyline class="curve-line" points={line} />
      {sizes.map((size, i) => (
        <g key={size.num_blocks} class={i === inUse ? "curve-point in-use" : "curve-point"}>
          <circle cx={x(i)} cy={y(size.hit_rate)} r={i === inUse ? 6 : 4} />
          <text x={x(i)} y={y(size.hit_rate) - 11} text-anchor="middle">
            {percent(size.hit_rate)}
          </text>
          <text class="curve-axis" x={x(i)} y={HEIGHT - 4} text-anchor="middle">
            {count(size.num_blocks)}
            {i === inUse ? " (now)" : ""}
          </text>
        </g>
      ))}
    </svg>
  );
}

function Policies({ policies }: { policies: WhatIf["policies"] }) {
  const top = Math.max(0.01, ...policies.map((policy) => policy.hit_rate));
  return (
    <table class="shares">
      <caption>Eviction policies at the size in use</caption>
      <tbody>
        {policies.map((policy, i) => (
          <tr key={policy.name}>
            <th scope="row">
              {policy.name}
              {i === 0 && <span class="hint"> now</span>}
              {policy.name === OPTIMUM && <span class="hint"> with hindsight</span>}
            </th>
            <td class="share-bar">
              <span class={i === 0 ? "in-use" : ""} style={{ width: `${(100 * policy.hit_rate) / top}%` }} />
            </td>
            <td class="number">{percent(policy.hit_rate)}</td>
          </tr>
        ))}
      </tbody>
    </table>
  );
}
