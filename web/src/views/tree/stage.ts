// The icicle on the page: a canvas with its layout, its view and what is chosen; draws when something has changed.
//
// The one owner of the view: gestures and buttons call its methods, and it tells `StageEvents` what they led to. A new
// layout keeps the view (`anchorOf`). Between changes no frame is drawn.

import { colourOf } from "../../theme.ts";
import { type Layout, pathTo, placeAt } from "./layout.ts";
import { Markers } from "./markers.ts";
import { type Direction, neighbour } from "./neighbours.ts";
import { Painter, type Theme } from "./painter.ts";
import { type ColourBy, classify, type Swatch, swatches } from "./palette.ts";
import { anchorOf, restore, Viewport } from "./viewport.ts";

const MOVE_MS = 220;
const MIN_ROW = 22;
const MAX_ROW = 52;

export interface StageEvents {
  chosen(layout: Layout, place: number): void;
  /** The place under the pointer and where that is, in CSS pixels of the canvas; -1 for none. */
  hovered(layout: Layout, place: number, x: number, y: number): void;
}

export class Stage {
  layout: Layout | null = null;
  chosen = 0;
  private readonly view = new Viewport();
  private readonly from = new Viewport();
  private readonly to = new Viewport();
  private readonly painter: Painter;
  private readonly markers = new Markers();
  private classes = new Uint8Array(0);
  private swatches: Swatch[] = [];
  private colourBy: ColourBy = "age";
  private theme: Theme;
  private isDark = false;
  private hoveredPlace = -1;
  private requestKey = "";
  private path: number[] = [];
  private chosenMarker = -1;
  private width = 1;
  private height = 1;
  private takenAt = 0;
  private moveBegan = -1;
  private frame = 0;

  constructor(
    readonly canvas: HTMLCanvasElement,
    private readonly events: StageEvents,
    private readonly isStill: () => boolean,
  ) {
    this.painter = new Painter(canvas);
    this.theme = readTheme(canvas);
  }

  /** Height of a row, in CSS pixels: all rows fill the canvas, within bounds. */
  get row(): number {
    const even = this.height / (this.layout?.numRows ?? 1);
    return Math.min(MAX_ROW, Math.max(MIN_ROW, even));
  }

  get rows(): number {
    return this.height / this.row;
  }

  /** Milliseconds since the snapshot was taken. */
  get elapsed(): number {
    return performance.now() - this.takenAt;
  }

  close(): void {
    cancelAnimationFrame(this.frame);
  }

  /** `takenAt`: when the tree was read (performance.now). The view stays where it was. */
  show(layout: Layout, takenAt: number): void {
    const before = this.layout;
    const anchor = before ? anchorOf(before, this.moveBegan >= 0 ? this.to : this.view) : null;
    this.moveBegan = -1;
    this.layout = layout;
    this.takenAt = takenAt;
    this.classes = new Uint8Array(layout.size);
    this.hoveredPlace = -1;
    if (anchor) restore(layout, this.view, anchor, this.rows);
    else this.view.fit(layout, 0, this.rows);
    this.markers.update(layout, performance.now(), this.isStill());
    this.followRequest();
    this.refresh();
  }

  /** Outlines a place that was chosen elsewhere. */
  mark(place: number): void {
    this.chosen = place;
    this.draw();
  }

  /** Ages go on although the tree is the same. */
  refresh(): void {
    if (!this.layout) return;
    classify(this.layout, this.colourBy, this.elapsed, this.classes);
    this.swatches = swatches(this.colourBy, this.layout.tree.header.namespaces, this.isDark);
    this.draw();
  }

  colour(by: ColourBy, isDark: boolean): void {
    this.colourBy = by;
    this.isDark = isDark;
    this.theme = readTheme(this.canvas);
    this.refresh();
  }

  resize(width: number, height: number, ratio: number): void {
    if (width === this.width && height === this.height) return;
    this.width = width;
    this.height = height;
    this.painter.resize(width, height, ratio);
    if (this.layout) this.view.clamp(this.layout, this.rows);
    this.drawNow();
  }

  placeUnder(x: number, y: number): number {
    if (!this.layout) return -1;
    const column = this.view.left + (x / this.width) * this.view.span;
    return placeAt(this.layout, column, Math.floor(this.view.top + y / this.row));
  }

