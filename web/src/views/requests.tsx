// The view Requests: the last ones as a waterfall, live.

import { useCallback, useState } from "preact/hooks";
import type { RequestRow } from "../contract.ts";
import { count, duration, percent } from "../format.ts";
import { Fault } from "../parts/fault.tsx";
import { usePolling } from "../polling.ts";
import type { ViewProps } from "../view.ts";
import { PHASES, RequestLine } from "./request_line.tsx";
import "./requests.css";

const EVERY_MS = 1000;
const SIZES = [10, 25, 50, 200];

/** The span of time that all bars share, in seconds of the server's clock. */
export interface Axis {
  start: number;
  end: number;
  /** Bars begin where their request began, else all at the left. */
  isShared: boolean;
}

export function RequestsView({ api }: ViewProps) {
  const [isLive, setIsLive] = useState(true);
  const [size, setSize] = useState(25);
  const [isShared, setIsShared] = useState(true);
  const ask = useCallback((signal: AbortSignal) => api.requests(signal), [api]);
  const { value, error } = usePolling(ask, EVERY_MS, isLive);
  const rows = (value ?? []).slice(0, size);
  const axis = axisOf(rows, isShared);
  return (
    <div class="requests">
      <div class="requests-head">
        <h1>Requests</h1>
        <div class="requests-controls">
          <label>
            Last{" "}
            <select value={size} onChange={(event) => setSize(Number(event.currentTarget.value))}>
              {SIZES.map((each) => (
                <option key={each} value={each}>
                  {each}
                </option>
              ))}
            </select>
          </label>
          <label>
            Bars{" "}
            <select
              value={isShared ? "shared" : "own"}
              onChange={(event) => setIsShared(event.currentTarget.value === "shared")}
            >
              <option value="shared">on one time axis</option>
              <option value="own">from each start</option>
            </select>
          </label>
          <button type="button" aria-pressed={!isLive} onClick={() => setIsLive(!isLive)}>
            {isLive ? "Pause" : "Paused"}
          </button>
        </div>
      </div>
      {error && <Fault error={error} />}
      {value && rows.length === 0 && (
        <p class="empty">No request has come yet. Send a message in Chat, or call the API; it is shown here at once.</p>
      )}
      {rows.length > 0 && (
        <>
          <Summary rows={rows} />
          <ul class="request-phases" aria-label="Colours of the bars">
            {PHASES.map(({ name, words }) => (
              <li key={name}>
                <span class={`swatch-phase ${name}`} aria-hidden="true" /> {name}
                <span class="hint"> {words}</span>
              </li>
            ))}
          </ul>
          <AxisLabels axis={axis} />
          <div class="request-list">
            {rows.map((row) => (
              <RequestLine key={row.request_id} row={row} axis={axis} />
            ))}
          </div>
        </>
      )}
    </div>
  );
}

function endOf(row: RequestRow): number {
  return row.began_at + (row.seconds ?? row.time - row.began_at);
}

function axisOf(rows: RequestRow[], isShared: boolean): Axis {
  if (!isShared) {
    return { start: 0, end: Math.max(0.001, ...rows.map((row) => endOf(row) - row.began_at)), isShared };
  }
  const start = Math.min(...rows.map(({ began_at }) => began_at));
  const end = Math.max(start + 0.001, ...rows.map(endOf));
  return { start, end, isShared };
}

function Summary({ rows }: { rows: RequestRow[] }) {
  const sum = (pick: (row: RequestRow) => number | null) => rows.reduce((total, row) => total + (pick(row) ?? 0), 0);
  const prompt = sum((row) => row.prompt_tokens);
  const cached = sum((row) => row.cached_tokens);
  const failed = rows.filter((row) => row.error !== null || (row.status ?? 200) >= 400).length;
  const running = rows.filter((row) => row.is_running).length;
  const figures: [string, string][] = [
    ["requests", count(rows.length)],
    ["running", count(running)],
    ["of prompts cached", prompt ? percent(cached / prompt) : "–"],
    ["tokens written", count(sum((row) => row.completion_tokens))],
    ["with an error", count(failed)],
  ];
  return (
    <dl class="request-sums">
      {figures.map(([name, value]) => (
        <div key={name}>
          <dt>{name}</dt>
          <dd>{value}</dd>
        </div>
      ))}
    </dl>
  );
}

function AxisLabels({ axis }: { axis: Axis }) {
  const span = (axis.end - axis.start) * 1000;
  return (
    <div class="request-axis" aria-hidden="true">
      <span class="axis-name">{axis.isShared ? "oldest of these" : "start"}</span>
      <div class="axis-marks">
        {[0, 0.25, 0.5, 0.75, 1].map((share) => (
          <span key={share}>{share === 0 ? "0" : `+${duration(span * share)}`}</span>
        ))}
      </div>
      <span class="axis-rest" />
    </div>
  );
}
