// The table of one level.
#include "level.h"

namespace phloem::kernels::PHLOEM_LEVEL {

extern const Loops LOOPS;
constinit const Loops LOOPS = {
    multiply_widened, multiply_int8, multiply_rounded, add_loras, attend,      norm_rows,
    rotate_heads,     scatter_heads, gate_rows,        convolve,  advance_heads,
    advance_channels, edit_rows,     sample_rows,      report_rows,
};

}  // namespace phloem::kernels::PHLOEM_LEVEL
