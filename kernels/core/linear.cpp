// Matrix products whose bits do not depend on the number of rows.
//
// Every output is one chain of fused multiply-adds, from its bias through inputs 0, 1, 2 ... in order. Libraries pick
// another kernel, and with it another order, by the number of rows, so that a token's numbers would depend on what else
// is in the step. Here the order is the definition, and tiles only choose which chains run side by side:
//
//            16 outputs of a panel
//     row 0  ####     a tile: its sums stay in registers over all inputs; an input of each row is broadcast to
//     row 1  ####     16 lanes and meets the 16 weights of the step. Few rows take several panels at a time,
//       ...           because a processor needs about eight independent chains to be busy.
//
// Weights come from memory, once; with up to a dozen rows that takes as long as the arithmetic, so the two must
// overlap: a tile asks for its part of the panels to come. Weights in bf16, MXFP4 and groups of four or eight bits are
// widened in registers, exactly (with offsets rounded once).
#include "level.h"
#include "grouped.h"
#include "panels.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int ROWS = HAS_512 ? 12 : 6;  // of a tile: 12 registers of sums; AVX2 has 16, and two of them make a panel
constexpr int MXFP4_BLOCK = 32, MXFP4_BYTES = PANEL + PANEL * MXFP4_BLOCK / 2;

template <int NUM_ROWS, int NUM_PANELS>
struct Sums {
  [[gnu::always_inline]] explicit Sums(const float* bias) {
#pragma GCC unroll 16
    for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) at[row][panel] = load16(bias + PANEL * panel);
    }
  }
  // One input of each row with its weights.
  [[gnu::always_inline]] void add(const Tile& tile, int64_t input, const F16 (&weights)[NUM_PANELS]) {
    const char* column = tile.x + 4 * input;
#pragma GCC unroll 16
    for (int row = 0; row < NUM_ROWS; row++) {
      const F16 one = splat16(*(const float*)(column + row * tile.x_stride));
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) at[row][panel] = fma(one, weights[panel], at[row][panel]);
    }
  }
  [[gnu::always_inline]] void write(const Tile& tile) const {
#pragma GCC unroll 16
    for (int row = 0; row < NUM_ROWS; row++) {
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) {
        store16(tile.out + row * tile.out_stride + PANEL * panel, at[row][panel]);
      }
    }
  }
  F16 at[NUM_ROWS][NUM_PANELS];
};

// Weights that are read one input after the other: in fp32 or bf16.
template <Kind KIND>
struct Plain {
  template <int NUM_ROWS, int NUM_PANELS>
  static void multiply(const Tile& tile, const void*) {
    Sums<NUM_ROWS, NUM_PANELS> sums(tile.bias);
    for (int64_t input = 0; input < tile.depth; input++) {
      if (NUM_ROWS >= ASKING_ROWS) tile.ask(input);
      F16 weights[NUM_PANELS];
#pragma GCC unroll 16
      for (int panel = 0; panel < NUM_PANELS; panel++) {
        const char* own = tile.weight + panel * tile.panel_bytes;
        weights[panel] = KIND == FP32 ? load16(own + 64 * input) : load_short16(own + 32 * input);
      }
      sums.add(tile, input, weights);
    }
    sums.write(tile);
  }
};

// The powers of two that a group's sixteen bytes stand for; 2 ** -127 is subnormal.
inline F16 read_mxfp4_scales(const char* from) {
  const I16 stored = load_unsigned16(from);
  return as_floats(either(stored, stored << 23, splat16(1 << 22)));
}

// Of the lowest four bits of each lane.
inline F16 read_mxfp4(I16 numbers) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  const F16 table = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  return look_up(table, numbers);
#else
  // twice the number is a whole one: its mantissa, shifted by its exponent
  const I16 exponent = shift_down(numbers, 1) & 3;
  const I16 leading = (numbers & 1) | either(exponent, splat16(2), splat16(0));
  const I16 twice = leading << either(exponent, exponent - splat16(1), splat16(0));
  const F16 size = to_floats(twice) * splat16(0.5f);
  const I16 sign = (numbers & 8) << 28;
  return as_floats(I16{(I8)size.low, (I8)size.high} | sign);
#endif
}

struct Mxfp4 {
  template <int NUM_ROWS, int NUM_PANELS>
  static void multiply(const Tile& tile, const void*) {
    Sums<NUM_ROWS, NUM_PANELS> sums(tile.bias);
    for (int64_t group = 0; group < tile.depth / MXFP4_BLOCK; group++) {
      F16 scales[NUM_PANELS];
      for (int panel = 0; panel < NUM_PANELS; panel++) {
        scales[panel] = read_mxfp4_scales(tile.weight + panel * tile.panel_bytes + group * MXFP4_BYTES);
      }
      for (int64_t pair = 0; pair < MXFP4_BLOCK / 2; pair++) {
        const int64_t input = group * MXFP4_BLOCK + 2 * pair;
        F16 first[NUM_PANELS], second[NUM_PANELS];
#pragma GCC unroll 16
        for (int panel = 0; panel < NUM_PANELS; panel++) {
          const char* own = tile.weight + panel * tile.panel_bytes + group * MXFP4_BYTES + PANEL * (pair + 1);
          const I16 both = load_unsigned16(own);
          first[panel] = read_mxfp4(both) * scales[panel];
          second[panel] = read_mxfp4(shift_down(both, 4)) * scales[panel];
        }
        if (NUM_ROWS >= ASKING_ROWS) tile.ask(input), tile.ask(input + 1);
        sums.add(tile, input, first);
        sums.add(tile, input + 1, second);
      }
    }
    sums.write(tile);
  }
};

