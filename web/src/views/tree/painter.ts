// Draws the icicle on a canvas.
//
// A frame walks the places in preorder, skips subtrees that are out of view, and draws nodes that are at least half a
// pixel wide; narrower siblings side by side become one bar. Rectangles are drawn colour by colour. All arrays are made
// once per layout, so a frame allocates nothing. Knows no events; sizes are CSS pixels.

import { counted } from "../../format.ts";
import type { Layout } from "./layout.ts";
import type { Markers } from "./markers.ts";
import { MERGED, type Swatch } from "./palette.ts";
import type { Viewport } from "./viewport.ts";

const LEASED = 1;
const PINNED = 2;
const MIN_WIDTH = 0.5;
const LABEL_WIDTH = 34;

export interface Theme {
  paper: string;
  lease: string;
  pin: string;
  outline: string;
  prefill: string;
  decode: string;
  font: string;
}

export interface Scene {
  layout: Layout;
  view: Viewport;
  /** Height of a row, in CSS pixels. */
  row: number;
  classes: Uint8Array;
  swatches: Swatch[];
  theme: Theme;
  markers: Markers;
  chosen: number;
  hovered: number;
  /** Places of the chosen request's path, from the top; empty without one. */
  path: number[];
  chosenMarker: number;
}

export class Painter {
  private readonly context: CanvasRenderingContext2D;
  private width = 1;
  private height = 1;
  private ratio = 1;
  private layout: Layout | null = null;
  private holds = new Uint8Array(0);
  private labels: string[] = [];
  private places = new Int32Array(0);
  private x = new Float32Array(0);
  private w = new Float32Array(0);
  private order = new Int32Array(0);
  private readonly starts = new Int32Array(16);
  private numDrawn = 0;

  constructor(readonly canvas: HTMLCanvasElement) {
    const context = canvas.getContext("2d", { alpha: false });
    if (!context) throw new Error("This browser has no canvas: use the table.");
    this.context = context;
  }

  resize(width: number, height: number, ratio: number): void {
    this.width = width;
    this.height = height;
    this.ratio = ratio;
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
  }

  draw(scene: Scene): void {
    if (scene.layout !== this.layout) this.prepare(scene.layout);
    this.collect(scene);
    const { context } = this;
    context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
    context.globalAlpha = 1;
    context.fillStyle = scene.theme.paper;
    context.fillRect(0, 0, this.width, this.height);
    this.drawNodes(scene);
    if (scene.path.length > 0) this.drawPath(scene);
    this.drawHolds(scene);
    this.drawLabels(scene);
    this.outline(scene, scene.hovered, 1);
    this.outline(scene, scene.chosen, 2.5);
    this.drawMarkers(scene);
  }

  private prepare(layout: Layout): void {
    const { leases, pinned, num_blocks: blocks } = layout.tree.columns;
    this.layout = layout;
    this.holds = new Uint8Array(layout.size);
    this.labels = new Array<string>(layout.size).fill("");
    for (let place = 1; place < layout.size; place += 1) {
      const node = layout.node[place]!;
      this.holds[place] = (leases[node]! > 0 ? LEASED : 0) | (pinned[node]! ? PINNED : 0);
      this.labels[place] = counted(blocks[node]!, "block");
    }
    this.labels[0] = "whole cache";
    const most = 2 * layout.size;
    if (this.places.length < most) {
      this.places = new Int32Array(most);
      this.x = new Float32Array(most);
      this.w = new Float32Array(most);
      this.order = new Int32Array(most);
    }
  }

