// Masked sampling, each row on its own:
//
//     logits --> tempered scores, and the largest of every 128 --> a group, then a token in it
//
// One pass over what the mask allows; then exponentials only of groups that could still be drawn: a group is out if its
// largest score, the logarithm of 128 and its noise do not reach the best so far. top-p needs all exponentials once,
// top-k the scores that reach the k-th largest group maximum. Which token is chosen is what `plain/sample.py` says,
// up to the last bit of a logarithm or of a sum at a threshold.
#include "level.h"
#include "noise.h"
#include "scores.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int BLOCK = 256;               // tokens looked through at once for the largest
constexpr float LOG_GROUP = 4.8520304f;  // log(GROUP), rounded up
constexpr float MAX_NOISE = 22.9f;

struct Token {
  int64_t id;
  float score;
};

struct Survey {
  double mass;    // as a multiple of exp of the largest score
  int64_t group;  // that is drawn; -1: none
};

// The largest number less than x, so that `> below(x)` is `>= x`.
float below(float x) { return nextafterf(x, -INFINITE); }

// The k-th largest value, -inf if there are fewer; reorders them. Quickselect, equals together.
float select_largest(float* values, int64_t count, int64_t k) {
  while (count >= k) {
    const float low = values[0], middle = values[count / 2], high = values[count - 1];
    const float pivot = larger_of(smaller_of(low, middle), smaller_of(larger_of(low, middle), high));
    int64_t above = 0, equal = 0;
    for (int64_t i = 0; i < count; i++) above += values[i] > pivot, equal += values[i] == pivot;
    if (above < k && k <= above + equal) return pivot;
    const bool keeps_larger = k <= above;
    if (!keeps_larger) k -= above + equal;
    int64_t kept = 0;
    for (int64_t i = 0; i < count; i++) {
      const float x = values[i];
      values[kept] = x;
      kept += keeps_larger ? x > pivot : x < pivot;
    }
    count = kept;
  }
  return -INFINITE;
}

// The k-th largest score; -inf if there are fewer.
float kth_largest(Scores& s, int64_t k) {
  float* found = s.spare.at;
  memcpy(found, s.tops.at, 4 * s.num_groups);
  const float least = select_largest(found, s.num_groups, k);
  int64_t count = 0;
  for (int64_t g = 0; g < s.num_groups; g++) {
    if (s.tops.at[g] < least || s.tops.at[g] == -INFINITE) continue;
    for (int i = 0; i < GROUP; i++) {
      const float x = s.group(g)[i];
      found[count] = x;
      count += x >= least;
    }
  }
  return select_largest(found, count, k);
}

// The group drawn by the mass of its scores larger than `above`. Few are looked at: most are out by their bound.
int64_t draw_group(Scores& s, float above, const Noise& noise) {
  for (int64_t g = 0; g < s.num_groups; g++) {
    s.bounds.at[g] = -INFINITE;
    if (s.tops.at[g] > above) {
      s.noise.at[g] = noise(g);
      s.bounds.at[g] = (s.tops.at[g] + LOG_GROUP) + s.noise.at[g];
    }
  }
  int64_t chosen = -1;
  float best = -INFINITE;
  const int64_t favourite = first_largest_of(s.bounds.at, s.num_groups);
  for (int64_t turn = -1; turn < s.num_groups; turn++) {
    const int64_t g = turn < 0 ? favourite : turn;
    if (s.bounds.at[g] < best || s.bounds.at[g] == -INFINITE) continue;
    const float value = (s.tops.at[g] + logf(s.mass_of(g, s.tops.at[g], above))) + s.noise.at[g];
    if (value > best || (value == best && g < chosen)) chosen = g, best = value;
  }
  return chosen;
}

// Of the scores larger than `above`: their mass, and the group drawn by them.
Survey survey(const Scores& s, float top, float above, const Noise& noise) {
  Survey found{0.0, -1};
  float best = -INFINITE;
  for (int64_t g = 0; g < s.num_groups; g++) {
    const float own = s.tops.at[g];
    if (!(own > above)) continue;
    const float mass = s.mass_of(g, own, above);
    found.mass += (double)(mass * expf(own - top));
    if ((own + LOG_GROUP) + MAX_NOISE >= best) {
      const float value = (own + logf(mass)) + noise(g);
      if (value > best) found.group = g, best = value;
    }
  }
  return found;
}

// The token drawn within a group, among the scores larger than `above`.
Token draw_token(const Scores& s, int64_t group, float above, Noise noise) {
  noise.stream++;
  const float* scores = s.group(group);
  int64_t chosen = 0;
  float best = -INFINITE;
  for (int i = 0; i < GROUP; i++) {
    if (scores[i] > above) {
      const float value = scores[i] + noise(group * GROUP + i);
      if (value > best) chosen = i, best = value;
    }
  }
  return {group * GROUP + chosen, scores[chosen]};
}

// A sample of the softmax of the scores that the filters leave; some score is finite. top_k 0: off.
int64_t draw(Scores& s, int64_t top_k, float top_p, float min_p, Noise noise) {
  const float top = s.top();
  float above = top_k ? below(kth_largest(s, top_k)) : -INFINITE;
  if (min_p > 0) above = larger_of(above, below(top + logf(min_p)));
  const double total = top_p < 1.0f ? survey(s, top, above, noise).mass : 0.0;
  Token token = draw_token(s, draw_group(s, above, noise), above, noise);
  while (top_p < 1.0f) {
    noise.stream += 2;
    const Survey larger = survey(s, top, token.score, noise);
    if (larger.mass == 0 || larger.mass < top_p * total) break;
    token = draw_token(s, larger.group, token.score, noise);
  }
  return token.id;
}

