// The icicle: where every node stands, in blocks from the left and in rows from the top.
//
// Place 0 is the whole cache (not a node); place i + 1 … are the nodes in preorder, so the subtree of a place is the
// range up to `end[place]`. A node is as wide as all blocks at and below it; its children lie under it from the left, and
// what is left free under it are its own blocks. Siblings are ordered by the smallest id in their subtree, which a split
// does not change, so what is drawn stays where it was. Linear in the nodes but for one sort; made once per snapshot.

import type { Tree } from "../../contract.ts";

export interface Layout {
  tree: Tree;
  /** Places, the whole cache included. */
  size: number;
  /** Index in the columns of the snapshot; -1 for place 0. */
  node: Int32Array;
  begin: Int32Array;
  width: Int32Array;
  depth: Int32Array;
  end: Int32Array;
  /** Place of the parent; -1 for place 0. */
  parent: Int32Array;
  numRows: number;
  placeOf: ReadonlyMap<number, number>;
}

export function layOut(tree: Tree): Layout {
  const { id, num_blocks: numBlocks } = tree.columns;
  const total = tree.header.num_nodes;
  const parentOf = parents(tree);
  const width = Int32Array.from(numBlocks);
  const smallest = Int32Array.from(id);
  for (let i = total - 1; i >= 0; i -= 1) {
    const above = parentOf[i]!;
    if (above < 0) continue;
    width[above]! += width[i]!;
    if (smallest[i]! < smallest[above]!) smallest[above] = smallest[i]!;
  }
  const next = siblings(parentOf, smallest, total);
  return walk(tree, width, next.first, next.following);
}

/** Index of each node's parent, -1 for roots. */
function parents(tree: Tree): Int32Array {
  const { id, parent } = tree.columns;
  const indexOf = new Map<number, number>();
  const found = new Int32Array(tree.header.num_nodes);
  for (let i = 0; i < tree.header.num_nodes; i += 1) {
    found[i] = parent[i]! < 0 ? -1 : (indexOf.get(parent[i]!) ?? -1);
    indexOf.set(id[i]!, i);
  }
  return found;
}

/** Children as linked lists: `first[parent + 1]` is the first child, `following[i]` the next sibling; -1 ends. */
function siblings(parentOf: Int32Array, smallest: Int32Array, total: number) {
  const order = new Int32Array(total);
  for (let i = 0; i < total; i += 1) order[i] = i;
  order.sort((a, b) => smallest[b]! - smallest[a]!);
  const first = new Int32Array(total + 1).fill(-1);
  const following = new Int32Array(total).fill(-1);
  for (const i of order) {
    const list = parentOf[i]! + 1;
    following[i] = first[list]!;
    first[list] = i;
  }
  return { first, following };
}

function walk(tree: Tree, width: Int32Array, first: Int32Array, following: Int32Array): Layout {
  const size = tree.header.num_nodes + 1;
  const made = {
    node: new Int32Array(size),
    begin: new Int32Array(size),
    width: new Int32Array(size),
    depth: new Int32Array(size),
    end: new Int32Array(size),
    parent: new Int32Array(size),
  };
  const placeOf = new Map<number, number>();
  made.node[0] = -1;
  made.parent[0] = -1;
  let total = 0;
  for (let i = first[0]!; i >= 0; i = following[i]!) total += width[i]!;
  made.width[0] = total;
  let place = 0; // the last one given
  let above = 0;
  let at = first[0]!;
  let begin = 0;
  let numRows = 1;
  while (at >= 0 || above > 0) {
    if (at < 0) {
      // the children of `above` are done: go on with its next sibling
      made.end[above] = place + 1;
      const done = made.node[above]!;
      begin = made.begin[above]! + made.width[above]!;
      at = following[done]!;
      above = made.parent[above]!;
      continue;
    }
    place += 1;
    made.node[place] = at;
    made.begin[place] = begin;
    made.width[place] = width[at]!;
    made.parent[place] = above;
    made.depth[place] = made.depth[above]! + 1;
    numRows = Math.max(numRows, made.depth[place]! + 1);
    placeOf.set(tree.columns.id[at]!, place);
    above = place;
    at = first[at + 1]!;
  }
  made.end[0] = place + 1;
  return { tree, size: place + 1, ...made, numRows, placeOf };
}

/** The places from the whole cache down to this one. */
export function pathTo(layout: Layout, place: number): number[] {
  const path: number[] = [];
  for (let at = place; at >= 0; at = layout.parent[at]!) path.push(at);
  return path.reverse();
}

/** The children of a place, from left to right. */
export function childrenOf(layout: Layout, place: number): number[] {
  const found: number[] = [];
  for (let at = place + 1; at < layout.end[place]!; at = layout.end[at]!) found.push(at);
  return found;
}

/** The id of the node at a place; -1 for the whole cache. */
export function idAt(layout: Layout, place: number): number {
  const node = layout.node[place]!;
  return node < 0 ? -1 : layout.tree.columns.id[node]!;
}

/** The place at a column (blocks) and row, or -1. */
export function placeAt(layout: Layout, column: number, row: number): number {
  if (column < 0 || column >= layout.width[0]! || row < 0) return -1;
  let at = 0;
  while (layout.depth[at]! < row) {
    let child = at + 1;
    const end = layout.end[at]!;
    while (child < end && layout.begin[child]! + layout.width[child]! <= column) child = layout.end[child]!;
    if (child >= end || layout.begin[child]! > column) return -1;
    at = child;
  }
  return at;
}
