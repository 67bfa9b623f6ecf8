// Times on a shortened axis keep their order and stay within it.

import assert from "node:assert/strict";
import { test } from "node:test";
import { TimeAxis } from "./time_axis.ts";

test("places grow with time, from 0 to 1", () => {
  let seed = 7;
  const random = () => {
    seed = (seed * 48271) % 2147483647;
    return seed / 2147483647;
  };
  for (let round = 0; round < 200; round += 1) {
    const spans = Array.from({ length: 1 + Math.floor(random() * 6) }, () => {
      const start = random() * 1000;
      return { start, end: start + random() * 20 };
    });
    const axis = new TimeAxis(spans);
    const times = spans.flatMap(({ start, end }) => [start, end]).toSorted((one, other) => one - other);
    const places = times.map((time) => axis.placeOf(time));
    assert.ok(places.every((place, at) => place >= (places[at - 1] ?? 0) && place <= 1 + 1e-9));
    assert.equal(places[0], 0);
    assert.ok(Math.abs((places.at(-1) ?? 0) - 1) < 1e-9);
    for (const { place, time } of axis.marks) {
      assert.ok(Math.abs(axis.placeOf(time) - place) < 1e-9);
    }
  }
});

test("marks are all over the axis", () => {
  const starts = [0, 0.5, 40, 60, 61, 62, 63, 90];
  for (let many = 1; many <= starts.length; many += 1) {
    const axis = new TimeAxis(starts.slice(0, many).map((start) => ({ start, end: start + 0.3 })));
    const places = axis.marks.map(({ place }) => place);
    assert.equal(places.at(-1), 1);
    const gaps = places.slice(1).map((place, at) => place - (places[at] ?? 0));
    assert.ok(gaps.every((gap) => gap > 0.1 && gap < 0.4));
  }
});

test("only idle time is shortened", () => {
  const axis = new TimeAxis([
    { start: 0, end: 1 },
    { start: 0.5, end: 2 },
    { start: 1002, end: 1004 },
  ]);
  assert.ok(axis.isShortened);
  assert.ok(Math.abs(axis.placeOf(1) * 2 - axis.placeOf(2)) < 1e-9);
  assert.ok(Math.abs(axis.placeOf(2) - (1 - axis.placeOf(1002))) < 1e-9);
  assert.ok(!new TimeAxis([{ start: 5, end: 6 }]).isShortened);
});