  /** What is seen: place, x and width; a bar of merged siblings has the place of the first, negated and less one. */
  private collect({ layout, view, row, classes }: Scene): void {
    const scale = this.width / view.span;
    const lastRow = view.top + this.height / row;
    let size = 0;
    let mergedParent = -1;
    let mergedFirst = 0;
    let mergedX = 0;
    let mergedEnd = 0;
    let place = 0;
    while (place < layout.size) {
      const x = (layout.begin[place]! - view.left) * scale;
      const w = layout.width[place]! * scale;
      const depth = layout.depth[place]!;
      if (x >= this.width || x + w <= 0 || depth > lastRow) {
        place = layout.end[place]!;
        continue;
      }
      const isNarrow = w < MIN_WIDTH;
      const isMore = isNarrow && mergedParent === layout.parent[place]!;
      if (isMore) mergedEnd = x + w;
      else {
        if (mergedParent >= 0 && mergedEnd - mergedX >= MIN_WIDTH)
          size = this.add(size, -mergedFirst - 1, mergedX, mergedEnd - mergedX);
        mergedParent = isNarrow ? layout.parent[place]! : -1;
        mergedFirst = place;
        mergedX = x;
        mergedEnd = x + w;
      }
      if (isNarrow) place = layout.end[place]!;
      else {
        if (depth > view.top - 1) size = this.add(size, place, x, w);
        place += 1;
      }
    }
    if (mergedParent >= 0 && mergedEnd - mergedX >= MIN_WIDTH)
      size = this.add(size, -mergedFirst - 1, mergedX, mergedEnd - mergedX);
    this.numDrawn = size;
    this.sort(classes);
  }

  private add(size: number, place: number, x: number, w: number): number {
    this.places[size] = place;
    this.x[size] = x;
    this.w[size] = w;
    return size + 1;
  }

  /** A counting sort by class, so that each colour is set once. */
  private sort(classes: Uint8Array): void {
    const { starts, places, order } = this;
    starts.fill(0);
    for (let i = 0; i < this.numDrawn; i += 1) starts[this.classAt(places[i]!, classes) + 1]! += 1;
    for (let c = 1; c < starts.length; c += 1) starts[c]! += starts[c - 1]!;
    for (let i = 0; i < this.numDrawn; i += 1) {
      const c = this.classAt(places[i]!, classes);
      order[starts[c]!] = i;
      starts[c]! += 1;
    }
  }

  private classAt(place: number, classes: Uint8Array): number {
    return place < 0 ? MERGED : classes[place]!;
  }

  private drawNodes(scene: Scene): void {
    const { context, order, places, x, w } = this;
    let last = -1;
    for (let k = 0; k < this.numDrawn; k += 1) {
      const i = order[k]!;
      const place = places[i]!;
      const c = this.classAt(place, scene.classes);
      if (c !== last) {
        context.fillStyle = scene.swatches[c]!.colour;
        last = c;
      }
      this.rectangle(scene, place < 0 ? -place - 1 : place, x[i]!, w[i]!);
    }
  }

  private rectangle(scene: Scene, place: number, x: number, w: number): void {
    const from = Math.max(x, -4);
    const to = Math.min(x + w, this.width + 4);
    const gap = w > 4 ? 1 : w > 1.5 ? 0.4 : 0;
    this.context.fillRect(
      from,
      (scene.layout.depth[place]! - scene.view.top) * scene.row,
      to - from - gap,
      scene.row - 1.5,
    );
  }

  /** The path of the chosen request at full strength, everything else veiled. */
  private drawPath(scene: Scene): void {
    const { context } = this;
    const scale = this.width / scene.view.span;
    context.globalAlpha = 0.66;
    context.fillStyle = scene.theme.paper;
    context.fillRect(0, 0, this.width, this.height);
    context.globalAlpha = 1;
    for (let k = 0; k < scene.path.length; k += 1) {
      const place = scene.path[k]!;
      const x = (scene.layout.begin[place]! - scene.view.left) * scale;
      const w = Math.max(2, scene.layout.width[place]! * scale);
      if (x > this.width || x + w < 0) continue;
      context.fillStyle = scene.swatches[scene.classes[place]!]!.colour;
      this.rectangle(scene, place, x, w);
    }
  }

