// A time axis on which the time between stretches of work is shortened, so that bars can be seen. Knows no requests.

/** A span of seconds. */
export interface Span {
  start: number;
  end: number;
}

/** A stretch of time and where it lies on the axis, from 0 to 1. */
interface Piece extends Span {
  from: number;
  to: number;
}

export interface Mark {
  place: number;
  time: number;
}

const GAP_SHARE = 0.04;
const MARKED = [0, 0.25, 0.5, 0.75];
const NEAR = 0.03;

export class TimeAxis {
  private readonly pieces: Piece[] = [];
  /** True if some time was shortened. */
  readonly isShortened: boolean;
  /**
   * The times that are marked, first to last, all over the axis: where work began, if that is near, or any others; and
   * the end.
   */
  readonly marks: readonly Mark[];

  constructor(spans: Span[]) {
    const stretches = mergedSpans(spans);
    const busy = Math.max(
      0.001,
      stretches.reduce((total, { start, end }) => total + end - start, 0),
    );
    const gaps = stretches.slice(1).map(({ start }, place) => start - (stretches[place]?.end ?? start));
    const widths = gaps.map((gap) => Math.min(gap, busy * GAP_SHARE));
    const whole = busy + widths.reduce((total, width) => total + width, 0);
    let at = 0;
    stretches.forEach(({ start, end }, place) => {
      const to = at + (end - start) / whole;
      this.pieces.push({ start, end, from: at, to });
      at = to + (widths[place] ?? 0) / whole;
    });
    this.isShortened = gaps.some((gap, place) => gap > (widths[place] ?? 0));
    this.marks = this.chosenMarks();
  }

  /** Where `time` lies, from 0 to 1. */
  placeOf(time: number): number {
    let before: Piece | null = null;
    for (const piece of this.pieces) {
      if (time < piece.start) {
        return before ? before.to + share(time, before.end, piece.start) * (piece.from - before.to) : 0;
      }
      if (time <= piece.end) {
        return piece.from + share(time, piece.start, piece.end) * (piece.to - piece.from);
      }
      before = piece;
    }
    return 1;
  }

  private chosenMarks(): Mark[] {
    const found = MARKED.map((place) => {
      const near = this.pieces.find(({ from }) => Math.abs(from - place) <= NEAR);
      return near ? { place: near.from, time: near.start } : { place, time: this.timeAt(place) };
    });
    return [...found, { place: 1, time: this.timeAt(1) }];
  }

  private timeAt(place: number): number {
    let before: Piece | null = null;
    for (const piece of this.pieces) {
      if (place < piece.from) {
        return before ? before.end + share(place, before.to, piece.from) * (piece.start - before.end) : piece.start;
      }
      if (place <= piece.to) {
        return piece.start + share(place, piece.from, piece.to) * (piece.end - piece.start);
      }
      before = piece;
    }
    return before?.end ?? 0;
  }
}

function share(value: number, low: number, high: number): number {
  return high > low ? (value - low) / (high - low) : 0;
}

/** Spans that touch become one, first to last. */
function mergedSpans(spans: Span[]): Span[] {
  const merged: Span[] = [];
  for (const { start, end } of spans.toSorted((one, other) => one.start - other.start)) {
    const last = merged.at(-1);
    if (last && start <= last.end) {
      last.end = Math.max(last.end, end);
    } else {
      merged.push({ start, end });
    }
  }
  return merged;
}
