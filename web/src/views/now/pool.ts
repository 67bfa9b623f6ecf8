// The pool in parts that add up to it, in the order in which they could be given to a request.

import type { Now } from "../../contract.ts";
import { count, counted } from "../../format.ts";

export interface PoolPart {
  name: "free" | "cached" | "pinned" | "leased" | "held";
  label: string;
  num_blocks: number;
  /** What this means for the next request. */
  meaning: string;
}

/** `cached` of the server counts all blocks of the tree; leased and pinned ones are part of them. */
export function poolParts({ num_blocks, free, leased, cached, pinned }: Now["pool"]): PoolPart[] {
  const kept = Math.min(pinned, leased);
  return [
    { name: "free", label: "free", num_blocks: free, meaning: "hold nothing" },
    {
      name: "cached",
      label: "cached",
      num_blocks: Math.max(0, cached - leased),
      meaning: "in the tree, evicted when needed",
    },
    { name: "pinned", label: "pinned", num_blocks: kept, meaning: "in the tree, kept for a time" },
    { name: "leased", label: "leased", num_blocks: leased - kept, meaning: "in the tree, used by requests" },
    {
      name: "held",
      label: "being written",
      num_blocks: Math.max(0, num_blocks - free - cached),
      meaning: "of running requests",
    },
  ];
}

/** The pool in one sentence. */
export function poolSentence(pool: Now["pool"]): string {
  const evictable = Math.max(0, pool.cached - pool.leased);
  const available = pool.free + evictable;
  const share = pool.num_blocks > 0 ? Math.round((100 * available) / pool.num_blocks) : 0;
  return `${count(available)} of ${counted(pool.num_blocks, "block")} (${share} %) can be given to new requests.`;
}