  /** Leases: a bar at the foot. Pins: a square at the top left. Told apart by place, not by colour alone. */
  private drawHolds(scene: Scene): void {
    const { context } = this;
    for (let mark = LEASED; mark <= PINNED; mark += 1) {
      context.fillStyle = mark === LEASED ? scene.theme.lease : scene.theme.pin;
      for (let i = 0; i < this.numDrawn; i += 1) {
        const place = this.places[i]!;
        if (place < 0 || (this.holds[place]! & mark) === 0) continue;
        const y = (scene.layout.depth[place]! - scene.view.top) * scene.row;
        const from = Math.max(this.x[i]!, 0);
        const width = Math.max(1, Math.min(this.x[i]! + this.w[i]!, this.width) - from - 1);
        if (mark === LEASED) context.fillRect(from, y + scene.row - 4.5, width, 3);
        else context.fillRect(from, y, Math.min(6, width), 6);
      }
    }
  }

  private drawLabels(scene: Scene): void {
    const { context } = this;
    context.font = scene.theme.font;
    context.textBaseline = "middle";
    for (let i = 0; i < this.numDrawn; i += 1) {
      const place = this.places[i]!;
      if (place < 0 || this.w[i]! < LABEL_WIDTH) continue;
      if (scene.path.length > 0 && !scene.path.includes(place)) continue;
      const from = Math.max(this.x[i]!, 0);
      const room = Math.min(this.x[i]! + this.w[i]!, this.width) - from - 12;
      const label = this.labelOf(place, room);
      if (label === "") continue;
      context.fillStyle = scene.swatches[scene.classes[place]!]!.ink;
      context.fillText(
        label,
        from + 8,
        (scene.layout.depth[place]! - scene.view.top) * scene.row + scene.row / 2 - 0.5,
      );
    }
  }

  /** What a bar with room for so many pixels says: its blocks, without their noun if there is less room. */
  private labelOf(place: number, room: number): string {
    const label = this.labels[place]!;
    if (label.length * 7 <= room) return label;
    const number = place === 0 ? "" : label.slice(0, label.indexOf(" "));
    return number.length * 7 <= room ? number : "";
  }

  private outline(scene: Scene, place: number, weight: number): void {
    if (place < 0 || place >= scene.layout.size) return;
    const scale = this.width / scene.view.span;
    const x = Math.max((scene.layout.begin[place]! - scene.view.left) * scale, -8);
    const end = Math.min(
      (scene.layout.begin[place]! + scene.layout.width[place]! - scene.view.left) * scale,
      this.width + 8,
    );
    const half = weight / 2;
    this.context.lineWidth = weight;
    this.context.strokeStyle = scene.theme.outline;
    const y = (scene.layout.depth[place]! - scene.view.top) * scene.row;
    this.context.strokeRect(x + half, y + half, Math.max(1, end - x - weight - 1), scene.row - 1.5 - weight);
  }

  /** Decoding requests are discs, prefilling ones are diamonds; the chosen one is larger. */
  private drawMarkers(scene: Scene): void {
    const { context } = this;
    const { markers, theme } = scene;
    const scale = this.width / scene.view.span;
    context.lineWidth = 1.5;
    context.strokeStyle = theme.paper;
    for (let i = 0; i < markers.size; i += 1) {
      const x = (markers.column[i]! - scene.view.left) * scale;
      const y = (markers.row[i]! - scene.view.top + 0.5) * scene.row;
      if (x < -8 || x > this.width + 8 || y < -8 || y > this.height + 8) continue;
      const r = i === scene.chosenMarker ? 8 : 5;
      context.beginPath();
      if (markers.requests[i]!.phase === "decode") {
        context.fillStyle = theme.decode;
        context.arc(x, y, r, 0, 2 * Math.PI);
      } else {
        context.fillStyle = theme.prefill;
        context.moveTo(x, y - r - 1);
        context.lineTo(x + r + 1, y);
        context.lineTo(x, y + r + 1);
        context.lineTo(x - r - 1, y);
        context.closePath();
      }
      context.fill();
      context.stroke();
    }
  }
}
