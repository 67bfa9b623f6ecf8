// The view of this moment: load, speed, pool, and what another cache would bring.

import { useCallback } from "preact/hooks";
import type { Now } from "../contract.ts";
import { count, counted, duration, percent } from "../format.ts";
import { Fault } from "../parts/fault.tsx";
import { usePolling } from "../polling.ts";
import type { ViewProps } from "../view.ts";
import { Chart } from "./now/chart.tsx";
import { DraftsCard } from "./now/drafts_card.tsx";
import type { NowHistory, SeriesName } from "./now/history.ts";
import { MissesCard } from "./now/misses_card.tsx";
import { PoolCard } from "./now/pool_card.tsx";
import { WhatIfCard } from "./now/what_if.tsx";
import "../parts/data.css";
import "./now/now.css";

const EVERY = 1000; // milliseconds between two looks

export function NowView({ api, about, history }: ViewProps) {
  const ask = useCallback(
    async (signal: AbortSignal) => {
      const now = await api.now(signal);
      history.add(now, Date.now() / 1000);
      return now;
    },
    [api, history],
  );
  const { value: now, error } = usePolling(ask, EVERY);
  if (!now) {
    return error ? <Fault error={error} /> : <p class="empty">Figures are being read …</p>;
  }
  return (
    <div class="now-page">
      <div class="now-head">
        <h1>Now</h1>
        <p class="hint">
          {about.ranks > 1 && `${count(about.ranks)} ranks compute ${about.model}. `}
          {summary(now)}
        </p>
      </div>
      {error && <Fault error={error} />}
      <div class="tiles">
        {tilesOf(now).map((tile) => (
          <TileCard key={tile.title} tile={tile} history={history} />
        ))}
      </div>
      <div class="now-cards">
        <div class="now-stack">
          <PoolCard now={now} />
          <DraftsCard about={about} now={now} />
        </div>
        <WhatIfCard now={now} />
        <MissesCard misses={now.misses} />
      </div>
    </div>
  );
}

function summary(now: Now): string {
  const computed = `${counted(now.prompt_tokens, "prompt token")}, ${count(now.cached_tokens)} of them from the cache`;
  const jumped = now.jumped_tokens > 0 ? `, ${count(now.jumped_tokens)} of them without a step of their own` : "";
  return `Since the start: ${computed}; ${counted(now.generated_tokens, "token")} written${jumped}.`;
}

interface Tile {
  title: string;
  value: string;
  note: string;
  lines: [SeriesName, string][];
  write: (value: number) => string;
  atLeast: number;
}

function tilesOf(now: Now): Tile[] {
  const whole = (value: number | null) => (value === null ? "–" : count(Math.round(value)));
  return [
    {
      title: "Requests",
      value: `${count(now.running)} of ${counted(now.seats, "seat")}`,
      note: now.queue === 0 ? "none waits" : `${count(now.queue)} waiting`,
      lines: [
        ["running", "running"],
        ["queue", "waiting"],
      ],
      write: whole,
      atLeast: Math.min(now.seats, 4),
    },
    {
      title: "Tokens per second",
      value: whole(now.tokens_per_second.output),
      note: `and ${whole(now.tokens_per_second.prompt)} of prompts computed`,
      lines: [
        ["outputRate", "written"],
        ["promptRate", "prompts"],
      ],
      write: compact,
      atLeast: 10,
    },
    {
      title: "Time to first token",
      value: duration(now.ttft_ms.p50),
      note: tail(now.ttft_ms),
      lines: [
        ["ttftP50", "median"],
        ["ttftP95", "95 %"],
      ],
      write: duration,
      atLeast: 1,
    },
    {
      title: "Between tokens",
      value: duration(now.inter_token_ms.p50),
      note: tail(now.inter_token_ms),
      lines: [
        ["gapP50", "median"],
        ["gapP95", "95 %"],
      ],
      write: duration,
      atLeast: 1,
    },
    {
      title: "Step",
      value: duration(now.step_ms.p50),
      note: `99 % under ${duration(now.step_ms.p99)}`,
      lines: [
        ["stepP50", "median"],
        ["stepP99", "99 %"],
      ],
      write: duration,
      atLeast: 1,
    },
    {
      title: "Hit rate",
      value: now.prompt_tokens > 0 ? percent(now.hit_rate) : "–",
      note: "of prompt tokens came from the cache",
      lines: [["hitRate", "hit rate"]],
      write: (value) => `${Math.round(value)} %`,
      atLeast: 100 / 1.1,
    },
  ];
}

function tail({ p95, p99, n }: Now["ttft_ms"]): string {
  return n === 0 ? "no request of late" : `95 % under ${duration(p95)}, 99 % under ${duration(p99)}`;
}

/** 5100 → "5.1k". */
function compact(value: number): string {
  return value >= 1000 ? `${(value / 1000).toFixed(value >= 10_000 ? 0 : 1)}k` : `${Math.round(value)}`;
}

function TileCard({ tile, history }: { tile: Tile; history: NowHistory }) {
  const lines = tile.lines.map(([series, name], i) => ({
    name,
    colour: `--series-${i + 1}`,
    values: history.get(series),
  }));
  return (
    <section class="card tile" aria-label={tile.title}>
      <h2>{tile.title}</h2>
      <p class="tile-value">{tile.value}</p>
      <p class="hint">{tile.note}</p>
      <Chart label={tile.title} times={history.times} lines={lines} write={tile.write} atLeast={tile.atLeast} />
      <p class="tile-lines">
        {lines.map(({ name, colour }, i) => (
          <span key={name}>
            <span class={i === 0 ? "line-mark" : "line-mark dashed"} style={{ borderTopColor: `var(${colour})` }} />
            {name}
          </span>
        ))}
      </p>
    </section>
  );
}
