// The loops over tensors: the arguments of each, and the table of those that were compiled for one level of a processor
// family.
//
// Addresses are those of dense fp32 unless said otherwise; strides count numbers. Nothing is bounds-checked here:
// callers pass tensors whose shapes `ops` has checked. No loop keeps state between calls, so any number of threads may
// call at once.
#pragma once
#include <cstdint>

#include "team.h"

namespace phloem::kernels {

constexpr int PANEL = 16;  // outputs that lie together
constexpr int64_t WORTH_SHARING =
    1 << 17;  // multiply-adds of a loop: 10 to 30 us, some ten times what sharing them takes

// x [num_rows, depth], rows x_stride apart -> out [num_rows, 16 num_panels]; weight and packing as in `LinearWeight`.
struct Product {
  const float* x;
  int64_t x_stride;
  const char* weight;
  int64_t packing;
  const float* bias;    // [16 num_panels]
  const float* scales;  // [16 num_panels] of int8, else null
  float* out;
  int64_t num_rows, depth, num_panels;
  float input_step;   // of int8: of inputs of eight bits, 0 that of each row; below 0 inputs take up to 16 bits
  float input_limit;  // how many of a row's own steps its largest input has
};

// Adds the products of adapters to out, segment by segment (`lora.LoraPlan.table`, whose columns `lora.py` names).
struct LoraStep {
  const int64_t* segments;  // [num_segments, 3]
  int64_t num_segments, layer, place;
  const float* x;
  int64_t x_stride;
  float* out;
  int64_t out_stride;
  float *hidden, *delta;  // memory for the input of the second product, and for its output
};

// How keys and values are stored (`kv_format.py`); int4 has words in place of fp32 scales, and strides count bytes.
enum Stored : int64_t { FP32_KV, INT8_KV, FP8_KV, INT4_KV };

// Rows of one request whose attention is summed; as in `attention_mass.py`.
struct MassRun {
  int64_t row_begin, row_end, num_keys, offset;
};

// Attention of one layer over paged KV: what of the step, what of the layer.
struct AttentionStep {
  const int32_t *chain_starts, *items, *rows, *positions, *tables;  // as in `CpuWork`; tables [B, table_width]
  int64_t num_chains, table_width;
  const float* q;
  int64_t q_token, q_head;
  const char *k, *v;
  int64_t block_stride, head_stride, slot_stride, block_size, stored;
  const float *k_scales, *v_scales;  // of all but fp32
  float* out;
  int64_t num_tokens, num_heads, num_kv_heads, head_dim, window;
  bool in_chunks;         // the window is the chunk of this many keys that a row is in
  const float* sinks;     // [num_heads]; null: none
  float scale, soft_cap;  // both times log2(e); soft_cap 0: none
  const MassRun* runs;    // of which the weights are added to mass
  int64_t num_runs;
  float* mass;
};

// RMS norm of rows of `width`, a multiple of 8: out = x / rms(x) * weight, x being x + residual -> total if there is
// one.
struct Norm {
  const float* x;
  const float* residual;  // null: none, and no total
  float* total;
  const float* weight;
  float* out;
  int64_t num_rows, width, x_stride, residual_stride, out_stride;  // total lies as out does
  float eps;
};

// Turns q and k in place by their positions, half-rotated pairs: the halves of a head are `half` long, a multiple of 8.
struct Rope {
  float *q, *k;
  const int64_t* positions;
  const float* cos_sin;  // [num_positions, 2 half]
  int64_t num_tokens, num_heads, num_kv_heads, half, q_token, q_head, k_token, k_head;
};

// Writes a step's keys (or values) [num_tokens, num_kv_heads, head_dim] into a cache at slots; negative ones are
// skipped.
struct Scatter {
  const float* x;
  char* cache;
  float* scales;  // dense, block by block, head by head; null: none
  const int64_t* slots;
  int64_t num_tokens, num_kv_heads, head_dim, block_size, x_token, x_head, block_stride, head_stride, slot_stride;
  int64_t stored;
};

// gate_up [num_rows, 2 width] = gate | up, rows `stride` apart -> out [num_rows, width].
enum GateKind : int64_t { SILU, GELU_TANH, CLAMPED, SQUARED };
struct Gate {
  const float* gate_up;
  float* out;
  int64_t num_rows, width, stride, kind;
  float alpha, limit;  // of the clamped one
};

// Recurrent layers: segments [num_segments, 4] name the rows begin to end - 1 of a step that follow one another, the slot
// of the state before them (-1: zeros) and the slot that the state after them goes to. No segment writes what another
// one reads or writes.

// A causal convolution of each channel by itself: out[t] = bias + sum over j of weight[j] * x[t - width + 1 + j], and
// SiLU of that if `has_silu`. The state is the last width - 1 inputs.
struct Convolution {
  const float *x, *weight, *bias;  // [num_rows, channels], rows x_stride apart; [width, channels]; [channels] or null
  float *states, *out;             // [slots, width - 1, channels]; [num_rows, channels]
  const int64_t* segments;
  int64_t num_segments, x_stride, channels, width;  // channels: a multiple of 8
  bool has_silu;
};

// States that are a matrix for each head, one token after the other, with d = softplus(a + step_bias) within limits.
// The gated delta rule (Yang et al., arXiv 2412.06464, equation 10), if there is a b; q and k have length 1 then, and q
// is divided by sqrt(key_dim) too:
//     S = exp(-rate * d) S;   S = S + k (x) sigmoid(b) (v - S^T k);   out = S^T q
// If the decay is of each key (Kimi Delta Attention: arXiv 2510.26692), a and step_bias have a number for each, and
// exp(-rate * d) is a diagonal matrix.
// A selective state space (Mamba 2: Dao and Gu, arXiv 2405.21060), else:
//     S = exp(-rate * d) S + k (x) d v;   out = S^T q + skip v
struct HeadStates {
  const float *q, *k, *v;  // [num_rows, key_heads, key_dim] twice, [num_rows, heads, value_dim]
  const float *a, *b;      // [num_rows, heads], or a [num_rows, heads, key_dim]; b null: a state space
  const float *rate, *step_bias, *skip;  // [heads], but for a step_bias of each key; skip of a state space alone
  float least, most;                     // of d
  float *states, *out;     // [slots, heads, key_dim, value_dim]; [num_rows, heads, value_dim], dense
  const int64_t* segments;
  int64_t num_segments, qk_stride, v_stride, a_stride, b_stride;
  int64_t heads, key_heads, key_dim, value_dim;  // dims: multiples of 8
  bool by_key;
};

// A selective state space of each channel by itself (Mamba: Gu and Dao, arXiv 2312.00752), with
// d = softplus(a + step_bias):
//     S[n] = exp(-rate[n] * d) S[n] + b[n] d x;   out = sum over n of c[n] S[n] + skip x
struct ChannelStates {
  const float *x, *a, *b, *c;            // [num_rows, channels] twice, [num_rows, state_dim] twice
  const float *rate, *step_bias, *skip;  // [state_dim, channels], [channels] twice
  float *states, *out;                   // [slots, state_dim, channels]; [num_rows, channels], dense
  const int64_t* segments;
  int64_t num_segments, x_stride, a_stride, bc_stride, channels, state_dim;  // channels: a multiple of 8
};

// Penalties and biases of `LogitEdits`, added in place to logits [num_rows, vocab_size].
struct Edits {
  float* logits;
  int64_t num_rows, vocab_size;
  const int16_t* counts;  // [., vocab_size]; null: none
  const float* biases;    // the same
  const int32_t *count_rows, *bias_rows;
  const float *repetition, *presence, *frequency;
  const int32_t* drafted;  // [num_rows, num_drafted]
  int64_t num_drafted;
};

// One token of each row of logits [num_rows, vocab_size], as `plain.sample.sample` defines it; -1 where there is
// none.
struct Sampling {
  const float* logits;
  int64_t num_rows, vocab_size;
  const int32_t* masks;  // [., mask_width] bits; null: all tokens are allowed
  int64_t mask_width;
  const int32_t* mask_rows;
  const float* temperature;
  const int32_t* top_k;
  const float *top_p, *min_p;
  const int64_t *seeds, *positions;
  int64_t* token_ids;
};

// Log-probabilities of a token of each row, and of the num_top likeliest.
struct Report {
  const float* logits;
  int64_t num_rows, vocab_size;
  const int64_t* token_ids;
  float* chosen;     // [num_rows]
  int64_t* top_ids;  // [num_rows, num_top]
  float* top;
  int64_t num_top;
};

// The loops compiled for one level of a processor family; see level.h.
struct Loops {
  void (*multiply_widened)(const Lease&, const Product&);
  void (*multiply_int8)(const Lease&, const Product&);
  void (*multiply_rounded)(const Lease&, const Product&);
  void (*add_loras)(const Lease&, const LoraStep&);
  void (*attend)(const Lease&, const AttentionStep&);
  void (*norm_rows)(const Norm&);
  void (*rotate_heads)(const Rope&);
  void (*scatter_heads)(const Scatter&);
  void (*gate_rows)(const Gate&);
  void (*convolve)(const Lease&, const Convolution&);
  void (*advance_heads)(const Lease&, const HeadStates&);
  void (*advance_channels)(const Lease&, const ChannelStates&);
  void (*edit_rows)(const Edits&);
  void (*sample_rows)(const Sampling&);
  void (*report_rows)(const Report&);
};

// Those for the processor that runs this.
const Loops& loops();

}  // namespace phloem::kernels
