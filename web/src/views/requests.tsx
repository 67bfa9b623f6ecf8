// The view Requests: the last ones as a waterfall, live.

import { useCallback, useState } from "preact/hooks";
import type { RequestRow } from "../contract.ts";
import { count, exactDuration, percent } from "../format.ts";
import { Fault } from "../parts/fault.tsx";
import { usePolling } from "../polling.ts";
import type { ViewProps } from "../view.ts";
import { PHASES, RequestLine, spanOf } from "./request_line.tsx";
import { TimeAxis } from "./time_axis.ts";
import "./requests.css";

const EVERY_MS = 1000;
const SIZES = [10, 25, 50, 200];

export function RequestsView({ api }: ViewProps) {
  const [isLive, setIsLive] = useState(true);
  const [size, setSize] = useState(25);
  const [isShared, setIsShared] = useState(true);
  const ask = useCallback((signal: AbortSignal) => api.requests(signal), [api]);
  const { value, error } = usePolling(ask, EVERY_MS, isLive);
  const rows = (value ?? []).slice(0, size);
  const axis = axisOf(rows, isShared);
  const labels = labelsOf(axis, isShared ? (rows[0]?.time ?? null) : null);
  const marks = labels.map(({ place }) => place);
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
            {axis.isShortened && <li class="hint">Idle time is shortened.</li>}
          </ul>
          <AxisMarks labels={labels} />
          <div class="request-lines">
            {rows.map((row) => (
              <RequestLine key={row.request_id} row={row} axis={axis} marks={marks} isShared={isShared} />
            ))}
          </div>
        </>
      )}
    </div>
  );
}

function axisOf(rows: RequestRow[], isShared: boolean): TimeAxis {
  const spans = rows.map((row) => spanOf(row, isShared));
  return new TimeAxis(isShared ? spans : [{ start: 0, end: Math.max(0.001, ...spans.map(({ end }) => end)) }]);
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

interface Label {
  place: number;
  text: string;
}

/** What is written above the bars: how long ago, or how long after the start. A time that says the same is left out. */
function labelsOf(axis: TimeAxis, now: number | null): Label[] {
  const labels = axis.marks.map(({ place, time }) => ({ place, text: inWords(time, now) }));
  const end = labels.at(-1);
  return labels.filter(
    (label, number) => label === end || (label.text !== labels[number - 1]?.text && label.text !== end?.text),
  );
}

function inWords(time: number, now: number | null): string {
  if (now === null) return exactDuration(1000 * time);
  return now - time < 0.001 ? "now" : `${exactDuration(1000 * (now - time))} ago`;
}

function AxisMarks({ labels }: { labels: Label[] }) {
  return (
    <div class="request-axis" aria-hidden="true">
      <span />
      <div class="axis-marks">
        {labels.map(({ place, text }) => (
          <span
            key={place}
            class={place === 1 ? "axis-end" : place > 0 && Math.abs(place - 0.5) > 0.1 ? "axis-quarter" : undefined}
            style={place === 1 ? undefined : { left: `${100 * place}%` }}
          >
            {text}
          </span>
        ))}
      </div>
      <span />
    </div>
  );
}
