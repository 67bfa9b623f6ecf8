// See panels_of_weights.h.
#include "panels_of_weights.h"

#include <algorithm>
#include <cstring>

namespace phloem::kernels {
namespace {

constexpr int64_t PANEL = 16, AT_A_TIME = 16;  // inputs: a cache line of fp32

bool is_among(int64_t row, const RowsWanted& wanted) { return 0 <= row && row < PANEL * wanted.num_panels; }

float read_float(const uint8_t* from) {
  float value;
  memcpy(&value, from, sizeof value);
  return value;
}

// A block of inputs of a panel; returns the bits that bf16 does not hold.
template <class Bits>
uint32_t pack_block(const Bits* bits, int64_t num_outputs, int64_t num_inputs, int64_t panel, int64_t begin,
                    uint32_t* panels) {
  const int64_t end = std::min(begin + AT_A_TIME, num_inputs);
  uint32_t lost = 0;
  for (int64_t i = 0; i < PANEL / 2; i++) {
    const int64_t first = PANEL * panel + i, second = first + PANEL / 2;
    uint32_t* target = panels + panel * num_inputs * PANEL / 2 + i;
    for (int64_t k = begin; k < end; k++) {
      const uint32_t a = first < num_outputs ? bits[first * num_inputs + k] : 0;
      const uint32_t b = second < num_outputs ? bits[second * num_inputs + k] : 0;
      if constexpr (sizeof(Bits) == 2) {
        target[k * PANEL / 2] = a | b << 16;
      } else {
        lost |= (a | b) & 0xFFFF;
        target[k * PANEL / 2] = a >> 16 | (b & 0xFFFF0000u);
      }
    }
  }
  return lost;
}

template <class Bits>
bool pack(const Bits* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels) {
  for (int64_t panel = 0; PANEL * panel < num_outputs; panel++) {
    for (int64_t begin = 0; begin < num_inputs; begin += AT_A_TIME) {
      if (pack_block(bits, num_outputs, num_inputs, panel, begin, panels)) return false;
    }
  }
  return true;
}

// A group of `size` numbers of an output: value = (number - zero) * scale + offset.
template <int BITS>
void widen_group(const uint8_t* words, int64_t size, float scale, float zero, float offset, uint32_t* out) {
  for (int64_t k = 0; k < size; k++) {
    const uint8_t byte = words[64 * (k / (32 / BITS)) + k % (32 / BITS) * BITS / 8];
    const float number = BITS == 8 ? (int8_t)byte : k % 2 ? byte >> 4 : byte & 15;
    const float value = (number - zero) * scale + offset;
    memcpy(out + k, &value, sizeof value);
  }
}

}  // namespace

bool pack_as_short(const uint32_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels) {
  return pack(bits, num_outputs, num_inputs, panels);
}

bool pack_shorts(const uint16_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels) {
  return pack(bits, num_outputs, num_inputs, panels);
}

void pack_words(const uint32_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels) {
  for (int64_t panel = 0; PANEL * panel < num_outputs; panel++) {
    uint32_t* target = panels + panel * num_inputs * PANEL;
    for (int64_t begin = 0; begin < num_inputs; begin += AT_A_TIME) {
      for (int64_t i = 0; i < PANEL; i++) {
        const int64_t row = PANEL * panel + i;
        for (int64_t k = begin; k < std::min(begin + AT_A_TIME, num_inputs); k++) {
          target[k * PANEL + i] = row < num_outputs ? bits[row * num_inputs + k] : 0;
        }
      }
    }
  }
}

bool unpack_words(const uint32_t* panels, const RowsWanted& wanted) {
  for (int64_t t = 0; t < wanted.num_rows; t++) {
    const int64_t row = wanted.rows[t];
    if (!is_among(row, wanted)) return false;
    const uint32_t* panel = panels + row / PANEL * wanted.num_inputs * PANEL + row % PANEL;
    for (int64_t k = 0; k < wanted.num_inputs; k++) wanted.out[t * wanted.num_inputs + k] = panel[k * PANEL];
  }
  return true;
}

bool unpack_shorts(const uint16_t* panels, const RowsWanted& wanted) {
  for (int64_t t = 0; t < wanted.num_rows; t++) {
    const int64_t row = wanted.rows[t];
    if (!is_among(row, wanted)) return false;
    const int64_t lane = row % PANEL % 8 * 2 + row % PANEL / 8;  // output 16p + i lies next to 16p + i + 8
    const uint16_t* panel = panels + row / PANEL * wanted.num_inputs * PANEL + lane;
    for (int64_t k = 0; k < wanted.num_inputs; k++) {
      wanted.out[t * wanted.num_inputs + k] = (uint32_t)panel[k * PANEL] << 16;
    }
  }
  return true;
}

bool unpack_groups(const uint8_t* panels, const RowsWanted& wanted, int64_t size, int bits, bool has_offsets) {
  const int64_t group_bytes = 64 + 2 * bits * size, num_groups = wanted.num_inputs / size;
  const int64_t end_bytes = has_offsets ? num_groups * 64 : (num_groups * 16 + 63) / 64 * 64;
  const int middle = bits == 4 && !has_offsets ? 8 : 0;
  for (int64_t t = 0; t < wanted.num_rows; t++) {
    const int64_t row = wanted.rows[t];
    if (!is_among(row, wanted)) return false;
    const int64_t lane = row % PANEL;
    const uint8_t* panel = panels + row / PANEL * (num_groups * group_bytes + end_bytes);
    for (int64_t group = 0; group < num_groups; group++) {
      const uint8_t* own = panel + group * group_bytes;
      const uint8_t* end = panel + num_groups * group_bytes + (has_offsets ? 64 * group + 4 * lane : 16 * group + lane);
      const float scale = read_float(own + 4 * lane), offset = has_offsets ? read_float(end) : 0.0f;
      const float zero = has_offsets ? 0.0f : (float)((int8_t)*end + middle);
      uint32_t* out = wanted.out + t * wanted.num_inputs + group * size;
      (bits == 4 ? widen_group<4> : widen_group<8>)(own + 64 + 4 * lane, size, scale, zero, offset, out);
    }
  }
  return true;
}

}  // namespace phloem::kernels
