// Bindings of the loops: addresses, sizes and strides are integers. Nothing is checked here; the functions of
// `kernels/cpu` know the shapes. Loops that may take long release the GIL.
#include "bind.h"

#include "dense_layers.h"
#include "lists.h"
#include "panels_of_weights.h"

namespace nb = nanobind;

namespace phloem::kernels {
namespace {

template <class T>
T* at(int64_t address) {
  return reinterpret_cast<T*>(address);
}

void multiply(Team* team, int64_t num_threads, int64_t form, int64_t x, int64_t x_stride, int64_t weight,
              int64_t packing, int64_t bias, int64_t scales, int64_t out, int64_t num_rows, int64_t depth,
              int64_t num_panels, double input_step, double input_limit) {
  const Map map{form,  at<char>(weight), packing,           at<float>(bias),   at<float>(scales),
                depth, num_panels,       (float)input_step, (float)input_limit};
  run_unlocked(map.work(num_rows),
               [&] { map.apply(team, num_threads, at<float>(x), x_stride, at<float>(out), num_rows); });
}

void add_loras(Team* team, int64_t num_threads, int64_t most_work, int64_t segments, int64_t num_segments,
               int64_t layer, int64_t place, int64_t x, int64_t x_stride, int64_t out, int64_t out_stride,
               int64_t hidden, int64_t delta) {
  const LoraStep step{at<int64_t>(segments), num_segments,    layer,          place,
                      at<float>(x),          x_stride,        at<float>(out), out_stride,
                      at<float>(hidden),     at<float>(delta)};
  run_unlocked(most_work, [&] { loops().add_loras(Lease(team, most_work >= WORTH_SHARING ? num_threads : 1), step); });
}

void attend(Team* team, int64_t num_threads, const Lists& lists, int64_t q, int64_t q_token, int64_t q_head, int64_t k,
            int64_t v, int64_t block_stride, int64_t head_stride, int64_t slot_stride, int64_t block_size,
            int64_t stored, int64_t k_scales, int64_t v_scales, int64_t out, int64_t num_tokens, int64_t num_heads,
            int64_t num_kv_heads, int64_t head_dim, int64_t window, bool in_chunks, int64_t sinks, double scale,
            double soft_cap, int64_t runs, int64_t num_runs, int64_t mass) {
  constexpr float LOG2_E = 1.4426950408889634f;
  AttentionStep step = lists.step();
  step.q = at<float>(q), step.q_token = q_token, step.q_head = q_head;
  step.k = at<char>(k), step.v = at<char>(v), step.stored = stored, step.block_size = block_size;
  step.block_stride = block_stride, step.head_stride = head_stride, step.slot_stride = slot_stride;
  step.k_scales = at<float>(k_scales), step.v_scales = at<float>(v_scales), step.sinks = at<float>(sinks);
  step.out = at<float>(out), step.num_tokens = num_tokens, step.num_heads = num_heads, step.num_kv_heads = num_kv_heads;
  step.head_dim = head_dim, step.window = window, step.in_chunks = in_chunks;
  step.scale = (float)scale * LOG2_E, step.soft_cap = (float)soft_cap * LOG2_E;
  step.runs = at<MassRun>(runs), step.num_runs = num_runs, step.mass = at<float>(mass);
  const int64_t work = 2 * lists.num_pairs * num_heads * head_dim;
  run_unlocked(work, [&] { loops().attend(Lease(team, work >= WORTH_SHARING ? num_threads : 1), step); });
}

void norm_rows(int64_t x, int64_t residual, int64_t total, int64_t weight, int64_t out, int64_t num_rows, int64_t width,
               int64_t x_stride, int64_t residual_stride, int64_t out_stride, double eps) {
  const Norm norm{
      at<float>(x), at<float>(residual), at<float>(total), at<float>(weight), at<float>(out), num_rows, width,
      x_stride,     residual_stride,     out_stride,       (float)eps};
  run_unlocked(num_rows * width, [&] { loops().norm_rows(norm); });
}

void rotate_heads(int64_t q, int64_t k, int64_t positions, int64_t cos_sin, int64_t num_tokens, int64_t num_heads,
                  int64_t num_kv_heads, int64_t half, int64_t q_token, int64_t q_head, int64_t k_token,
                  int64_t k_head) {
  const Rope rope{at<float>(q),
                  at<float>(k),
                  at<int64_t>(positions),
                  at<float>(cos_sin),
                  num_tokens,
                  num_heads,
                  num_kv_heads,
                  half,
                  q_token,
                  q_head,
                  k_token,
                  k_head};
  run_unlocked(2 * num_tokens * (num_heads + num_kv_heads) * half, [&] { loops().rotate_heads(rope); });
}

void scatter_heads(int64_t x, int64_t cache, int64_t scales, int64_t slots, int64_t num_tokens, int64_t num_kv_heads,
                   int64_t head_dim, int64_t block_size, int64_t x_token, int64_t x_head, int64_t block_stride,
                   int64_t head_stride, int64_t slot_stride, int64_t stored) {
  const Scatter scatter{at<float>(x), at<char>(cache), at<float>(scales), at<int64_t>(slots),
                        num_tokens,   num_kv_heads,    head_dim,          block_size,
                        x_token,      x_head,          block_stride,      head_stride,
                        slot_stride,  stored};
  run_unlocked(2 * num_tokens * num_kv_heads * head_dim, [&] { loops().scatter_heads(scatter); });
}

void gate_rows(int64_t gate_up, int64_t out, int64_t num_rows, int64_t width, int64_t stride, int64_t kind,
               double alpha, double limit) {
  const Gate gate{at<float>(gate_up), at<float>(out), num_rows, width, stride, kind, (float)alpha, (float)limit};
  run_unlocked(8 * num_rows * width, [&] { loops().gate_rows(gate); });
}

void convolve(Team* team, int64_t num_threads, int64_t x, int64_t weight, int64_t bias, int64_t states, int64_t out,
              int64_t segments, int64_t num_segments, int64_t num_rows, int64_t x_stride, int64_t channels,
              int64_t width, bool has_silu) {
  const Convolution convolution{at<float>(x),          at<float>(weight), at<float>(bias), at<float>(states),
                                at<float>(out),        at<int64_t>(segments), num_segments, x_stride,
                                channels,              width,             has_silu};
  const int64_t work = num_rows * channels * (width + 8);
  run_unlocked(work, [&] { loops().convolve(Lease(team, work >= WORTH_SHARING ? num_threads : 1), convolution); });
}

void advance_heads(Team* team, int64_t num_threads, int64_t q, int64_t k, int64_t v, int64_t a, int64_t b, int64_t rate,
                   int64_t step_bias, int64_t skip, double least, double most, int64_t states, int64_t out,
                   int64_t segments, int64_t num_segments, int64_t num_rows, int64_t qk_stride, int64_t v_stride,
                   int64_t a_stride, int64_t b_stride, int64_t heads, int64_t key_heads, int64_t key_dim,
                   int64_t value_dim, bool by_key) {
  const HeadStates job{at<float>(q),    at<float>(k),         at<float>(v),      at<float>(a),
                       at<float>(b),    at<float>(rate),      at<float>(step_bias), at<float>(skip),
                       (float)least,    (float)most,          at<float>(states), at<float>(out),
                       at<int64_t>(segments), num_segments,   qk_stride,         v_stride,
                       a_stride,        b_stride,             heads,             key_heads,
                       key_dim,         value_dim,            by_key};
  const int64_t work = 3 * num_rows * heads * key_dim * value_dim;
  run_unlocked(work, [&] { loops().advance_heads(Lease(team, work >= WORTH_SHARING ? num_threads : 1), job); });
}

void advance_channels(Team* team, int64_t num_threads, int64_t x, int64_t a, int64_t b, int64_t c, int64_t rate,
                      int64_t step_bias, int64_t skip, int64_t states, int64_t out, int64_t segments,
                      int64_t num_segments, int64_t num_rows, int64_t x_stride, int64_t a_stride, int64_t bc_stride,
                      int64_t channels, int64_t state_dim) {
  const ChannelStates job{at<float>(x),         at<float>(a),      at<float>(b),      at<float>(c),
                          at<float>(rate),      at<float>(step_bias), at<float>(skip), at<float>(states),
                          at<float>(out),       at<int64_t>(segments), num_segments,  x_stride,
                          a_stride,             bc_stride,         channels,          state_dim};
  const int64_t work = num_rows * channels * (4 * state_dim + 16);
  run_unlocked(work, [&] { loops().advance_channels(Lease(team, work >= WORTH_SHARING ? num_threads : 1), job); });
}

void edit_rows(int64_t logits, int64_t num_rows, int64_t vocab_size, int64_t counts, int64_t biases, int64_t count_rows,
               int64_t bias_rows, int64_t repetition, int64_t presence, int64_t frequency, int64_t drafted,
               int64_t num_drafted) {
  const Edits edits{at<float>(logits),
                    num_rows,
                    vocab_size,
                    at<int16_t>(counts),
                    at<float>(biases),
                    at<int32_t>(count_rows),
                    at<int32_t>(bias_rows),
                    at<float>(repetition),
                    at<float>(presence),
                    at<float>(frequency),
                    at<int32_t>(drafted),
                    num_drafted};
  run_unlocked(num_rows * vocab_size, [&] { loops().edit_rows(edits); });
}

void sample_rows(int64_t logits, int64_t num_rows, int64_t vocab_size, int64_t masks, int64_t mask_width,
                 int64_t mask_rows, int64_t temperature, int64_t top_k, int64_t top_p, int64_t min_p, int64_t seeds,
                 int64_t positions, int64_t token_ids) {
  const Sampling sampling{at<float>(logits),      num_rows,           vocab_size,
                          at<int32_t>(masks),     mask_width,         at<int32_t>(mask_rows),
                          at<float>(temperature), at<int32_t>(top_k), at<float>(top_p),
                          at<float>(min_p),       at<int64_t>(seeds), at<int64_t>(positions),
                          at<int64_t>(token_ids)};
  run_unlocked(8 * num_rows * vocab_size, [&] { loops().sample_rows(sampling); });
}

void report_rows(int64_t logits, int64_t num_rows, int64_t vocab_size, int64_t token_ids, int64_t chosen,
                 int64_t top_ids, int64_t top, int64_t num_top) {
  const Report report{at<float>(logits),    num_rows,       vocab_size, at<int64_t>(token_ids), at<float>(chosen),
                      at<int64_t>(top_ids), at<float>(top), num_top};
  run_unlocked(8 * num_rows * vocab_size, [&] { loops().report_rows(report); });
}

bool pack_short(int64_t bits, int64_t item_bytes, int64_t num_outputs, int64_t num_inputs, int64_t panels) {
  bool is_exact = false;
  run_unlocked(8 * num_outputs * num_inputs, [&] {
    is_exact = item_bytes == 2 ? pack_shorts(at<uint16_t>(bits), num_outputs, num_inputs, at<uint32_t>(panels))
                               : pack_as_short(at<uint32_t>(bits), num_outputs, num_inputs, at<uint32_t>(panels));
  });
  return is_exact;
}

void pack_wide(int64_t bits, int64_t num_outputs, int64_t num_inputs, int64_t panels) {
  run_unlocked(8 * num_outputs * num_inputs,
               [&] { pack_words(at<uint32_t>(bits), num_outputs, num_inputs, at<uint32_t>(panels)); });
}

bool unpack_rows(int64_t panels, int64_t item_bytes, int64_t num_panels, int64_t rows, int64_t num_rows,
                 int64_t num_inputs, int64_t out) {
  const RowsWanted wanted{num_panels, at<int64_t>(rows), num_rows, num_inputs, at<uint32_t>(out)};
  bool are_there = false;
  run_unlocked(16 * num_rows * num_inputs, [&] {
    are_there =
        item_bytes == 2 ? unpack_shorts(at<uint16_t>(panels), wanted) : unpack_words(at<uint32_t>(panels), wanted);
  });
  return are_there;
}

bool unpack_grouped_rows(int64_t panels, int64_t num_panels, int64_t rows, int64_t num_rows, int64_t num_inputs,
                         int64_t out, int64_t size, int64_t bits, bool has_offsets) {
  const RowsWanted wanted{num_panels, at<int64_t>(rows), num_rows, num_inputs, at<uint32_t>(out)};
  bool are_there = false;
  run_unlocked(16 * num_rows * num_inputs,
               [&] { are_there = unpack_groups(at<uint8_t>(panels), wanted, size, (int)bits, has_offsets); });
  return are_there;
}

}  // namespace

void add_loops(nb::module_& module) {
  module.attr("WORTH_SHARING") = WORTH_SHARING;
  nb::class_<Team>(module, "Team")
      .def(nb::init<>())
      .def_rw("num_threads", &Team::num_threads)
      .def("take", &Team::take)
      .def("give_back", &Team::give_back)
      .def("forget", &Team::forget)
      .def_prop_ro("num_helpers", &Team::num_helpers);
  nb::class_<Lists>(module, "Lists").def(nb::init<Vector, Matrix, Vector, Vector, Matrix, int64_t>());
  module.def("multiply", multiply);
  module.def("add_loras", add_loras);
  module.def("attend", attend);
  module.def("norm_rows", norm_rows);
  module.def("rotate_heads", rotate_heads);
  module.def("scatter_heads", scatter_heads);
  module.def("gate_rows", gate_rows);
  module.def("convolve", convolve);
  module.def("advance_heads", advance_heads);
  module.def("advance_channels", advance_channels);
  module.def("edit_rows", edit_rows);
  module.def("sample_rows", sample_rows);
  module.def("report_rows", report_rows);
  module.def("pack_short", pack_short);
  module.def("pack_wide", pack_wide);
  module.def("unpack_rows", unpack_rows);
  module.def("unpack_grouped_rows", unpack_grouped_rows);
}

}  // namespace phloem::kernels