// Index of the first of the largest logits among the tokens whose bits are set; -1 if there is none, or all are -inf or
// NaN.
template <bool IS_MASKED>
int64_t first_largest(const float* logits, int64_t size, const int32_t* words) {
  float top = -INFINITE;
  int64_t block = -1;  // the first that has it
  const int64_t whole = size / BLOCK * BLOCK;
  for (int64_t begin = 0; begin < whole; begin += BLOCK) {
    F8 tops = splat8(-INFINITE);
    for (int64_t at = begin; at < begin + BLOCK; at += 32) {
      const int32_t bits = IS_MASKED ? words[at >> 5] : -1;
      if (!bits) continue;
#pragma GCC unroll 4
      for (int part = 0; part < 32; part += 8) {
        const F8 x = load8(logits + at + part);
        tops = larger(IS_MASKED ? keep_bits(x, bits >> part) : x, tops);
      }
    }
    if (largest(tops) > top) top = largest(tops), block = begin;
  }
  for (int64_t t = whole; t < size; t++) {
    if ((!IS_MASKED || is_set(words, t)) && logits[t] > top) top = logits[t], block = whole;
  }
  for (int64_t t = block; block >= 0 && t < size; t++) {
    if (logits[t] == top && (!IS_MASKED || is_set(words, t))) return t;
  }
  return -1;
}

}  // namespace

void sample_rows(const Sampling& s) {
  Scores scores(s.vocab_size);
  for (int64_t row = 0; row < s.num_rows; row++) {
    const float* logits = s.logits + row * s.vocab_size;
    const int32_t* words = s.masks && s.mask_rows[row] >= 0 ? s.masks + s.mask_rows[row] * s.mask_width : nullptr;
    if (s.temperature[row] <= 0) {
      s.token_ids[row] = (words ? first_largest<true> : first_largest<false>)(logits, s.vocab_size, words);
      continue;
    }
    scores.fill(logits, words, s.temperature[row]);
    s.token_ids[row] = -1;
    if (scores.top() == -INFINITE) continue;
    const int64_t top_k = s.top_k[row] < s.vocab_size ? larger_of(s.top_k[row], 0) : 0;
    s.token_ids[row] = draw(scores, top_k, s.top_p[row], s.min_p[row], {s.seeds[row], s.positions[row], 0});
  }
}

void report_rows(const Report& r) {
  Scores s(r.vocab_size);
  for (int64_t row = 0; row < r.num_rows; row++) {
    s.fill(r.logits + row * r.vocab_size, nullptr, 1.0f);
    const float top = s.top();
    double mass = 0.0;
    for (int64_t g = 0; g < s.num_groups; g++) {
      if (s.tops.at[g] > -INFINITE) mass += (double)(s.mass_of(g, s.tops.at[g], -INFINITE) * expf(s.tops.at[g] - top));
    }
    const float log_mass = (float)log(mass);
    const int64_t token = r.token_ids[row];
    r.chosen[row] = token >= 0 ? s.values.at[token] - top - log_mass : __builtin_nanf("");
    for (int64_t n = row * r.num_top; n < (row + 1) * r.num_top; n++) {  // the group that leads has the next one
      const int64_t g = first_largest_of(s.tops.at, s.num_groups), i = first_largest_of(s.group(g), GROUP);
      r.top_ids[n] = s.tops.at[g] > -INFINITE ? g * GROUP + i : -1;
      r.top[n] = s.tops.at[g] - top - log_mass;
      s.group(g)[i] = -INFINITE;
      s.tops.at[g] = largest_of(s.group(g), GROUP);
    }
  }
}

void edit_rows(const Edits& e) {
  constexpr int16_t MAX_COUNT = 0x7FFF;
  Scratch<int16_t> stored(e.vocab_size);
  for (int64_t row = 0; row < e.num_rows; row++) {
    float* x = e.logits + row * e.vocab_size;
    if (e.biases && e.bias_rows[row] >= 0) {
      const float* biases = e.biases + e.bias_rows[row] * e.vocab_size;
      for (int64_t t = 0; t < e.vocab_size; t++) x[t] += biases[t];
    }
    if (!e.counts || e.count_rows[row] < 0) continue;
    memcpy(stored.at, e.counts + e.count_rows[row] * e.vocab_size, 2 * e.vocab_size);
    for (int64_t i = 0; i < e.num_drafted; i++) {
      const int32_t token = e.drafted[row * e.num_drafted + i];
      if (token >= 0 && (stored.at[token] & MAX_COUNT) < MAX_COUNT) stored.at[token]++;
    }
    for (int64_t t = 0; t < e.vocab_size; t++) {
      if (t + 4 <= e.vocab_size && !load_as<uint64_t>(stored.at + t)) {  // hardly any token has been seen
        t += 3;
        continue;
      }
      if (!stored.at[t]) continue;
      const int16_t count = stored.at[t] & MAX_COUNT;
      x[t] = x[t] > 0 ? x[t] / e.repetition[row] : x[t] * e.repetition[row];
      if (count > 0) x[t] -= e.presence[row] + e.frequency[row] * (float)count;
    }
  }
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
