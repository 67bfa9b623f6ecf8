// What the colour of a node says: its age, its hits or its namespace; each in classes with a word for the legend.
//
// Classes are computed once per snapshot into bytes by place (`classify`); drawing only looks them up. Scales run from
// dark to light on light paper and from light to dark on dark paper, so that they can be read without hues.

import { duration } from "../../format.ts";
import type { Layout } from "./layout.ts";

export type ColourBy = "age" | "hits" | "namespace";

export interface Swatch {
  colour: string;
  /** Black or white, whichever can be read on it. */
  ink: string;
  label: string;
}

export const AGE_LIMITS = [2, 10, 30, 120, 600, 3600]; // seconds; older: the last class
export const HIT_LIMITS = [1, 2, 4, 8, 16, 64]; // hits below which a class ends
export const MAX_NAMESPACES = 8;

/** The class of nodes that are too narrow to draw one by one. */
export const MERGED = 9;
/** The class of the bar for the whole cache. */
export const WHOLE = 10;
const NUM_CLASSES = 11;

const LIGHT = {
  age: ["#0d5844", "#20795d", "#459a78", "#78b896", "#a9d0b1", "#cfe0c6", "#e4e6d8"],
  hits: ["#e9e5dc", "#f4dcbc", "#f0c189", "#e59f56", "#cb7735", "#a05328", "#6d331e"],
  namespace: ["#3f8468", "#5f82c0", "#d1943f", "#ac5d87", "#74709f", "#4199a6", "#b9683f", "#84903d", "#a3a9a2"],
  merged: "#b9c2bb",
  whole: "#e7e9e2",
};

const DARK = {
  age: ["#a9f5d3", "#70dcb1", "#46b78f", "#329073", "#286b59", "#234e45", "#203a36"],
  hits: ["#2c2f2e", "#463527", "#674829", "#93622d", "#c28436", "#e7ad55", "#ffde98"],
  namespace: ["#5fb895", "#86a6e2", "#e3b062", "#d286ae", "#9f9bd0", "#63bcc9", "#dc8e66", "#aab95f", "#7d857f"],
  merged: "#44504b",
  whole: "#27302d",
};

/** Swatches by class; `MERGED` and `WHOLE` included. */
export function swatches(by: ColourBy, namespaces: string[], isDark: boolean): Swatch[] {
  const theme = isDark ? DARK : LIGHT;
  const colours = theme[by];
  const found: Swatch[] = [];
  for (let i = 0; i < NUM_CLASSES; i += 1) found.push(swatch(colours[i] ?? theme.merged, ""));
  labels(by, namespaces).forEach((label, i) => {
    found[i] = swatch(colours[i] ?? theme.merged, label);
  });
  found[MERGED] = swatch(theme.merged, "several, each too narrow to draw");
  found[WHOLE] = swatch(theme.whole, "the whole cache");
  return found;
}

function labels(by: ColourBy, namespaces: string[]): string[] {
  if (by === "namespace") {
    const shown = namespaces.slice(0, MAX_NAMESPACES);
    return namespaces.length > MAX_NAMESPACES ? [...shown, `${namespaces.length - MAX_NAMESPACES} others`] : shown;
  }
  if (by === "age") {
    return [...AGE_LIMITS.map((limit) => `under ${duration(limit * 1000).replace(".0", "")}`), "older"];
  }
  const ends = [0, ...HIT_LIMITS];
  return ends.map((from, i) => {
    const to = ends[i + 1];
    if (to === undefined) return `${from} or more`;
    return to - from === 1 ? `${from}` : `${from}–${to - 1}`;
  });
}

/** Classes in the order of the legend; without those for several nodes and for the whole. */
export function legend(shown: Swatch[]): Swatch[] {
  return shown.slice(0, MERGED).filter((entry) => entry.label !== "");
}

function swatch(colour: string, label: string): Swatch {
  return { colour, ink: inkOn(colour), label };
}

function inkOn(colour: string): string {
  const channel = (at: number) => {
    const value = parseInt(colour.slice(at, at + 2), 16) / 255;
    return value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
  };
  return 0.2126 * channel(1) + 0.7152 * channel(3) + 0.0722 * channel(5) > 0.2 ? "#10201a" : "#ffffff";
}

/** Fills `classes` (one byte per place). `elapsed`: milliseconds since the snapshot was taken. */
export function classify(layout: Layout, by: ColourBy, elapsed: number, classes: Uint8Array): void {
  const { age_ms: ages, hits, namespace } = layout.tree.columns;
  classes[0] = WHOLE;
  for (let place = 1; place < layout.size; place += 1) {
    const node = layout.node[place]!;
    if (by === "namespace") classes[place] = Math.min(namespace[node]!, MAX_NAMESPACES);
    else if (by === "hits") classes[place] = classOf(HIT_LIMITS, hits[node]!);
    else classes[place] = classOf(AGE_LIMITS, (ages[node]! + elapsed) / 1000);
  }
}

function classOf(limits: number[], value: number): number {
  let found = 0;
  while (found < limits.length && value >= limits[found]!) found += 1;
  return found;
}
