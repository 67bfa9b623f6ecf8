// A small time series: lines over the last minutes, at most five, without a legend of its own.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { duration } from "../../format.ts";
import { colourOf, theme } from "../../theme.ts";
import { KEPT_SECONDS, type Samples } from "./history.ts";

const HEIGHT = 92;
const LEAST_SECONDS = 60;

export interface Line {
  name: string;
  /** A custom property, such as "--series-1". */
  colour: string;
  values: Samples;
}

interface Props {
  label: string;
  times: number[];
  lines: Line[];
  /** How a value on the axis is written. */
  write: (value: number) => string;
  /** The least that the axis reaches up to, so that small noise is not drawn large. */
  atLeast: number;
}

export function Chart({ label, times, lines, write, atLeast }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shown = useRef({ times, lines, atLeast });
  shown.current = { times, lines, atLeast };

  useEffect(() => {
    const home = box.current;
    if (!home) return;
    const make = () => {
      plot.current?.destroy();
      plot.current = new uPlot(
        options(home.clientWidth, lines, write, () => shown.current.atLeast),
        data(shown.current),
        home,
      );
    };
    make();
    const observer = new ResizeObserver(() => plot.current?.setSize({ width: home.clientWidth, height: HEIGHT }));
    observer.observe(home);
    const unwatch = theme.watch(make);
    return () => {
      unwatch();
      observer.disconnect();
      plot.current?.destroy();
    };
  }, []);
  useEffect(() => plot.current?.setData(data({ times, lines })));

  return <div ref={box} class="chart" role="img" aria-label={`${label}: ${inWords(lines, write)}`} />;
}

function data({ times, lines }: { times: number[]; lines: Line[] }): uPlot.AlignedData {
  return [times, ...lines.map((line) => line.values)];
}

function options(width: number, lines: Line[], write: (value: number) => string, atLeast: () => number): uPlot.Options {
  const muted = colourOf("--muted");
  const grid = { stroke: colourOf("--line"), width: 1 };
  const font = `11px ${getComputedStyle(document.body).fontFamily}`;
  return {
    width,
    height: HEIGHT,
    padding: [6, 14, 0, 0],
    legend: { show: false },
    cursor: { show: false },
    scales: {
      x: {
        time: true,
        range: (_, min, max) => [max - Math.min(KEPT_SECONDS, Math.max(LEAST_SECONDS, max - min)), max],
      },
      y: { range: (_, __, max) => [0, Math.max(atLeast(), (max ?? 0) * 1.1)] },
    },
    axes: [
      {
        stroke: muted,
        grid: { show: false },
        ticks: { ...grid, size: 4 },
        font,
        size: 20,
        gap: 1,
        splits: marks,
        values: (plot, splits) => splits.map((at) => ago((plot.scales.x?.max ?? 0) - at)),
      },
      {
        stroke: muted,
        grid,
        ticks: { show: false },
        font,
        size: 46,
        gap: 4,
        space: 28,
        values: (_, values) => values.map((value) => write(value)),
      },
    ],
    series: [
      {},
      ...lines.map(({ colour }, i) => ({
        stroke: colourOf(colour),
        width: 1.75,
        points: { show: false },
        dash: i === 0 ? [] : [5, 3],
      })),
    ],
  };
}

/** Marks at the end and at whole minutes before it, or at parts of one. */
function marks(_plot: uPlot, _axis: number, min: number, max: number): number[] {
  const step = max - min > 200 ? 60 : max - min > 100 ? 30 : 20;
  return [4, 3, 2, 1, 0].map((back) => max - step * back).filter((at) => at > min + 10);
}

/** 0 → "now", 90 → "90 s ago", 120 → "2 min ago". */
export function ago(seconds: number): string {
  return Math.round(seconds) === 0 ? "now" : `${duration(1000 * Math.round(seconds))} ago`;
}

function inWords(lines: Line[], write: (value: number) => string): string {
  const said = lines.map(({ name, values }) => {
    const known = values.filter((value): value is number => value !== null);
    const last = known.at(-1);
    if (last === undefined) return `${name}: no value yet`;
    return `${name} ${write(last)}, between ${write(Math.min(...known))} and ${write(Math.max(...known))}`;
  });
  return `${said.join("; ")}, over the last minutes`;
}