  hover(x: number, y: number): void {
    const place = this.placeUnder(x, y);
    if (!this.layout) return;
    if (place !== this.hoveredPlace) this.draw();
    this.hoveredPlace = place;
    this.events.hovered(this.layout, place, x, y);
  }

  unhover(): void {
    if (!this.layout) return;
    this.hoveredPlace = -1;
    this.events.hovered(this.layout, -1, 0, 0);
    this.draw();
  }

  choose(place: number, isRevealed = true): void {
    const layout = this.layout;
    if (!layout || place < 0) return;
    this.chosen = place;
    if (isRevealed) this.move(() => this.to.reveal(layout, place, this.rows));
    this.events.chosen(layout, place);
    this.draw();
  }

  go(direction: Direction): void {
    if (this.layout) this.choose(neighbour(this.layout, this.chosen, direction));
  }

  /** Shows a place over the whole width. */
  enter(place: number): void {
    const layout = this.layout;
    if (!layout || place < 0) return;
    this.move(() => this.to.fit(layout, place, this.rows));
    this.choose(place, false);
  }

  /** At once, since the wheel and fingers move by themselves. */
  zoom(factor: number, at = 0.5): void {
    if (!this.layout) return;
    this.moveBegan = -1;
    this.view.zoom(this.layout, factor, at, this.rows);
    this.draw();
  }

  /** By pixels. */
  pan(x: number, y: number): void {
    if (!this.layout) return;
    this.moveBegan = -1;
    this.view.pan(this.layout, x / this.width, y / this.row, this.rows);
    this.draw();
  }

  /** Highlights the path of a request; "" ends it. */
  follow(key: string): void {
    this.requestKey = key;
    this.followRequest();
    const place = this.path[this.path.length - 1];
    const layout = this.layout;
    if (layout && place !== undefined) this.move(() => this.to.reveal(layout, place, this.rows));
    this.draw();
  }

  private followRequest(): void {
    this.chosenMarker = this.markers.keys.indexOf(this.requestKey);
    const request = this.markers.requests[this.chosenMarker];
    const place = request && this.layout?.placeOf.get(request.node);
    this.path = this.layout && place !== undefined ? pathTo(this.layout, place) : [];
  }

  private move(aim: () => void): void {
    this.to.set(this.view.left, this.view.span, this.view.top);
    this.from.set(this.view.left, this.view.span, this.view.top);
    aim();
    if (this.isStill()) this.view.set(this.to.left, this.to.span, this.to.top);
    else this.moveBegan = performance.now();
    this.draw();
  }

  /** Asks for one frame. */
  draw(): void {
    if (this.frame === 0) this.frame = requestAnimationFrame(this.onFrame);
  }

  private readonly onFrame = (now: number): void => {
    this.frame = 0;
    let isMoving = this.markers.step(now);
    if (this.moveBegan >= 0) isMoving = this.stepMove(now) || isMoving;
    this.drawNow();
    if (isMoving) this.draw();
  };

  /** Spans change by a constant factor per time, which looks even. */
  private stepMove(now: number): boolean {
    const share = Math.min(1, Math.max(0, (now - this.moveBegan) / MOVE_MS));
    const eased = 1 - (1 - share) ** 3;
    const { from, to, view } = this;
    const span = from.span * (to.span / from.span) ** eased;
    const mixed = from.span === to.span ? eased : (span - from.span) / (to.span - from.span);
    view.set(from.left + (to.left - from.left) * mixed, span, from.top + (to.top - from.top) * eased);
    if (share >= 1) this.moveBegan = -1;
    return share < 1;
  }

  private drawNow(): void {
    if (!this.layout || this.width <= 1) return;
    this.painter.draw({
      layout: this.layout,
      view: this.view,
      row: this.row,
      classes: this.classes,
      swatches: this.swatches,
      theme: this.theme,
      markers: this.markers,
      chosen: this.chosen,
      hovered: this.hoveredPlace,
      path: this.path,
      chosenMarker: this.chosenMarker,
    });
  }
}

/** Colours of the page's style sheet, which a canvas cannot read by itself. */
function readTheme(canvas: HTMLCanvasElement): Theme {
  return {
    paper: colourOf("--tree-paper"),
    lease: colourOf("--tree-lease"),
    pin: colourOf("--tree-pin"),
    outline: colourOf("--tree-outline"),
    prefill: colourOf("--tree-prefill"),
    decode: colourOf("--tree-decode"),
    font: `600 11px ${getComputedStyle(canvas).fontFamily}`,
  };
}
