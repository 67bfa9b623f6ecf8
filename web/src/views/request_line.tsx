// One request: a line with its bars, and what is known of it when it is opened.

import type { RequestRow } from "../contract.ts";
import { count, duration } from "../format.ts";
import type { Span, TimeAxis } from "./time_axis.ts";

export const PHASES = [
  { name: "compile", field: "compile_ms", words: "its constraint" },
  { name: "queue", field: "queue_ms", words: "waiting for a place" },
  { name: "prefill", field: "prefill_ms", words: "its prompt" },
  { name: "decode", field: "decode_ms", words: "its answer" },
] as const;

const ROUTES: Record<string, string> = {
  "/v1/chat/completions": "chat",
  "/v1/completions": "completion",
  "/v1/responses": "response",
  "/v1/messages": "message",
  "/v1/embeddings": "embedding",
};

interface RequestLineProps {
  row: RequestRow;
  axis: TimeAxis;
  /** Places on the axis, from 0 to 1, at which there is a line. */
  marks: number[];
  /** Bars begin where their request began, else all at the left. */
  isShared: boolean;
}

/** When a request ran, in seconds of the server's clock, or from its start on. */
export function spanOf(row: RequestRow, isShared: boolean): Span {
  const seconds = row.seconds ?? row.time - row.began_at;
  return isShared ? { start: row.began_at, end: row.began_at + seconds } : { start: 0, end: seconds };
}

export function RequestLine({ row, axis, marks, isShared }: RequestLineProps) {
  const total = (row.seconds ?? row.time - row.began_at) * 1000;
  const hasFailed = row.error !== null || (row.status ?? 200) >= 400;
  const state = row.is_running ? "running" : hasFailed ? "failed" : "done";
  return (
    <details class={`request-line ${state}`}>
      <summary>
        <span class="request-name">
          <span class="request-state" aria-hidden="true" />
          <span class="request-route">{ROUTES[row.route] ?? row.route}</span>
          {row.constraint && <span class="request-tag">{row.constraint}</span>}
          <span class="request-status">
            {row.is_running ? "running" : hasFailed ? (row.status ?? "error") : (row.finish_reason ?? "")}
          </span>
        </span>
        <Bars row={row} axis={axis} marks={marks} span={spanOf(row, isShared)} />
        <span class="request-figures">
          <span>{duration(total)}</span>
          <span>
            {row.prompt_tokens !== null && row.prompt_tokens > 0
              ? `${count(row.cached_tokens ?? 0)} of ${count(row.prompt_tokens)} cached`
              : "–"}
          </span>
        </span>
      </summary>
      <Details row={row} />
    </details>
  );
}

function Bars({ row, axis, marks, span }: Omit<RequestLineProps, "isShared"> & { span: Span }) {
  const total = (span.end - span.start) * 1000;
  const left = axis.placeOf(span.start);
  const width = axis.placeOf(span.end) - left;
  return (
    <span class="request-bars" aria-hidden="true">
      {marks.map((place) => (
        <span key={place} class="bar-mark" style={{ left: `${100 * place}%` }} />
      ))}
      <span class="bar-whole" style={{ left: `${100 * left}%`, width: `${100 * width}%` }}>
        {PHASES.map(({ name, field }) => {
          const milliseconds = row[field] ?? 0;
          return milliseconds > 0 ? (
            <span
              key={name}
              class={`bar-phase ${name}`}
              title={`${name}: ${duration(milliseconds)}`}
              style={{ width: `${(100 * milliseconds) / Math.max(total, 0.001)}%` }}
            />
          ) : null;
        })}
      </span>
    </span>
  );
}

function Details({ row }: { row: RequestRow }) {
  const facts: [string, string | null][] = [
    ["Request", row.request_id],
    ["Route", row.route],
    ["Model", row.model],
    ["Ended", row.ended_seconds_ago === null ? null : `${duration(row.ended_seconds_ago * 1000)} ago`],
    ...PHASES.map(({ name, field }): [string, string | null] => [
      name.charAt(0).toUpperCase() + name.slice(1),
      row[field] ? duration(row[field]) : null,
    ]),
    ["Prompt", tokens(row.prompt_tokens)],
    ["Cached", tokens(row.cached_tokens)],
    ["Loaded from a tier", row.loaded_tokens ? tokens(row.loaded_tokens) : null],
    ["Answer", tokens(row.completion_tokens)],
    ["Jumped", row.jumped_tokens ? tokens(row.jumped_tokens) : null],
    ["Proposed by drafts", row.drafted_tokens ? tokens(row.drafted_tokens) : null],
    ["Preempted", row.preemptions ? `${count(row.preemptions)} times` : null],
    ["Constraint", row.constraint],
    ["Finish", row.finish_reason],
    ["Status", row.status === null ? null : String(row.status)],
  ];
  return (
    <div class="request-details">
      {row.error && <p class="request-error">{row.error}</p>}
      {row.cache && <p>{row.cache.sentence}</p>}
      <dl>
        {facts
          .filter(([, value]) => value !== null && value !== "")
          .map(([name, value]) => (
            <div key={name}>
              <dt>{name}</dt>
              <dd>{value}</dd>
            </div>
          ))}
      </dl>
    </div>
  );
}

function tokens(value: number | null): string | null {
  return value === null ? null : `${count(value)} ${value === 1 ? "token" : "tokens"}`;
}
