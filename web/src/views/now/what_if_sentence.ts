// What other caches would bring, read for the operator in one sentence.

import type { Now } from "../../contract.ts";

export type WhatIf = NonNullable<Now["what_if"]>;

export const OPTIMUM = "optimum";
const WORTH = 0.03; // gains in the hit rate below this are not worth a change
const SLIGHT = 0.005;
const NONE = 0.0005;

/** The entry of the sizes that is the pool in use: the one nearest to it. */
export function sizeInUse(sizes: WhatIf["sizes"], numBlocks: number): number {
  let best = -1;
  sizes.forEach((size, i) => {
    const nearest = sizes[best];
    if (!nearest || Math.abs(size.num_blocks - numBlocks) < Math.abs(nearest.num_blocks - numBlocks)) best = i;
  });
  return best;
}

export function whatIfSentence({ sizes, policies }: WhatIf, numBlocks: number): string {
  const now = sizes[sizeInUse(sizes, numBlocks)];
  const current = policies[0];
  if (!now || !current) {
    return "No request has been recorded yet, so nothing can be said of other caches.";
  }
  const twice = sizes.find((size) => size.num_blocks >= 1.5 * now.num_blocks);
  const others = policies.slice(1).filter((policy) => policy.name !== OPTIMUM);
  const other = others.sort((a, b) => b.hit_rate - a.hit_rate)[0];
  const best = policies.find((policy) => policy.name === OPTIMUM);
  const byMemory = twice ? twice.hit_rate - now.hit_rate : 0;
  const byPolicy = other ? other.hit_rate - current.hit_rate : 0;
  const limit = best ? best.hit_rate - current.hit_rate : 0;
  if (byPolicy >= WORTH && other && byPolicy >= byMemory) {
    return `Another policy is the better step: --eviction-policy ${other.name} would bring ${points(byPolicy)} more than ${current.name}, ${memory(byMemory)}.`;
  }
  if (byMemory >= WORTH) {
    const policy = other && byPolicy >= SLIGHT ? `, and --eviction-policy ${other.name} ${points(byPolicy)}` : "";
    return `More memory would help: twice the blocks would bring ${points(byMemory)}${policy}.`;
  }
  if (byMemory < NONE && limit < NONE) {
    return "The cache is large enough for these requests: neither more memory nor another policy would bring more hits.";
  }
  if (limit < WORTH) {
    return `The cache is large enough for these requests: twice the memory would bring ${points(byMemory)}, and even the best policy ${points(limit)}.`;
  }
  return `The cache is large enough for these requests: twice the memory would bring ${points(byMemory)}, another policy ${points(Math.max(0, byPolicy))}.`;
}

function memory(gain: number): string {
  return gain >= SLIGHT ? `twice the memory ${points(gain)}` : "twice the memory nothing";
}

function points(share: number): string {
  const value = Math.max(0, 100 * share);
  if (value < 100 * NONE) return "nothing";
  return `${value.toFixed(1)} ${value.toFixed(1) === "1.0" ? "point" : "points"}`;
}
