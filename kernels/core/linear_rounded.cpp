// Products with grouped weights of four and eight bits whose inputs may be rounded: whole numbers inside.
//
//     x [K] fp32 --> of each group: largest |x| -> q = round(x / step)  int16, and their sum --.
//     weight [N, K] --> numbers n of four or eight bits, a zero z and a scale of each group ---+
//                                                                                              v
//     out = bias + sum over groups in order of  (sum of q * n - z * sum of q)  * (step * scale)
//                                                int32, exact                    one multiply-add for each group
//                  and, in place of z,          (sum of q) * (step * offset)     one more
//
// As with int8 weights two products of 16 bits and their sum are one instruction, so weights of four bits take the
// arithmetic of eight and half the reading. Sums of a group are exact and groups come in order: an output is one chain
// of multiply-adds, and a row's bits depend on the row and the weight alone. Inputs keep 15 bits and a sign of the
// largest of their own group, so that one that sticks out costs no other group anything; weights lose nothing.
//
// A word of 32 bits, shifted and masked, is the numbers of two inputs of an output, four inputs apart (two, of eight
// bits): rounded inputs lie in that order.
#include "level.h"
#include "grouped.h"
#include "panels.h"
#include "rounding.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int ROWS = HAS_512 ? 8 : 3;  // of a tile: two registers for each of its sums

// Of a row's group.
struct Factor {
  float step;
  int32_t sum;  // of the rounded inputs
};

struct Rounded {
  GroupedLayout layout;
  const Factor* factors;  // [num_rows, num_groups]
};

// The numbers of two inputs of each output, as int16: from 0 on of four bits, signed of eight.
template <int BITS>
[[gnu::always_inline]] inline I16 read_pair(I16 words, int pair) {
  if constexpr (BITS == 4) return shift_down(words, 4 * pair) & 0x000F000F;
  return shift_shorts_down(pair == 0 ? shift_shorts_up(words) : words);
}

template <int BITS, int NUM_ROWS, int NUM_PANELS>
void multiply_tile(const Tile& tile, const void* more) {
  constexpr int PER_WORD = 32 / BITS;
  const GroupedLayout layout = ((const Rounded*)more)->layout;
  const Factor* factors = ((const Rounded*)more)->factors + tile.row * layout.num_groups;
  F16 totals[NUM_ROWS][NUM_PANELS];
#pragma GCC unroll 16
  for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) totals[row][panel] = load16(tile.bias + PANEL * panel);
  }
  for (int64_t group = 0; group < layout.num_groups; group++) {
    I16 sums[NUM_ROWS][NUM_PANELS];
#pragma GCC unroll 16
    for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) sums[row][panel] = splat16(0);
    }
    for (int64_t line = 0; line < layout.num_lines; line++) {
      const int64_t input = group * layout.size + PER_WORD * line;
      I16 words[NUM_PANELS];
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) {
        words[panel] = load_ints16(layout.group(tile.weight + panel * tile.panel_bytes, group) + 64 * (line + 1));
      }
      tile.ask(input);
#pragma GCC unroll 4
      for (int pair = 0; pair < PER_WORD / 2; pair++) {
        I16 numbers[NUM_PANELS];
#pragma GCC unroll 16
        for (int panel = 0; panel < NUM_PANELS; panel++) numbers[panel] = read_pair<BITS>(words[panel], pair);
#pragma GCC unroll 16
        for (int row = 0; row < NUM_ROWS; row++) {
          const I16 both = splat16(*(const int32_t*)(tile.x + row * tile.x_stride + 2 * input + 4 * pair));
#pragma GCC unroll 16
          for (int panel = 0; panel < NUM_PANELS; panel++) {
            sums[row][panel] = sums[row][panel] + sum_pairs(both, numbers[panel]);
          }
        }
      }
    }
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) {
      const char* own = tile.weight + panel * tile.panel_bytes;
      const char* end = layout.end(own, group);
      const F16 scale = load16(layout.group(own, group));
#pragma GCC unroll 16
      for (int row = 0; row < NUM_ROWS; row++) {
        const Factor factor = factors[row * layout.num_groups + group];
        if (layout.has_offsets) {
          totals[row][panel] = fma(splat16(factor.step * (float)factor.sum), load16(end), totals[row][panel]);
        } else {  // numbers of four bits count from 0 here
          const I16 zero = load_signed16(end) + splat16(BITS == 4 ? 8 : 0);
          sums[row][panel] = sums[row][panel] - zero * splat16(factor.sum);
        }
        totals[row][panel] = fma(to_floats(sums[row][panel]), splat16(factor.step) * scale, totals[row][panel]);
      }
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
    for (int panel = 0; panel < NUM_PANELS; panel++) {
      store16(tile.out + row * tile.out_stride + PANEL * panel, totals[row][panel]);
    }
  }
}

