// What recurrent layers do with a state: short convolutions, the gated delta rule, state spaces. Tokens of a segment come one
// after the other and every sum has a fixed order, so neither outputs nor states depend on where a step begins or ends.
#include "level.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int64_t CHANNELS = 128;  // of a task
constexpr float NORM_EPS = 1e-6f;  // of the lengths of queries and keys
constexpr int STRIPS = 4;          // vectors of a value whose sums are in registers together

struct Segment {
  int64_t begin, end, read, write;
};

Segment segment_of(const int64_t* segments, int64_t index) {
  const int64_t* row = segments + 4 * index;
  return {row[0], row[1], row[2], row[3]};
}

// The input of row t - back of a segment: one of its rows, or one that the state has kept.
struct Inputs {
  const Convolution& job;
  Segment segment;

  const float* at(int64_t row) const {
    if (row >= segment.begin) return job.x + row * job.x_stride;
    if (segment.read < 0) return nullptr;
    const int64_t kept = job.width - 1;
    return job.states + (segment.read * kept + kept - (segment.begin - row)) * job.channels;
  }
};

void convolve_channels(const void* given, int64_t index) {
  const Convolution& job = *(const Convolution*)given;
  const int64_t tiles = (job.channels + CHANNELS - 1) / CHANNELS;
  const Segment segment = segment_of(job.segments, index / tiles);
  const int64_t first = index % tiles * CHANNELS, last = smaller_of(first + CHANNELS, job.channels);
  const Inputs inputs{job, segment};
  for (int64_t row = segment.begin; row < segment.end; row++) {
    for (int64_t c = first; c < last; c += 8) {
      F8 sum = job.bias ? load8(job.bias + c) : splat8(0.0f);
      for (int64_t j = 0; j < job.width; j++) {
        const float* x = inputs.at(row - job.width + 1 + j);
        if (x) sum = fma(load8(job.weight + j * job.channels + c), load8(x + c), sum);
      }
      store8(job.out + row * job.channels + c, job.has_silu ? sum * sigmoid(sum) : sum);
    }
  }
  const int64_t kept = job.width - 1;
  for (int64_t j = 0; j < kept; j++) {  // rising: where a slot is read and written, nothing is read after it is written
    const float* x = inputs.at(segment.end - kept + j);
    float* target = job.states + (segment.write * kept + j) * job.channels;
    for (int64_t c = first; c < last; c += 8) store8(target + c, x ? load8(x + c) : splat8(0.0f));
  }
}

float inverse_length(const float* x, int64_t size) {
  F8 sum = splat8(0.0f);
  for (int64_t i = 0; i < size; i += 8) sum = fma(load8(x + i), load8(x + i), sum);
  return 1.0f / sqrtf(total(sum) + NORM_EPS);
}

float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

// One token of one head.
struct Token {
  const float *q, *k, *decays, *v;  // decays: of each key
  float *out;
  float learnt, skip;
};

