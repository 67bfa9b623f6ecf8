// Where arrow keys lead in the icicle: up to the parent, down to the widest child, left and right to siblings.
//
// Every function gives a place, the same one where there is nothing in that direction.

import { childrenOf, type Layout } from "./layout.ts";

export type Direction = "parent" | "child" | "previous" | "next" | "first" | "last";

export function neighbour(layout: Layout, place: number, direction: Direction): number {
  if (direction === "parent") return Math.max(0, layout.parent[place]!);
  if (direction === "child") return widestChild(layout, place);
  if (place === 0) return 0;
  const all = childrenOf(layout, layout.parent[place]!);
  const at = all.indexOf(place);
  const to = { previous: Math.max(0, at - 1), next: Math.min(all.length - 1, at + 1), first: 0, last: all.length - 1 };
  return all[to[direction]]!;
}

function widestChild(layout: Layout, place: number): number {
  let best = place;
  let width = -1;
  for (let at = place + 1; at < layout.end[place]!; at = layout.end[at]!) {
    if (layout.width[at]! > width) {
      best = at;
      width = layout.width[at]!;
    }
  }
  return best;
}
