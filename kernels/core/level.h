// The loops of one level, in the namespace of its name; see the structs in loops.h.
#pragma once
#include "loops.h"
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

// Products, by how their weights are packed: fp32, bf16, MXFP4 and groups that are widened; int8; groups with inputs
// that are rounded to 16 bits. Tasks of what is worth sharing go to the team.
void multiply_widened(const Lease& team, const Product& product);
void multiply_int8(const Lease& team, const Product& product);
void multiply_rounded(const Lease& team, const Product& product);
void add_loras(const Lease& team, const LoraStep& step);
void attend(const Lease& team, const AttentionStep& step);
void norm_rows(const Norm& norm);
void rotate_heads(const Rope& rope);
void scatter_heads(const Scatter& scatter);
void gate_rows(const Gate& gate);
void convolve(const Lease& team, const Convolution& convolution);
void advance_heads(const Lease& team, const HeadStates& heads);
void advance_channels(const Lease& team, const ChannelStates& channels);
void edit_rows(const Edits& edits);
void sample_rows(const Sampling& sampling);
void report_rows(const Report& report);

}  // namespace phloem::kernels::PHLOEM_LEVEL
