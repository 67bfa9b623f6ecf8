// Bindings of the layers of a plain decoder: addresses, sizes and strides are integers, as of single loops.
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "dense_layers.h"
#include "lists.h"

namespace nb = nanobind;

namespace phloem::kernels {
namespace {

template <class T>
T* at(int64_t address) {
  return reinterpret_cast<T*>(address);
}

constexpr float LOG2_E = 1.4426950408889634f;

struct DenseLayers {
  DenseLayers(int64_t num_heads, int64_t num_kv_heads, int64_t head_dim, int64_t gate, double alpha, double limit,
              double eps, double scale, double soft_cap)
      : shape{num_heads,    num_kv_heads,          head_dim,
              gate,         (float)alpha,          (float)limit,
              (float)eps,   (float)scale * LOG2_E, (float)soft_cap * LOG2_E} {}

  void add(const Map& qkv, const Map& o, const Map& gate_up, const Map& down, int64_t q_norm, int64_t k_norm,
           int64_t mlp_norm, int64_t next_norm) {
    layers.push_back({qkv, o, gate_up, down, at<float>(q_norm), at<float>(k_norm), at<float>(mlp_norm),
                      at<float>(next_norm)});
  }

  // kv: addresses of keys, values and the scales of both, layer by layer.
  void run(Team* team, int64_t num_threads, const Lists& lists, int64_t num_tokens, int64_t positions, int64_t slots,
           int64_t cos_sin, int64_t half, const std::vector<int64_t>& kv, int64_t block_stride, int64_t head_stride,
           int64_t slot_stride, int64_t block_size, int64_t stored, int64_t normed, int64_t residual) const {
    DenseStep step{};
    AttentionStep& attention = step.attention = lists.step();
    attention.num_tokens = num_tokens, attention.num_heads = shape.num_heads;
    attention.num_kv_heads = shape.num_kv_heads, attention.head_dim = shape.head_dim;
    attention.block_stride = block_stride, attention.head_stride = head_stride, attention.slot_stride = slot_stride;
    attention.block_size = block_size, attention.stored = stored;
    attention.scale = shape.scale, attention.soft_cap = shape.soft_cap;
    step.num_pairs = lists.num_pairs, step.positions = at<int64_t>(positions), step.slots = at<int64_t>(slots);
    step.cos_sin = at<float>(cos_sin), step.half = half;
    for (size_t i = 0; i + 4 <= kv.size(); i += 4) {
      step.kv.push_back({at<char>(kv[i]), at<char>(kv[i + 1]), at<float>(kv[i + 2]), at<float>(kv[i + 3])});
    }
    if (step.kv.size() != layers.size()) throw nb::value_error("kv: four addresses for each layer");
    int64_t work = 0;
    for (const DenseLayer& layer : layers) {
      for (const Map* map : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) work += map->work(num_tokens);
    }
    run_unlocked(work, [&] {
      run_layers(team, num_threads, shape, layers, step, at<float>(normed), at<float>(residual));
    });
  }

  DenseShape shape;
  std::vector<DenseLayer> layers;
};

}  // namespace

void add_layers(nb::module_& module) {
  nb::class_<Map>(module, "Map")
      .def("__init__",
           [](Map* map, int64_t form, int64_t weight, int64_t packing, int64_t bias, int64_t scales, int64_t depth,
              int64_t num_panels, double input_step, double input_limit) {
             new (map) Map{form,  at<char>(weight), packing,           at<float>(bias),   at<float>(scales),
                           depth, num_panels,       (float)input_step, (float)input_limit};
           });
  nb::class_<DenseLayers>(module, "DenseLayers")
      .def(nb::init<int64_t, int64_t, int64_t, int64_t, double, double, double, double, double>())
      .def("add", &DenseLayers::add)
      .def("run", &DenseLayers::run);
}

}  // namespace phloem::kernels
