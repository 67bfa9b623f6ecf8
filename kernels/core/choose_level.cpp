// Runtime dispatch: which of the compiled levels this processor runs. There is one, or in a wheel for x86-64 there are
// three (`setup.py`), of which the highest that the processor supports is chosen.
#include "loops.h"

namespace phloem::kernels {

#if defined(PHLOEM_HAS_X86_LEVELS)

namespace x86_64 {
extern const Loops LOOPS;
}
namespace x86_64_v3 {
extern const Loops LOOPS;
}
namespace x86_64_v4 {
extern const Loops LOOPS;
}

namespace {

const Loops& highest_level() {
  __builtin_cpu_init();
  const bool has_v3 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2");
  const bool has_v4 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  return has_v3 && has_v4 ? x86_64_v4::LOOPS : has_v3 ? x86_64_v3::LOOPS : x86_64::LOOPS;
}

}  // namespace

const Loops& loops() {
  static const Loops& chosen = highest_level();
  return chosen;
}

#else

namespace native {
extern const Loops LOOPS;
}

const Loops& loops() { return native::LOOPS; }

#endif

}  // namespace phloem::kernels
