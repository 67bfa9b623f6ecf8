// The inner products of attention, several query rows at a time, with their sums in registers.
//
//     score_keys      a register holds four dims of two keys;  eight keys that were loaded meet up to three rows
//     weigh_values    a register holds eight dims of a value;  a value that was loaded meets up to three rows
//
// A register tile is one to three rows wide, because AVX2 has sixteen registers: three rows by four are twelve sums,
// which also is what two multiply-add units need to stay busy. Two keys share a register because the sum along its
// lanes is what takes the time when heads are small: over four lanes it is less than half the work of one over eight.
//
// Invariant: a sum's terms and their order are those of the row alone, so how rows are put together changes no bit.
// Scores: dims d, d + 4, ... are four chains, joined as (0+1) + (2+3). Weighted values: keys in order.
#pragma once
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

constexpr int TILE = 64;  // keys that rows pass over together, on an absolute grid
constexpr int MAX_ROWS = 3;

// Lane i: the sum of key i's four lanes; v: four registers of keys 0 and 4, 1 and 5, 2 and 6, 3 and 7.
[[gnu::always_inline]] inline F8 sum_fours(F8 a, F8 b) {
  return pick<0, 2, 8, 10, 4, 6, 12, 14>(a, b) + pick<1, 3, 9, 11, 5, 7, 13, 15>(a, b);
}

// ROWS x 8 dot products; keys.pair(n, d): the four dims from d on of keys n and n + 4.
template <int ROWS, class Keys>
[[gnu::always_inline]] inline void score_eight(const float* q, const Keys& keys, float* out, int64_t depth) {
  F8 sums[ROWS][4];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) sums[r][n] = splat8(0.0f);
  }
  for (int64_t d = 0; d < depth; d += 4) {
    keys.ask(d);
    F8 queries[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) {
      const F4 four = load_as<F4>(q + depth * r + d);
      queries[r] = join(four, four);
    }
#pragma GCC unroll 4
    for (int n = 0; n < 4; n++) {
      const F8 pair = in_register(keys.pair(n, d));
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; r++) sums[r][n] = fma(queries[r], pair, sums[r][n]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
    store8(out + TILE * r, sum_fours(sum_fours(sums[r][0], sums[r][1]), sum_fours(sums[r][2], sums[r][3])));
  }
}

// Eight keys of a tile, four dims at a time; asks for two lines at each step of what stands in `ahead`, eight addresses
// (null: none). A few lines at a time: what is on its way has few places to wait in, and one too many holds up
// everything.
struct EightKeys {
  const float* keys[8];
  const char* const* ahead;

  EightKeys(const float* k, const int64_t* offsets, const char* const* ahead) : ahead(ahead) {
    for (int i = 0; i < 8; i++) keys[i] = k + offsets[i];
  }
  [[gnu::always_inline]] void ask(int64_t d) const {
    if (!ahead) return;
#pragma GCC unroll 2
    for (int64_t line = d / 2; line < d / 2 + 2; line++) ask_for_line(ahead[line & 7] + (line >> 3 << 6));
  }
  [[gnu::always_inline]] F8 pair(int n, int64_t d) const {
    return join(load_as<F4>(keys[n] + d), load_as<F4>(keys[n + 4] + d));
  }
};

// Eight keys as `pair_keys` lays them out.
struct PairedKeys {
  const float* at;

  [[gnu::always_inline]] void ask(int64_t) const {}
  [[gnu::always_inline]] F8 pair(int n, int64_t d) const { return load8(at + 8 * (d + n)); }
};

// Dot products of ROWS query rows with keys begin to end - 1, both multiples of 8. Rows are `depth` fp32 long, a
// multiple of 8, and lie densely in q, their scores TILE apart. offsets: of the keys from k; ahead: of one more address
// per key whose `depth` fp32 will be wanted next (null: none).
template <int ROWS>
void score_keys(const float* q, const float* k, const int64_t* offsets, const char* const* ahead, float* out, int begin,
                int end, int64_t depth) {
  for (int n = begin; n < end; n += 8) {
    score_eight<ROWS>(q, EightKeys(k, offsets + n, ahead ? ahead + n : nullptr), out + n, depth);
  }
}

