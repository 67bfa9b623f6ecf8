// Packs the rows of a weight into panels of 16 rows, whose numbers for one input lie side by side; and unpacks rows.
//
//     row 0   a0 a1 a2 ...        fp32    a0 b0 ... p0 | a1 b1 ... p1 | ...     16 numbers to an input
//     row 1   b0 b1 b2 ...   ->   bf16    a0 i0 b0 j0 ... | ...               output i and output i + 8 in one word
//       ...                                                                     (rows a to p are 0 to 15)
//     row 15  p0 p1 p2 ...
//
// Loading reads and writes every weight of a model this way, so it is one pass that moves a cache line of 16 rows at a
// time, and finds on the way whether bf16 holds the numbers. What this costs is what the memory takes.
#pragma once
#include <cstdint>

namespace phloem::kernels {

// Bits of fp32 or bf16 [num_outputs, num_inputs] as panels of bf16, words [ceil(num_outputs / 16), num_inputs, 8]; rows
// beyond num_outputs are zeros. False, and nothing more, at an fp32 number that bf16 does not hold.
bool pack_as_short(const uint32_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels);
bool pack_shorts(const uint16_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels);
// Words [num_outputs, num_inputs] as words [ceil(num_outputs / 16), num_inputs, 16].
void pack_words(const uint32_t* bits, int64_t num_outputs, int64_t num_inputs, uint32_t* panels);

// Rows of a matrix in panels as fp32 [num_rows, num_inputs], as an embedding is looked up in the weight of the output
// projection. False, and nothing more, at the first row that there is not.
struct RowsWanted {
  int64_t num_panels;
  const int64_t* rows;
  int64_t num_rows, num_inputs;
  uint32_t* out;
};
bool unpack_words(const uint32_t* panels, const RowsWanted& wanted);
bool unpack_shorts(const uint16_t* panels, const RowsWanted& wanted);
// Of whole numbers of four or eight bits in groups of `size` inputs.
bool unpack_groups(const uint8_t* panels, const RowsWanted& wanted, int64_t size, int bits, bool has_offsets);

}  // namespace phloem::kernels
