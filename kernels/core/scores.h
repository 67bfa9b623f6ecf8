// The tempered scores of a row of logits, and the largest of every 128, for sampling and log-probabilities.
#pragma once
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

constexpr int GROUP = 128;                         // tokens that draw together, at absolute positions
constexpr float LARGEST = 3.4028234663852886e38f;  // of fp32: +inf counts as this

inline bool is_set(const int32_t* words, int64_t token) { return (uint32_t)words[token >> 5] >> (token & 31) & 1; }

inline float largest_of(const float* values, int64_t count) {
  float most = -INFINITE;
  for (int64_t i = 0; i < count; i++) most = larger_of(most, values[i]);
  return most;
}

// The first of the largest values; 0 if all are -inf.
inline int64_t first_largest_of(const float* values, int64_t count) {
  int64_t best = 0;
  for (int64_t i = 1; i < count; i++) best = values[i] > values[best] ? i : best;
  return best;
}

struct Scores {
  explicit Scores(int64_t vocab_size)
      : size(vocab_size),
        num_groups((vocab_size + GROUP - 1) / GROUP),
        values(num_groups * GROUP),
        tops(num_groups),
        noise(num_groups),
        bounds(num_groups),
        spare(num_groups * GROUP) {}

  float* group(int64_t index) const { return values.at + GROUP * index; }
  float top() const { return largest_of(tops.at, num_groups); }
  void fill(const float* logits, const int32_t* words, float temperature);
  float mass_of(int64_t group, float reference, float above) const;

  int64_t size, num_groups;
  Scratch<float> values;  // [num_groups, GROUP], -inf where a token is not allowed or there is none
  Scratch<float> tops;    // [num_groups]
  Scratch<float> noise, bounds, spare;
};

// words: bits of the allowed tokens; null: all are.
inline void Scores::fill(const float* logits, const int32_t* words, float temperature) {
  const F8 divisor = splat8(temperature), nothing = splat8(-INFINITE);
  const int64_t whole = size / GROUP;
  for (int64_t g = 0; g < whole; g++) {
    F8 most = nothing;
    for (int64_t first = g * GROUP; first < (g + 1) * GROUP; first += 32) {
      const int32_t bits = words ? words[first >> 5] : -1;
#pragma GCC unroll 4
      for (int part = 0; part < 32; part += 8) {
        F8 x = nothing;
        if (bits) x = keep_bits(larger(load8(logits + first + part) / divisor, nothing), bits >> part);
        store8(values.at + first + part, x);
        most = larger(x, most);
      }
    }
    tops.at[g] = largest(most);
  }
  if (whole < num_groups) {
    float* last = group(whole);
    for (int64_t i = 0; i < GROUP; i++) {
      const int64_t token = whole * GROUP + i;
      const float x = token < size && (!words || is_set(words, token)) ? logits[token] / temperature : -INFINITE;
      last[i] = x == x ? x : -INFINITE;
    }
    tops.at[whole] = largest_of(last, GROUP);
  }
  if (top() > LARGEST) {
    for (int64_t i = 0; i < num_groups * GROUP; i++) values.at[i] = smaller_of(values.at[i], LARGEST);
    for (int64_t g = 0; g < num_groups; g++) tops.at[g] = smaller_of(tops.at[g], LARGEST);
  }
}

// The sum of exp(score - reference) over the scores of a group that are larger than `above`.
inline float Scores::mass_of(int64_t index, float reference, float above) const {
  const float* scores = group(index);
  F8 mass = splat8(0.0f);
  for (int i = 0; i < GROUP; i += 8) {
    const F8 x = load8(scores + i), left = x > splat8(above) ? x : splat8(-INFINITE);
    mass += exp2((left - splat8(reference)) * splat8(LOG2_E));
  }
  return total(mass);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