// Its step, for COUNT vectors of its value from d on: changes the state, and writes the output.
template <int COUNT>
[[gnu::always_inline]] inline void step_values(const HeadStates& job, float* state, const Token& token, int64_t d) {
  F8 change[COUNT], read[COUNT];
#pragma GCC unroll 4
  for (int s = 0; s < COUNT; s++) change[s] = read[s] = splat8(0.0f);
  if (job.b) {
    for (int64_t i = 0; i < job.key_dim; i++) {
#pragma GCC unroll 4
      for (int s = 0; s < COUNT; s++) {
        change[s] = fma(splat8(token.k[i] * token.decays[i]), load8(state + i * job.value_dim + d + 8 * s), change[s]);
      }
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < COUNT; s++) {
    change[s] = (load8(token.v + d + 8 * s) - change[s]) * splat8(token.learnt);
  }
  for (int64_t i = 0; i < job.key_dim; i++) {
#pragma GCC unroll 4
    for (int s = 0; s < COUNT; s++) {
      float* place = state + i * job.value_dim + d + 8 * s;
      const F8 changed = fma(splat8(token.k[i]), change[s], load8(place) * splat8(token.decays[i]));
      store8(place, changed);
      read[s] = fma(splat8(token.q[i]), changed, read[s]);
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < COUNT; s++) {
    const F8 past = job.b ? read[s] : fma(splat8(token.skip), load8(token.v + d + 8 * s), read[s]);
    store8(token.out + d + 8 * s, past);
  }
}

void advance_head(const void* given, int64_t index) {
  const HeadStates& job = *(const HeadStates*)given;
  const Segment segment = segment_of(job.segments, index / job.heads);
  const int64_t head = index % job.heads, key_head = head / (job.heads / job.key_heads);
  const int64_t size = job.key_dim * job.value_dim;
  float* state = job.states + (segment.write * job.heads + head) * size;
  if (segment.read < 0) {
    memset(state, 0, size * sizeof(float));
  } else if (segment.read != segment.write) {
    memcpy(state, job.states + (segment.read * job.heads + head) * size, size * sizeof(float));
  }
  Scratch<float> scratch(3 * job.key_dim);
  float *q = scratch.at, *k = q + job.key_dim, *decays = k + job.key_dim;
  Token token{q, k, decays, nullptr, nullptr, 0.0f, job.skip ? job.skip[head] : 0.0f};
  for (int64_t row = segment.begin; row < segment.end; row++) {
    const float* query = job.q + row * job.qk_stride + key_head * job.key_dim;
    const float* key = job.k + row * job.qk_stride + key_head * job.key_dim;
    const F8 q_scale = splat8(job.b ? inverse_length(query, job.key_dim) / sqrtf((float)job.key_dim) : 1.0f);
    const F8 k_scale = splat8(job.b ? inverse_length(key, job.key_dim) : 1.0f);
    for (int64_t i = 0; i < job.key_dim; i += 8) {
      store8(q + i, load8(query + i) * q_scale);
      store8(k + i, load8(key + i) * k_scale);
    }
    const int64_t num_rates = job.by_key ? job.key_dim : 1;
    const float *a = job.a + row * job.a_stride + head * num_rates, *bias = job.step_bias + head * num_rates;
    float taken = 0.0f;
    for (int64_t i = 0; i < num_rates; i++) {
      taken = larger_of(job.least, smaller_of(softplus(a[i] + bias[i]), job.most));
      decays[i] = expf(-job.rate[head] * taken);
    }
    for (int64_t i = num_rates; i < job.key_dim; i++) decays[i] = decays[0];
    token.learnt = job.b ? 1.0f / (1.0f + expf(-job.b[row * job.b_stride + head])) : taken;
    token.v = job.v + row * job.v_stride + head * job.value_dim;
    token.out = job.out + (row * job.heads + head) * job.value_dim;
    int64_t d = 0;
    for (; d + 8 * STRIPS <= job.value_dim; d += 8 * STRIPS) step_values<STRIPS>(job, state, token, d);
    for (; d < job.value_dim; d += 8) step_values<1>(job, state, token, d);
  }
}

constexpr float LOG2_E = 1.44269504088896341f;

// One vector of channels, from the first row of a segment to its last.
void advance_strip(const ChannelStates& job, const Segment& segment, int64_t first) {
  const int64_t size = job.state_dim * job.channels;
  float* state = job.states + segment.write * size + first;
  const float* before = segment.read < 0 ? nullptr : job.states + segment.read * size + first;
  for (int64_t n = 0; n < job.state_dim; n++) {
    store8(state + n * job.channels, before ? load8(before + n * job.channels) : splat8(0.0f));
  }
  for (int64_t row = segment.begin; row < segment.end; row++) {
    const float *b = job.b + row * job.bc_stride, *c = job.c + row * job.bc_stride;
    alignas(32) float steps[8];
    for (int i = 0; i < 8; i++) steps[i] = softplus(job.a[row * job.a_stride + first + i] + job.step_bias[first + i]);
    const F8 step = load8(steps), x = load8(job.x + row * job.x_stride + first);
    const F8 given = step * x, turn = step * splat8(-LOG2_E);
    F8 out = load8(job.skip + first) * x;
    for (int64_t n = 0; n < job.state_dim; n++) {
      float* place = state + n * job.channels;
      const F8 kept = load8(place) * exp2(load8(job.rate + n * job.channels + first) * turn);
      const F8 changed = fma(splat8(b[n]), given, kept);
      store8(place, changed);
      out = fma(splat8(c[n]), changed, out);
    }
    store8(job.out + row * job.channels + first, out);
  }
}

void advance_tile(const void* given, int64_t index) {
  const ChannelStates& job = *(const ChannelStates*)given;
  const int64_t tiles = (job.channels + CHANNELS - 1) / CHANNELS;
  const Segment segment = segment_of(job.segments, index / tiles);
  const int64_t first = index % tiles * CHANNELS, last = smaller_of(first + CHANNELS, job.channels);
  for (int64_t c = first; c < last; c += 8) advance_strip(job, segment, c);
}

}  // namespace

void convolve(const Lease& team, const Convolution& job) {
  team.share(convolve_channels, &job, job.num_segments * ((job.channels + CHANNELS - 1) / CHANNELS));
}

void advance_heads(const Lease& team, const HeadStates& job) {
  team.share(advance_head, &job, job.num_segments * job.heads);
}

void advance_channels(const Lease& team, const ChannelStates& job) {
  team.share(advance_tile, &job, job.num_segments * ((job.channels + CHANNELS - 1) / CHANNELS));
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
