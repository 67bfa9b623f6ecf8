// Which part of the icicle is seen: `left` and `span` in blocks, `top` in rows.
//
// One object whose numbers change, so that zooming allocates nothing. `anchorOf` and `restore` carry a view over from one
// layout to the next: the view is kept relative to the deepest node that spans it, or to the nearest of that node's
// ancestors that is still there.

import { idAt, type Layout, pathTo } from "./layout.ts";

export class Viewport {
  left = 0;
  span = 1;
  top = 0;

  /** The narrowest view, in blocks. */
  static readonly MIN_SPAN = 1;

  set(left: number, span: number, top: number): void {
    this.left = left;
    this.span = span;
    this.top = top;
  }

  /** Shows a place over the whole width, with up to two of its ancestors above it. */
  fit(layout: Layout, place: number, rows: number): void {
    this.set(layout.begin[place]!, layout.width[place]!, Math.max(0, layout.depth[place]! - 2));
    this.clamp(layout, rows);
  }

  /** Factor below 1 zooms in; `at` (0 … 1) is the share of the width that stays where it is. */
  zoom(layout: Layout, factor: number, at: number, rows: number): void {
    const column = this.left + this.span * at;
    this.span = Math.min(layout.width[0]!, Math.max(Math.min(Viewport.MIN_SPAN, layout.width[0]!), this.span * factor));
    this.left = column - this.span * at;
    this.clamp(layout, rows);
  }

  /** By shares of the width and by rows. */
  pan(layout: Layout, shares: number, down: number, rows: number): void {
    this.left += shares * this.span;
    this.top += down;
    this.clamp(layout, rows);
  }

  /** Brings a place into view without a change of scale, if it is not. */
  reveal(layout: Layout, place: number, rows: number): void {
    const begin = layout.begin[place]!;
    const width = layout.width[place]!;
    if (width > this.span || width < this.span / 400) {
      const span = Math.min(layout.width[0]!, Math.max(width * 1.25, width + 1));
      this.left = begin - (span - width) / 2;
      this.span = span;
    } else if (begin < this.left) this.left = begin;
    else if (begin + width > this.left + this.span) this.left = begin + width - this.span;
    const row = layout.depth[place]!;
    if (row < this.top) this.top = row;
    else if (row > this.top + rows - 2) this.top = row - rows + 2;
    this.clamp(layout, rows);
  }

  clamp(layout: Layout, rows: number): void {
    const whole = layout.width[0]!;
    this.span = Math.min(Math.max(this.span, Math.min(Viewport.MIN_SPAN, whole)), Math.max(whole, 1));
    this.left = Math.max(0, Math.min(this.left, whole - this.span));
    this.top = Math.max(0, Math.min(this.top, layout.numRows - rows));
  }
}

export interface Anchor {
  /** Ids from the root to the deepest node that spans the view. */
  path: number[];
  left: number;
  span: number;
  row: number;
}

/** The view, relative to each node of the path that spans it. */
export function anchorOf(layout: Layout, view: Viewport): Anchor {
  let at = 0;
  for (;;) {
    let child = at + 1;
    const end = layout.end[at]!;
    while (child < end && layout.begin[child]! + layout.width[child]! <= view.left) child = layout.end[child]!;
    const spans =
      child < end &&
      layout.begin[child]! <= view.left &&
      layout.begin[child]! + layout.width[child]! >= view.left + view.span;
    if (!spans) break;
    at = child;
  }
  const width = Math.max(1, layout.width[at]!);
  return {
    path: pathTo(layout, at).map((place) => idAt(layout, place)),
    left: (view.left - layout.begin[at]!) / width,
    span: view.span / width,
    row: view.top - layout.depth[at]!,
  };
}

/** Sets the view to where the anchor is in another layout. */
export function restore(layout: Layout, view: Viewport, anchor: Anchor, rows: number): void {
  for (let i = anchor.path.length - 1; i >= 0; i -= 1) {
    const place = anchor.path[i]! < 0 ? 0 : layout.placeOf.get(anchor.path[i]!);
    if (place === undefined) continue;
    const isSame = i === anchor.path.length - 1;
    const width = layout.width[place]!;
    const row = anchor.row + (isSame ? layout.depth[place]! : anchor.path.length - 1);
    view.set(
      layout.begin[place]! + (isSame ? anchor.left * width : 0),
      isSame ? anchor.span * width : width,
      Math.max(0, row),
    );
    view.clamp(layout, rows);
    return;
  }
}
