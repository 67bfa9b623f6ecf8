// Norms, rotary embedding, gated activation and KV write, a loop for each. Rows are independent, and the order of
// every sum is fixed, so a row's bits do not depend on the batch.
#include "level.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

// Four running sums of eight lanes each, joined as a tree.
float sum_squares(const float* x, int64_t width) {
  F8 sums[4] = {splat8(0.0f), splat8(0.0f), splat8(0.0f), splat8(0.0f)};
  int64_t i = 0;
  for (; i + 32 <= width; i += 32) {
#pragma GCC unroll 4
    for (int part = 0; part < 4; part++) {
      const F8 value = load8(x + i + 8 * part);
      sums[part] = fma(value, value, sums[part]);
    }
  }
  for (; i < width; i += 8) sums[0] = fma(load8(x + i), load8(x + i), sums[0]);
  return total((sums[0] + sums[1]) + (sums[2] + sums[3]));
}

// `limit` over the largest size of numbers, 0 if all are 0.
struct Step {
  float most, factor;
};

Step step_of(const float* x, int64_t count, float limit) {
  F8 top = splat8(0.0f);
  for (int64_t i = 0; i < count; i += 8) {
    const F8 value = load8(x + i);
    top = larger(larger(value, -value), top);
  }
  const float most = largest(top);
  return {most, most > 0 ? limit / most : 0.0f};
}

[[gnu::always_inline]] inline F8 gated(const Gate& g, F8 x, F8 up) {
  if (g.kind == CLAMPED) {
    // `larger` gives its second argument where one is NaN, and that is the number here, not the limit
    const F8 least = splat8(-g.limit);
    x = -larger(least, -x);
    up = -larger(least, -larger(least, up));
    return x * sigmoid(splat8(g.alpha) * x) * (up + splat8(1.0f));
  }
  if (g.kind == SQUARED) {
    const F8 open = larger(splat8(0.0f), x);
    return open * open * up;
  }
  F8 z = x;
  if (g.kind == GELU_TANH) {  // x/2 (1 + tanh(y)) = x sigmoid(2 y), y = sqrt(2/pi) (x + 0.044715 x^3)
    const F8 cubic = fma(x * x, splat8(0.044715f), splat8(1.0f));
    z = x * cubic * splat8((float)(2.0 * 0.7978845608028654));
  }
  return x * sigmoid(z) * up;
}

}  // namespace

void norm_rows(const Norm& n) {
  for (int64_t row = 0; row < n.num_rows; row++) {
    const float* source = n.x + row * n.x_stride;
    if (n.residual) {
      const float* residual = n.residual + row * n.residual_stride;
      float* target = n.total + row * n.out_stride;
      for (int64_t c = 0; c < n.width; c += 8) store8(target + c, load8(source + c) + load8(residual + c));
      source = target;
    }
    const float mean = sum_squares(source, n.width) / (float)n.width;
    const F8 scale = splat8(1.0f / sqrtf(mean + n.eps));
    float* target = n.out + row * n.out_stride;
    for (int64_t c = 0; c < n.width; c += 8) store8(target + c, load8(source + c) * scale * load8(n.weight + c));
  }
}

void rotate_heads(const Rope& r) {
  for (int64_t t = 0; t < r.num_tokens; t++) {
    const float* cos = r.cos_sin + 2 * r.half * r.positions[t];
    for (int64_t h = 0; h < r.num_heads + r.num_kv_heads; h++) {
      const bool is_query = h < r.num_heads;
      float* low = is_query ? r.q + t * r.q_token + h * r.q_head : r.k + t * r.k_token + (h - r.num_heads) * r.k_head;
      float* high = low + r.half;
      for (int64_t d = 0; d < r.half; d += 8) {
        const F8 x = load8(low + d), y = load8(high + d), c = load8(cos + d), s = load8(cos + r.half + d);
        store8(low + d, x * c - y * s);
        store8(high + d, fma(y, c, x * s));
      }
    }
  }
}

inline float to_bf16(float x) {
  const uint32_t bits = (uint32_t)as_int(x);
  return as_float((int32_t)((bits + 0x7FFF + (bits >> 16 & 1)) & 0xFFFF0000));
}

// A head in four bits a number; returns the word with its scale and middle.
int32_t store_pairs(const float* x, int64_t count, char* target) {
  F8 low = load8(x), high = low;
  for (int64_t i = 8; i < count; i += 8) {
    const F8 value = load8(x + i);
    high = larger(value, high), low = -larger(-value, -low);
  }
  const float least = -largest(-low);
  const float scale = to_bf16((largest(high) - least) / 15.0f), middle = to_bf16(least + 8.0f * scale);
  const float factor = scale > 1e-30f ? 1.0f / scale : 0.0f;
  for (int64_t i = 0; i < count; i += 8) {
    const F8 scaled = (load8(x + i) - splat8(middle)) * splat8(factor);
    const I8 numbers = round_to_ints(larger(-larger(-scaled, splat8(-7.0f)), splat8(-8.0f))) + 8;
    uint32_t eight = 0;
    for (int j = 0; j < 8; j++) eight |= (uint32_t)numbers[j] << 4 * j;
    memcpy(target + i / 2, &eight, 4);
  }
  return as_int(scale) | (int32_t)((uint32_t)as_int(middle) >> 16);
}

void scatter_heads(const Scatter& s) {
  const float limit = s.stored == FP8_KV ? 448.0f : 127.0f;
  for (int64_t t = 0; t < s.num_tokens; t++) {
    if (s.slots[t] < 0) continue;
    const int64_t block = s.slots[t] / s.block_size, slot = s.slots[t] % s.block_size;
    for (int64_t h = 0; h < s.num_kv_heads; h++) {
      const float* source = s.x + t * s.x_token + h * s.x_head;
      const int64_t place = block * s.block_stride + h * s.head_stride + slot * s.slot_stride;
      if (!s.scales) {
        memcpy(s.cache + 4 * place, source, 4 * s.head_dim);
        continue;
      }
      float* scale = s.scales + (block * s.num_kv_heads + h) * s.block_size + slot;
      if (s.stored == INT4_KV) {
        const int32_t word = store_pairs(source, s.head_dim, s.cache + place);
        memcpy(scale, &word, 4);
        continue;
      }
      const Step step = step_of(source, s.head_dim, limit);
      for (int64_t d = 0; d < s.head_dim; d += 8) {
        const F8 scaled = load8(source + d) * splat8(step.factor);
        store_bytes(s.cache + place + d, s.stored == FP8_KV ? to_fp8(scaled) : round_to_ints(scaled));
      }
      *scale = step.most / limit;
    }
  }
}

void gate_rows(const Gate& g) {
  for (int64_t row = 0; row < g.num_rows; row++) {
    const float* source = g.gate_up + row * g.stride;
    float* target = g.out + row * g.width;
    for (int64_t i = 0; i < g.width; i += 8) {
      store8(target + i, gated(g, load8(source + i), load8(source + g.width + i)));
    }
  }
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
