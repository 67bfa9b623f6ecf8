#include "dense_layers.h"

namespace phloem::kernels {

void Map::apply(Team* team, int64_t num_threads, const float* x, int64_t x_stride, float* out,
                int64_t num_rows) const {
  const Product product{x, x_stride, weight, packing, bias, scales, out, num_rows, depth, num_panels, input_step, input_limit};
  const Loops& own = loops();
  const auto loop = form == WIDENED ? own.multiply_widened : form == INT8 ? own.multiply_int8 : own.multiply_rounded;
  loop(Lease(team, work(num_rows) >= WORTH_SHARING ? num_threads : 1), product);
}

namespace {

// Heads of all tokens, `width` numbers apart: norms, turns, and keys and values into their cache.
void place_heads(const DenseShape& shape, const DenseLayer& layer, const DenseStep& step, const LayerKV& kv,
                 float* heads, int64_t width) {
  const Loops& own = loops();
  const AttentionStep& attention = step.attention;
  const int64_t dim = shape.head_dim, num_tokens = attention.num_tokens;
  float* k = heads + shape.num_heads * dim;
  float* v = k + shape.num_kv_heads * dim;
  for (int64_t t = 0; t < num_tokens && layer.q_norm; t++) {
    float *q_row = heads + t * width, *k_row = k + t * width;
    own.norm_rows({q_row, nullptr, nullptr, layer.q_norm, q_row, shape.num_heads, dim, dim, 0, dim, shape.eps});
    own.norm_rows({k_row, nullptr, nullptr, layer.k_norm, k_row, shape.num_kv_heads, dim, dim, 0, dim, shape.eps});
  }
  if (step.cos_sin) {
    own.rotate_heads({heads, k, step.positions, step.cos_sin, num_tokens, shape.num_heads, shape.num_kv_heads,
                      step.half, width, dim, width, dim});
  }
  const auto scatter = [&](const float* x, char* cache, float* scales) {
    own.scatter_heads({x, cache, scales, step.slots, num_tokens, shape.num_kv_heads, dim, attention.block_size, width,
                       dim, attention.block_stride, attention.head_stride, attention.slot_stride, attention.stored});
  };
  scatter(k, kv.k, kv.k_scales);
  scatter(v, kv.v, kv.v_scales);
}

}  // namespace

void run_layers(Team* team, int64_t num_threads, const DenseShape& shape, const std::vector<DenseLayer>& layers,
                const DenseStep& step, float* normed, float* residual) {
  const Loops& own = loops();
  const int64_t num_tokens = step.attention.num_tokens, num_queries = shape.num_heads * shape.head_dim;
  std::vector<float> heads, attended, gate_up, inner, made;
  for (std::size_t index = 0; index < layers.size(); index++) {
    const DenseLayer& layer = layers[index];
    const int64_t hidden = layer.qkv.depth, width = layer.qkv.num_outputs(), num_inner = layer.down.depth;
    heads.resize(num_tokens * width), attended.resize(num_tokens * num_queries), made.resize(num_tokens * hidden);
    gate_up.resize(num_tokens * layer.gate_up.num_outputs()), inner.resize(num_tokens * num_inner);
    const auto add_norm = [&](const float* norm) {  // what was made to the residual, and that normed
      own.norm_rows({made.data(), residual, residual, norm, normed, num_tokens, hidden, hidden, hidden, hidden, shape.eps});
    };

    layer.qkv.apply(team, num_threads, normed, hidden, heads.data(), num_tokens);
    place_heads(shape, layer, step, step.kv[index], heads.data(), width);
    AttentionStep attention = step.attention;
    attention.q = heads.data(), attention.q_token = width, attention.q_head = shape.head_dim;
    attention.k = step.kv[index].k, attention.v = step.kv[index].v;
    attention.k_scales = step.kv[index].k_scales, attention.v_scales = step.kv[index].v_scales;
    attention.out = attended.data();
    const int64_t work = 2 * step.num_pairs * num_queries;
    own.attend(Lease(team, work >= WORTH_SHARING ? num_threads : 1), attention);
    layer.o.apply(team, num_threads, attended.data(), num_queries, made.data(), num_tokens);

    add_norm(layer.mlp_norm);
    layer.gate_up.apply(team, num_threads, normed, hidden, gate_up.data(), num_tokens);
    own.gate_rows({gate_up.data(), inner.data(), num_tokens, num_inner, 2 * num_inner, shape.gate, shape.alpha, shape.limit});
    layer.down.apply(team, num_threads, inner.data(), num_inner, made.data(), num_tokens);
    add_norm(layer.next_norm);
  }
}

}  // namespace phloem::kernels
