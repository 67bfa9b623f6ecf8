// How a grouped weight lies in memory; `cpu/grouped.py` lays it out.
//
//     panel    for each group   16 fp32, the scales of the outputs
//                               then lines of 64 bytes: 16 words, one of each output, with 8 inputs (int4) or 4
//              zeros            for each group 16 int8, filled up to whole lines
//           or offsets          for each group 16 fp32
#pragma once
#include "loops.h"
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

// `LinearWeight.packing`: the kind, and above it a flag and the inputs of a group.
enum Kind { FP32, BF16, MXFP4, INT4, INT8, E4M3, ROUNDING_INT4, ROUNDING_INT8 };
constexpr int64_t KIND_MASK = 7, OFFSETS_FLAG = 8;
constexpr int KIND_BITS = 4;

inline Kind kind_of(int64_t packing) { return (Kind)(packing & KIND_MASK); }
inline bool has_four_bits(Kind kind) { return kind == INT4 || kind == ROUNDING_INT4; }

struct GroupedLayout {
  GroupedLayout(int64_t packing, int64_t depth)
      : size(packing >> KIND_BITS),
        num_groups(depth / size),
        has_offsets(packing & OFFSETS_FLAG),
        num_lines(size / (has_four_bits(kind_of(packing)) ? 8 : 4)),
        group_bytes(64 * (num_lines + 1)),
        end_begins(num_groups * group_bytes),
        end_bytes(has_offsets ? 64 : 16) {}

  int64_t panel_bytes() const { return end_begins + (num_groups * end_bytes + 63) / 64 * 64; }
  const char* group(const char* panel, int64_t index) const { return panel + index * group_bytes; }
  // The zeros or offsets of a group.
  const char* end(const char* panel, int64_t index) const { return panel + end_begins + index * end_bytes; }

  int64_t size, num_groups;
  bool has_offsets;
  int64_t num_lines, group_bytes, end_begins, end_bytes;
};

}  // namespace phloem::kernels::PHLOEM_LEVEL