// What four bits stand for: all sixteen numbers, or (without the look-up) the one that 0 stands for, in every place.
inline F16 four_bit_levels(bool has_offsets) {
#if defined(__AVX512F__) && defined(__AVX512BW__)
  const F16 numbers = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  return numbers - splat16(has_offsets ? 0.0f : 8.0f);
#else
  return splat16(has_offsets ? 0.0f : -8.0f);
#endif
}

// Input `index` of each word; e4m3 times 2 ** -120.
template <Kind KIND>
[[gnu::always_inline]] inline F16 read_number(I16 words, int index, F16 levels) {
  if constexpr (KIND == INT4) {
    const I16 shifted = shift_down(words, 4 * index);
#if defined(__AVX512F__) && defined(__AVX512BW__)
    return look_up(levels, shifted);
#else
    return to_floats(shifted & 15) + levels;
#endif
  }
  const I16 top = words << (24 - 8 * index);
  if constexpr (KIND == INT8) return to_floats(top >> 24);
  // the fields of e4m3 in those of fp32, whose exponents count from 120 further down; subnormals come out as well
  return as_floats((top & INT32_MIN) | (shift_down(top, 4) & 0x07F00000));
}

template <Kind KIND>
struct Groups {
  template <int NUM_ROWS, int NUM_PANELS>
  static void multiply(const Tile& tile, const void* more) {
    constexpr int PER_WORD = KIND == INT4 ? 8 : 4;
    const GroupedLayout layout = *(const GroupedLayout*)more;
    const F16 levels = four_bit_levels(layout.has_offsets);
    Sums<NUM_ROWS, NUM_PANELS> sums(tile.bias);
    for (int64_t group = 0; group < layout.num_groups; group++) {
      F16 scales[NUM_PANELS], offsets[NUM_PANELS];
      for (int panel = 0; panel < NUM_PANELS; panel++) {
        const char* own = tile.weight + panel * tile.panel_bytes;
        const char* end = layout.end(own, group);
        scales[panel] = load16(layout.group(own, group));
        offsets[panel] =
            layout.has_offsets ? load16(end) : (splat16(-0.0f) - to_floats(load_signed16(end))) * scales[panel];
      }
      for (int64_t line = 0; line < layout.num_lines; line++) {
        const int64_t input = group * layout.size + PER_WORD * line;
        I16 words[NUM_PANELS];
#pragma GCC unroll 16
        for (int panel = 0; panel < NUM_PANELS; panel++) {
          words[panel] = load_ints16(layout.group(tile.weight + panel * tile.panel_bytes, group) + 64 * (line + 1));
        }
        if (NUM_ROWS >= ASKING_ROWS) tile.ask(input);
#pragma GCC unroll 8
        for (int which = 0; which < PER_WORD; which++) {
          F16 weights[NUM_PANELS];
#pragma GCC unroll 16
          for (int panel = 0; panel < NUM_PANELS; panel++) {
            weights[panel] = fma(read_number<KIND>(words[panel], which, levels), scales[panel], offsets[panel]);
          }
          sums.add(tile, input + which, weights);
        }
      }
    }
    sums.write(tile);
  }
};

// Panels that a tile of `num_rows` takes side by side; grouped ones have a scale and an offset to each panel.
constexpr int panels_at_once(int rows, bool is_grouped) {
  if (!HAS_512) return rows == 1 ? (is_grouped ? 2 : 4) : rows == 2 && !is_grouped ? 2 : 1;
  if (rows == 1) return is_grouped ? 4 : 8;
  return rows == 2 ? 4 : rows <= 4 ? 2 : 1;
}

template <class Weights, bool IS_GROUPED, int NUM_ROWS>
constexpr void fill_tiling(Tiling<ROWS>& tiling) {
  if constexpr (NUM_ROWS > 0) {
    constexpr int AT_ONCE = panels_at_once(NUM_ROWS, IS_GROUPED);
    tiling.at_once[NUM_ROWS] = AT_ONCE;
    tiling.single[NUM_ROWS] = Weights::template multiply<NUM_ROWS, 1>;
    tiling.several[NUM_ROWS] = Weights::template multiply<NUM_ROWS, AT_ONCE>;
    fill_tiling<Weights, IS_GROUPED, NUM_ROWS - 1>(tiling);
  } else {
    tiling.run = Weights::template multiply<1, RUN>;
  }
}

template <class Weights, bool IS_GROUPED>
constexpr Tiling<ROWS> tiling_of() {
  Tiling<ROWS> tiling{};
  fill_tiling<Weights, IS_GROUPED, ROWS>(tiling);
  return tiling;
}

constexpr Tiling<ROWS> TILINGS[] = {
    // constants: nothing of a level runs before it is chosen
    tiling_of<Plain<FP32>, false>(), tiling_of<Plain<BF16>, false>(), tiling_of<Mxfp4, false>(),
    tiling_of<Groups<INT4>, true>(), tiling_of<Groups<INT8>, true>(), tiling_of<Groups<E4M3>, true>(),
};

}  // namespace

void multiply_widened(const Lease& team, const Product& p) {
  const Kind kind = kind_of(p.packing);
  const GroupedLayout layout(kind >= INT4 ? p.packing : 1 << KIND_BITS, p.depth);
  const int64_t panel_bytes = kind == FP32    ? 64 * p.depth
                              : kind == BF16  ? 32 * p.depth
                              : kind == MXFP4 ? p.depth / MXFP4_BLOCK * MXFP4_BYTES
                                              : layout.panel_bytes();
  const Tile whole{(const char*)p.x,     4 * p.x_stride, p.weight,   panel_bytes, p.bias, p.out,
                   PANEL * p.num_panels, p.depth,        4 * p.depth};
  multiply_all(team, TILINGS[kind], whole, &layout, p.num_rows, p.num_panels, RUN);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