constexpr int panels_at_once(int rows) {
  return !HAS_512 ? (rows == 1 ? 2 : 1) : rows == 1 ? 8 : rows == 2 ? 4 : rows <= 4 ? 2 : 1;
}

template <int BITS, int NUM_ROWS = ROWS>
constexpr Tiling<ROWS> tiling_of(Tiling<ROWS> tiling = {}) {
  tiling.at_once[NUM_ROWS] = panels_at_once(NUM_ROWS);
  tiling.single[NUM_ROWS] = multiply_tile<BITS, NUM_ROWS, 1>;
  tiling.several[NUM_ROWS] = multiply_tile<BITS, NUM_ROWS, panels_at_once(NUM_ROWS)>;
  tiling.run = multiply_tile<BITS, 1, RUN>;
  if constexpr (NUM_ROWS > 1) return tiling_of<BITS, NUM_ROWS - 1>(tiling);
  return tiling;
}

constexpr Tiling<ROWS> OF_FOUR = tiling_of<4>(), OF_EIGHT = tiling_of<8>();

// Eight whole numbers as int16, in the order in which their weights come out of a word.
template <int BITS>
[[gnu::always_inline]] inline void store_in_order(int16_t* to, I8 v) {
  const Shorts8 s = __builtin_convertvector(v, Shorts8);
  const Shorts8 ordered = BITS == 4 ? Shorts8{s[0], s[4], s[1], s[5], s[2], s[6], s[3], s[7]}
                                    : Shorts8{s[0], s[2], s[1], s[3], s[4], s[6], s[5], s[7]};
  store_as(to, ordered);
}

// Rows as int16 [num_rows, K], and their factors.
template <int BITS>
void round_rows(const Product& p, const GroupedLayout& layout, int16_t* whole, Factor* factors) {
  // so that sums, with zeros subtracted, fit int32
  const float limit = smaller_of<int64_t>(INT16_MAX, INT32_MAX / ((2 << BITS) * layout.size));
  for (int64_t row = 0; row < p.num_rows; row++) {
    for (int64_t group = 0; group < layout.num_groups; group++) {
      const float* source = p.x + row * p.x_stride + group * layout.size;
      int16_t* target = whole + row * p.depth + group * layout.size;
      const Extent found = extent_of(source, layout.size);
      const F8 factor = splat8(found.most > 0 ? limit / found.most : 0.0f);
      I8 sums = splat8(0);
      for (int64_t i = 0; i < layout.size; i += 8) {
        const I8 numbers = round_to_ints(load8(source + i) * factor);
        store_in_order<BITS>(target + i, numbers);
        sums += numbers;
      }
      int32_t sum = 0;
      for (int i = 0; i < 8; i++) sum += sums[i];
      factors[row * layout.num_groups + group] = {found.most / limit + found.nothing, sum};
    }
  }
}

}  // namespace

void multiply_rounded(const Lease& team, const Product& p) {
  const GroupedLayout layout(p.packing, p.depth);
  const bool is_four = has_four_bits(kind_of(p.packing));
  Scratch<int16_t> whole(p.num_rows * p.depth);
  Scratch<Factor> factors(p.num_rows * layout.num_groups);
  (is_four ? round_rows<4> : round_rows<8>)(p, layout, whole.at, factors.at);
  const Rounded more{layout, factors.at};
  const Tile tile{(const char*)whole.at,
                  2 * p.depth,
                  p.weight,
                  layout.panel_bytes(),
                  p.bias,
                  p.out,
                  PANEL * p.num_panels,
                  p.depth,
                  2 * p.depth,
                  nullptr,
                  0,
                  0,
                  0};
  multiply_all(team, is_four ? OF_FOUR : OF_EIGHT, tile, &more, p.num_rows, p.num_panels, RUN);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
