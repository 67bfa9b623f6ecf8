// What determines the rounding of inputs: the largest of them, and whether one is NaN.
#pragma once
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

struct Extent {
  float most;     // the largest size
  float nothing;  // 0, or NaN if a number is NaN or infinite: it has no whole number
};

// Of numbers, a multiple of eight of them.
inline Extent extent_of(const float* numbers, int64_t count) {
  F8 top = splat8(0.0f), spoilt = splat8(0.0f);
  for (int64_t i = 0; i < count; i += 8) {
    const F8 value = load8(numbers + i);
    top = larger(larger(value, -value), top);
    spoilt = fma(value, splat8(0.0f), spoilt);
  }
  return {largest(top), total(spoilt)};
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