// Writes keys begin to end - 1, multiples of 8, as `score_pairs` reads them; k, offsets, ahead: as for `score_keys`.
inline void pair_keys(const float* k, const int64_t* offsets, const char* const* ahead, float* paired, int begin,
                      int end, int64_t depth) {
  for (int n = begin; n < end; n += 8) {
    const EightKeys keys(k, offsets + n, ahead ? ahead + n : nullptr);
    for (int64_t d = 0; d < depth; d += 4) {
      keys.ask(d);
#pragma GCC unroll 4
      for (int i = 0; i < 4; i++) store8(paired + n * depth + 8 * (d + i), keys.pair(i, d));
    }
  }
}

// What `score_keys` does, from keys that `pair_keys` laid out: worth it for more than a dozen rows.
template <int ROWS>
void score_pairs(const float* q, const float* paired, float* out, int begin, int end, int64_t depth) {
  for (int n = begin; n < end; n += 8) score_eight<ROWS>(q, PairedKeys{paired + n * depth}, out + n, depth);
}

// ROWS x (8 STRIPS) dims from d on: out = out * decay + sum over keys of weight * value.
template <int ROWS, int STRIPS>
[[gnu::always_inline]] inline void weigh_strips(float* const* outs, const float* v, const int64_t* offsets,
                                                const char* const* ahead, const float* weights, const float* decays,
                                                int begin, int end, int64_t d) {
  F8 sums[ROWS][STRIPS];
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 8
    for (int s = 0; s < STRIPS; s++) sums[r][s] = load8(outs[r] + d + 8 * s) * splat8(decays[r]);
  }
  for (int n = begin; n < end; n++) {
    const float* value = v + offsets[n] + d;
    if (ahead) {
#pragma GCC unroll 4
      for (int line = 0; line < 32 * STRIPS; line += 64) ask_for_line(ahead[n] + 4 * d + line);
    }
    F8 given[ROWS];
#pragma GCC unroll 4
    for (int r = 0; r < ROWS; r++) given[r] = splat8(weights[TILE * r + n]);
#pragma GCC unroll 8
    for (int s = 0; s < STRIPS; s++) {
      const F8 strip = in_register(load8(value + 8 * s));
#pragma GCC unroll 4
      for (int r = 0; r < ROWS; r++) sums[r][s] = fma(given[r], strip, sums[r][s]);
    }
  }
#pragma GCC unroll 4
  for (int r = 0; r < ROWS; r++) {
#pragma GCC unroll 8
    for (int s = 0; s < STRIPS; s++) store8(outs[r] + d + 8 * s, sums[r][s]);
  }
}

// out = out * decay + sum over keys begin to end - 1 of weights[n] * value[n], for ROWS rows. outs: the rows; weights:
// TILE per row; decays: one; offsets: of the keys from v; ahead: as for `score_keys`. Values are `depth` long, a
// multiple of 8.
template <int ROWS>
void weigh_values(float* const* outs, const float* v, const int64_t* offsets, const char* const* ahead,
                  const float* weights, const float* decays, int begin, int end, int64_t depth) {
  int64_t d = 0;
  if constexpr (ROWS == 1) {
    for (; d + 64 <= depth; d += 64) weigh_strips<1, 8>(outs, v, offsets, ahead, weights, decays, begin, end, d);
  }
  for (; d + 32 <= depth; d += 32) weigh_strips<ROWS, 4>(outs, v, offsets, ahead, weights, decays, begin, end, d);
  for (; d < depth; d += 8) weigh_strips<ROWS, 1>(outs, v, offsets, ahead, weights, decays, begin, end, d);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
