// Adapters of low rank: for each segment of rows two small products.
//
//     hidden = x A^T         one chain of multiply-adds for each number, in order of the inputs
//     hidden = hidden scale
//     delta  = hidden B^T    as above
//     y      = y + delta
//
// So a row's bits depend on the row and its adapter, never on the other rows, on how the step is cut, or on how many
// threads do it; and a row without an adapter is not touched. Rows go through in blocks, so that what is between the
// products stays in the cache.
#include "level.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int64_t BLOCK_ROWS = 128;
constexpr int NUM_PLACES = 4, MAX_PARTS = 4;

// Columns of an adapter's table, as `lora.py` lays them out.
struct Part {
  int64_t up, packing, rank, first_rank, num_outputs, first_output;
};

struct Columns {
  int64_t down, packing, depth, width, zeros, scales, num_parts;
  Part parts[MAX_PARTS];
};

void add_row(float* out, const float* delta, int64_t count) {
  int64_t i = 0;
  for (; i + 8 <= count; i += 8) store8(out + i, load8(out + i) + load8(delta + i));
  for (; i < count; i++) out[i] += delta[i];
}

// What the parts of an adapter add to a block of rows.
void add_block(const Lease& team, const LoraStep& s, const Columns& own, const float* x, float* out, int64_t num_rows) {
  const float *zeros = (const float*)own.zeros, *scales = (const float*)own.scales;
  multiply_widened(team, {x, s.x_stride, (const char*)own.down, own.packing, zeros, nullptr, s.hidden, num_rows,
                          own.depth, own.width / PANEL});
  for (int64_t row = 0; row < num_rows; row++) {
    float* hidden = s.hidden + row * own.width;
    for (int64_t i = 0; i < own.width; i += 8) store8(hidden + i, load8(hidden + i) * load8(scales + i));
  }
  for (int64_t index = 0; index < own.num_parts; index++) {
    const Part& part = own.parts[index];
    const int64_t num_panels = (part.num_outputs + PANEL - 1) / PANEL;
    multiply_widened(team, {s.hidden + part.first_rank, own.width, (const char*)part.up, part.packing, zeros, nullptr,
                            s.delta, num_rows, part.rank, num_panels});
    for (int64_t row = 0; row < num_rows; row++) {
      add_row(out + row * s.out_stride + part.first_output, s.delta + row * PANEL * num_panels, part.num_outputs);
    }
  }
}

}  // namespace

void add_loras(const Lease& team, const LoraStep& s) {
  for (int64_t index = 0; index < s.num_segments; index++) {
    const int64_t *segment = s.segments + 3 * index, begin = segment[0], end = segment[1];
    const Columns& own = ((const Columns*)segment[2])[NUM_PLACES * s.layer + s.place];
    if (!own.down) continue;
    for (int64_t first = begin; first < end; first += BLOCK_ROWS) {
      const int64_t num_rows = smaller_of(BLOCK_ROWS, end - first);
      add_block(team, s, own, s.x + first * s.x_stride, s.out + first * s.out_stride, num_rows);
    }
  }
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
