// Layers of a plain decoder (RMS norm, attention, RMS norm, gated MLP), one after the other in one call.
//
// A call of each loop costs its caller some microseconds of Python, more where weights have just passed through the
// processor's caches: with one row of a model of a hundred million weights a fifth of the step. Here the same loops are
// called with the same arguments, so every bit is as from single calls.
#pragma once
#include <cstddef>
#include <vector>

#include "loops.h"

namespace phloem::kernels {

// Which loop multiplies with a weight.
enum Form : int64_t { WIDENED, INT8, ROUNDED };

// A linear map to rows of 16 num_panels numbers, as in `Product`.
struct Map {
  int64_t form;
  const char* weight;
  int64_t packing;
  const float *bias, *scales;
  int64_t depth, num_panels;
  float input_step, input_limit;

  int64_t num_outputs() const { return PANEL * num_panels; }
  int64_t work(int64_t num_rows) const { return num_rows * depth * num_outputs(); }
  // x [num_rows, depth], rows x_stride apart -> out, dense
  void apply(Team* team, int64_t num_threads, const float* x, int64_t x_stride, float* out, int64_t num_rows) const;
};

// Norms are those of attention's queries and keys (null: none), of the MLP, and of the layer after this one.
struct DenseLayer {
  Map qkv, o, gate_up, down;
  const float *q_norm, *k_norm, *mlp_norm, *next_norm;
};

// What all layers have in common; scale and soft_cap as in `AttentionStep`.
struct DenseShape {
  int64_t num_heads, num_kv_heads, head_dim, gate;
  float alpha, limit, eps, scale, soft_cap;
};

// A layer's keys and values.
struct LayerKV {
  char *k, *v;
  float *k_scales, *v_scales;
};

// A step: attention has what of it is the same for all layers; cos_sin null: no positions.
struct DenseStep {
  AttentionStep attention;
  int64_t num_pairs;
  const int64_t *positions, *slots;
  const float* cos_sin;
  int64_t half;
  std::vector<LayerKV> kv;
};

// normed and residual [num_tokens, hidden]: what goes into the first layer, after its norm and before it; in their place
// what goes into the layer after the last. Throws std::bad_alloc.
void run_layers(Team* team, int64_t num_threads, const DenseShape& shape, const std::vector<DenseLayer>& layers,
                const DenseStep& step, float* normed, float* residual);

}  // namespace phloem::kernels
