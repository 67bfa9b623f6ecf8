// What was found out about a constraint: what enforces each keyword, what is forced, the shortest output, and the cost.

import type { ConstraintAnswer } from "../../contract.ts";
import { count, counted, duration } from "../../format.ts";

const MAX_SHOWN = 400; // characters

export function Findings({ answer }: { answer: ConstraintAnswer }) {
  return (
    <section class="card" aria-labelledby="findings">
      <h2 id="findings">What it means</h2>
      <dl class="facts">
        <dt>Forced next</dt>
        <dd>{answer.forced_text ? <Quoted text={answer.forced_text} /> : "nothing: there is a choice"}</dd>
        <dt>Shortest output</dt>
        <dd>
          <Quoted text={answer.shortest} /> <span class="hint">{counted(answer.shortest_tokens, "token")}</span>
        </dd>
        <dt>States</dt>
        <dd>{answer.num_states === null ? "no end of them: it is recursive" : count(answer.num_states)}</dd>
        <dt>To compile</dt>
        <dd>{duration(answer.compile_ms)}</dd>
        <dt>First mask</dt>
        <dd>{duration(answer.first_mask_us / 1000)}</dd>
        <dt>A new mask</dt>
        <dd>{duration(answer.mask_us / 1000)}</dd>
      </dl>
    </section>
  );
}

function Quoted({ text }: { text: string }) {
  const shown = text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN)} …` : text;
  return <code class="quoted">{shown || "(empty)"}</code>;
}

export function Enforced({ enforced }: { enforced: ConstraintAnswer["enforced"] }) {
  if (enforced.length === 0) return null;
  return (
    <section class="card" aria-labelledby="enforced">
      <h2 id="enforced">What enforces each keyword</h2>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it scrolls, so the keyboard has to reach it */}
      <section class="table-scroll" aria-label="Keywords" tabIndex={0}>
        <table>
          <thead>
            <tr>
              <th scope="col">Place</th>
              <th scope="col">Keyword</th>
              <th scope="col">Enforced by</th>
            </tr>
          </thead>
          <tbody>
            {enforced.map(({ pointer, keyword, how }) => (
              <tr key={`${pointer} ${keyword}`}>
                <td class="mono">{pointer || "/"}</td>
                <td class="mono">{keyword}</td>
                <td class="how">{how}</td>
              </tr>
            ))}
          </tbody>
        </table>
      </section>
    </section>
  );
}
