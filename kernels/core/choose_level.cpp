// Which of the levels that were compiled this processor runs.
#include "loops.h"

namespace phloem::kernels {

namespace native {
extern const Loops LOOPS;
}

const Loops& loops() { return native::LOOPS; }

}  // namespace phloem::kernels
