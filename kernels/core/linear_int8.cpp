// Matrix products with int8 weights: a quarter of the bytes, whole numbers inside.
//
//     x [K] fp32 --> largest |x| --> q = round(x / step)  int16 --.
//                                                                 +--> sum of q * w  int32 --> * step * scale + bias
//     weight [N, K] --> largest |w| of each output / 127 --> int8-'
//
// Weights have one scale per output; inputs one step per row, found at run time. Whole-number sums are exact, so their
// order means nothing, and a row's bits depend on the row and the weight alone.
//
// Inputs take all the bits that the sum leaves free: |q| <= (2^31 - 1) / (127 K), at most 32767, which is 14 bits for a
// thousand inputs. Two products of 16 bits and their sum are one instruction of every SIMD unit.
//
// Where a checkpoint asks for it, inputs take eight bits instead, by a step that it gives or by their row's own:
// q = round(x / step) within -128 ... 127, step = largest |x| / 127.5 (compressed-tensors) or / 127
// (BitNet).
//
// Panel p, pair s holds the weights of outputs 16p ... 16p+15 for inputs 2s and 2s+1, an output's two side by side.
#include "level.h"
#include "panels.h"
#include "rounding.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int ROWS = 6;      // of a tile
constexpr int INT8_RUN = 6;  // panels that stay together in a task: two divide it

struct Int8 {
  const float *scales, *steps;
};

template <int NUM_ROWS, int NUM_PANELS>
void multiply_tile(const Tile& tile, const void* more) {
  const Int8& own = *(const Int8*)more;
  I16 sums[NUM_ROWS][NUM_PANELS];
#pragma GCC unroll 16
  for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) sums[row][panel] = splat16(0);
  }
  for (int64_t pair = 0; pair < tile.depth; pair++) {
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) {
      const I16 weights = load_signed_pairs16(tile.weight + panel * tile.panel_bytes + 32 * pair);
#pragma GCC unroll 16
      for (int row = 0; row < NUM_ROWS; row++) {
        const I16 both = splat16(*(const int32_t*)(tile.x + row * tile.x_stride + 4 * pair));
        sums[row][panel] = sums[row][panel] + sum_pairs(both, weights);
      }
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) {
      const F16 factor = splat16(own.steps[tile.row + row]) * load16(own.scales + PANEL * (tile.panel + panel));
      const F16 value = to_floats(sums[row][panel]) * factor + load16(tile.bias + PANEL * panel);
      store16(tile.out + row * tile.out_stride + PANEL * panel, value);
    }
  }
}

template <int NUM_ROWS, int NUM_PANELS>
constexpr void fill(Tiling<ROWS>& tiling) {
  tiling.at_once[NUM_ROWS] = NUM_PANELS;
  tiling.single[NUM_ROWS] = multiply_tile<NUM_ROWS, 1>;
  tiling.several[NUM_ROWS] = multiply_tile<NUM_ROWS, NUM_PANELS>;
}

constexpr Tiling<ROWS> tiling_of() {
  Tiling<ROWS> tiling{};
  fill<1, 6>(tiling), fill<2, 3>(tiling), fill<3, 1>(tiling), fill<4, 1>(tiling), fill<5, 1>(tiling),
      fill<6, 1>(tiling);
  tiling.run = multiply_tile<1, RUN>;
  return tiling;
}

constexpr Tiling<ROWS> TILING = tiling_of();

inline F8 in_eight_bits(F8 x, float step) {
  return larger(-larger(-x / splat8(step), splat8(-127.0f)), splat8(-128.0f));
}

// Rows as int16 [num_rows, 2 num_pairs], the last input of an odd row 0, and the step of each.
void round_rows(const Product& p, int64_t num_pairs, float limit, int16_t* whole, float* steps) {
  const int64_t end = p.depth / 8 * 8;
  const bool has_eight_bits = p.input_step >= 0;
  for (int64_t row = 0; row < p.num_rows; row++) {
    const float* source = p.x + row * p.x_stride;
    int16_t* target = whole + 2 * num_pairs * row;
    const Extent found = extent_of(source, end);
    float most = found.most, nothing = found.nothing;
    for (int64_t i = end; i < p.depth; i++) {
      most = larger_of(most, fabsf(source[i]));
      nothing += source[i] * 0.0f;
    }
    const float factor = most > 0 ? limit / most : 0.0f;
    const float step = p.input_step > 0 ? p.input_step : most / limit;
    steps[row] = step + nothing;
    const auto rounded = [&](F8 x) {
      return round_to_ints(has_eight_bits ? in_eight_bits(x, step > 0 ? step : 1.0f) : x * splat8(factor));
    };
    for (int64_t i = 0; i < end; i += 8) store_shorts(target + i, rounded(load8(source + i)));
    for (int64_t i = end; i < 2 * num_pairs; i++) {
      target[i] = (int16_t)rounded(splat8(i < p.depth ? source[i] : 0.0f))[0];
    }
  }
}

}  // namespace

void multiply_int8(const Lease& team, const Product& p) {
  const int64_t num_pairs = (p.depth + 1) / 2, most = INT32_MAX / (127 * larger_of<int64_t>(1, p.depth));
  Scratch<int16_t> whole(p.num_rows * 2 * num_pairs);
  Scratch<float> steps(p.num_rows);
  const float limit = p.input_step >= 0 ? p.input_limit : (float)smaller_of<int64_t>(INT16_MAX, most);
  round_rows(p, num_pairs, limit, whole.at, steps.at);
  const Int8 more{p.scales, steps.at};
  const Tile tile{(const char*)whole.at,
                  4 * num_pairs,
                  p.weight,
                  32 * num_pairs,
                  p.bias,
                  p.out,
                  PANEL * p.num_panels,
                  num_pairs,
                  4 * num_pairs,
                  nullptr,
                  0,
                  0,
                  0};
  multiply_all(team, TILING, tile, &more, p.num_rows, p.num_panels, INT8_RUN);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
