// The last minutes of what the server did, one sample for each answer of `GET /page/now`.
//
// Lives as long as the page, so the series are there when the view is shown again; what was not asked for meanwhile is a
// gap. Series are arrays of equal length, oldest first, as charts take them.

import type { Now } from "../../contract.ts";

export const KEPT_SECONDS = 300;
const GAP_SECONDS = 5;

export const SERIES = [
  "queue",
  "running",
  "stepP50",
  "stepP99",
  "outputRate",
  "promptRate",
  "ttftP50",
  "ttftP95",
  "gapP50",
  "gapP95",
  "hitRate",
] as const;

export type SeriesName = (typeof SERIES)[number];
export type Samples = (number | null)[];

export class NowHistory {
  /** Seconds since the epoch. */
  times: number[] = [];
  private readonly series = new Map<SeriesName, Samples>(SERIES.map((name) => [name, []]));

  /** `at`: seconds since the epoch. */
  add(now: Now, at: number): void {
    const last = this.times.at(-1);
    if (last !== undefined && at - last > GAP_SECONDS) {
      this.append(last + 1, {});
    }
    this.append(at, valuesOf(now));
    const first = this.times.findIndex((time) => time > at - KEPT_SECONDS);
    if (first > 0) {
      this.times = this.times.slice(first);
      for (const [name, values] of this.series) {
        this.series.set(name, values.slice(first));
      }
    }
  }

  get(name: SeriesName): Samples {
    return this.series.get(name) ?? [];
  }

  private append(at: number, values: Partial<Record<SeriesName, number | null>>): void {
    this.times.push(at);
    for (const name of SERIES) {
      this.get(name).push(values[name] ?? null);
    }
  }
}

function valuesOf(now: Now): Record<SeriesName, number | null> {
  return {
    queue: now.queue,
    running: now.running,
    stepP50: now.step_ms.p50,
    stepP99: now.step_ms.p99,
    outputRate: now.tokens_per_second.output,
    promptRate: now.tokens_per_second.prompt,
    ttftP50: now.ttft_ms.p50,
    ttftP95: now.ttft_ms.p95,
    gapP50: now.inter_token_ms.p50,
    gapP95: now.inter_token_ms.p95,
    hitRate: 100 * now.hit_rate,
  };
}
