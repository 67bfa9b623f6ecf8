// Where running requests stand in the icicle, and how they get there.
//
// A marker is a place in blocks and rows. When a request moves to another node its marker glides there within
// `GLIDE_MS`, or jumps where motion is to be reduced. Requests at one node share its width evenly. Numbers live in typed
// arrays that grow by doubling, so a frame allocates nothing.

import type { TreeRequest } from "../../contract.ts";
import type { Layout } from "./layout.ts";

export const GLIDE_MS = 350;

/** One request of several with the same id (samples of a prompt) is told apart by its index. */
export function keyOf(request: TreeRequest): string {
  return request.index > 0 ? `${request.request_id} · ${request.index}` : request.request_id;
}

export class Markers {
  requests: TreeRequest[] = [];
  keys: string[] = [];
  size = 0;
  column = new Float64Array(16);
  row = new Float64Array(16);
  private fromColumn = new Float64Array(16);
  private fromRow = new Float64Array(16);
  private toColumn = new Float64Array(16);
  private toRow = new Float64Array(16);
  private began = 0;
  private isGliding = false;

  /** Takes over a snapshot's requests; those at no node are not drawn. */
  update(layout: Layout, now: number, isStill: boolean): void {
    const before = new Map<string, [number, number]>();
    for (let i = 0; i < this.size; i += 1) before.set(this.keys[i]!, [this.column[i]!, this.row[i]!]);
    const shown = layout.tree.header.requests.filter((request) => layout.placeOf.has(request.node));
    this.requests = shown;
    this.keys = shown.map(keyOf);
    this.size = shown.length;
    this.grow();
    this.aim(layout);
    for (let i = 0; i < this.size; i += 1) {
      const from = isStill ? undefined : before.get(this.keys[i]!);
      this.fromColumn[i] = from ? from[0] : this.toColumn[i]!;
      this.fromRow[i] = from ? from[1] : this.toRow[i]!;
    }
    this.began = now;
    this.isGliding = true;
    this.step(isStill ? now + GLIDE_MS : now);
  }

  /** Moves all markers to where they are at `now`; true while any is on its way. */
  step(now: number): boolean {
    if (!this.isGliding) return false;
    const share = Math.min(1, (now - this.began) / GLIDE_MS);
    const eased = 1 - (1 - share) ** 3;
    for (let i = 0; i < this.size; i += 1) {
      this.column[i] = this.fromColumn[i]! + (this.toColumn[i]! - this.fromColumn[i]!) * eased;
      this.row[i] = this.fromRow[i]! + (this.toRow[i]! - this.fromRow[i]!) * eased;
    }
    this.isGliding = share < 1;
    return this.isGliding;
  }

  private aim(layout: Layout): void {
    const numAt = new Map<number, number>();
    for (const request of this.requests) numAt.set(request.node, (numAt.get(request.node) ?? 0) + 1);
    const given = new Map<number, number>();
    this.requests.forEach((request, i) => {
      const place = layout.placeOf.get(request.node)!;
      const nth = (given.get(request.node) ?? 0) + 1;
      given.set(request.node, nth);
      this.toColumn[i] = layout.begin[place]! + (layout.width[place]! * nth) / (numAt.get(request.node)! + 1);
      this.toRow[i] = layout.depth[place]!;
    });
  }

  private grow(): void {
    if (this.size <= this.column.length) return;
    const length = 2 ** Math.ceil(Math.log2(this.size));
    for (const name of ["column", "row", "fromColumn", "fromRow", "toColumn", "toRow"] as const) {
      this[name] = new Float64Array(length);
    }
  }
}
