// The series, the parts of the pool, and the sentence on other caches.

import assert from "node:assert/strict";
import { test } from "node:test";
import type { Now } from "../../contract.ts";
import { KEPT_SECONDS, NowHistory, SERIES } from "./history.ts";
import { poolParts, poolSentence } from "./pool.ts";
import { type WhatIf, whatIfSentence } from "./what_if_sentence.ts";

const POOL = { num_blocks: 100, free: 20, leased: 30, cached: 60, pinned: 10 };

function now(queue: number): Now {
  return {
    queue,
    running: 1,
    step_ms: { p50: 1, p99: 2 },
    tokens_per_second: { output: 3, prompt: 4 },
    ttft_ms: { p50: null, p95: null, p99: null, n: 0 },
    inter_token_ms: { p50: 1, p95: 2, p99: 3, n: 9 },
    pool: POOL,
    hit_rate: 0.5,
  } as Now;
}

test("series hold the last five minutes, all of one length, with a gap where nothing was asked", () => {
  const history = new NowHistory();
  for (let second = 0; second < 1000; second += 1) {
    history.add(now(second), 1000 + second);
    assert.ok((history.times.at(-1) ?? 0) - (history.times[0] ?? 0) <= KEPT_SECONDS);
    for (const name of SERIES) assert.equal(history.get(name).length, history.times.length);
  }
  assert.equal(history.get("queue").at(-1), 999);
  assert.equal(history.get("hitRate").at(-1), 50);
  const length = history.times.length;
  history.add(now(7), 2030);
  assert.deepEqual(history.get("queue").slice(-3), [999, null, 7]);
  assert.ok(history.times.length < length);
});

test("the parts of the pool add up to it", () => {
  const sum = (pool: Now["pool"]) => poolParts(pool).reduce((total, part) => total + part.num_blocks, 0);
  for (let free = 0; free <= 40; free += 10) {
    for (let leased = 0; leased <= 60; leased += 20) {
      for (const pinned of [0, 10, 70]) {
        const pool = { ...POOL, free, leased, pinned };
        assert.equal(sum(pool), 100);
        assert.ok(poolParts(pool).every((part) => part.num_blocks >= 0));
      }
    }
  }
  assert.equal(poolSentence(POOL), "50 of 100 blocks (50 %) can be given to new requests.");
});

test("one sentence says which change would help most", () => {
  const said = (twice: number, cost: number, optimum: number) => {
    const whatIf: WhatIf = {
      seconds_ago: 3,
      sizes: [
        { num_blocks: 50, hit_rate: 0.3 },
        { num_blocks: 100, hit_rate: 0.4 },
        { num_blocks: 200, hit_rate: twice },
      ],
      policies: [
        { name: "lru", hit_rate: 0.4 },
        { name: "cost", hit_rate: cost },
        { name: "optimum", hit_rate: optimum },
      ],
    };
    return whatIfSentence(whatIf, 100);
  };
  assert.match(said(0.5, 0.4, 0.5), /^More memory would help: twice the blocks would bring 10\.0 points\.$/);
  assert.match(said(0.5, 0.42, 0.5), /bring 10\.0 points, and --eviction-policy cost 2\.0 points\.$/);
  assert.match(
    said(0.42, 0.46, 0.5),
    /^Another policy .*cost would bring 6\.0 points more than lru, twice the memory 2\.0 points\.$/,
  );
  assert.match(
    said(0.5, 0.44, 0.6),
    /^More memory would help: .* 10\.0 points, and --eviction-policy cost 4\.0 points\.$/,
  );
  assert.match(said(0.4, 0.4, 0.4), /large enough.*: neither more memory nor another policy/);
  assert.match(said(0.41, 0.4, 0.42), /bring 1\.0 point, and even the best policy 2\.0 points\.$/);
  assert.match(said(0.41, 0.4, 0.5), /large enough.* bring 1\.0 point, another policy nothing\.$/);
  assert.match(whatIfSentence({ seconds_ago: 0, sizes: [], policies: [] }, 100), /^No request has been recorded/);
});
