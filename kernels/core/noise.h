// Counter-based random numbers (Philox), a pure function of their purpose; defined in `plain/sample.py`.
#pragma once
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

constexpr int PHILOX_ROUNDS = 7;

// Where a draw takes its noise from: a request's seed, the position of the token that is drawn, the round of the draw.
struct Noise {
  int64_t seed, position, stream;

  // Standard Gumbel noise for a group or a token: Philox4x32 (Salmon et al., SC'11), then -log of an exponential.
  float operator()(int64_t index) const {
    uint32_t key0 = (uint32_t)seed, key1 = (uint32_t)((uint64_t)seed >> 32);
    uint32_t c0 = (uint32_t)index, c1 = (uint32_t)position, c2 = (uint32_t)((uint64_t)position >> 32),
             c3 = (uint32_t)stream;
    for (int round = 0; round < PHILOX_ROUNDS; round++) {
      const uint64_t a = (uint64_t)c0 * 0xD2511F53u, b = (uint64_t)c2 * 0xCD9E8D57u;
      c0 = (uint32_t)(b >> 32) ^ c1 ^ key0, c1 = (uint32_t)b;
      c2 = (uint32_t)(a >> 32) ^ c3 ^ key1, c3 = (uint32_t)a;
      key0 += 0x9E3779B9u, key1 += 0xBB67AE85u;
    }
    const float u = ((float)c0 + 0.5f) * 0x1p-32f;
    const float exponential =
        u < 0x1p-7f ? u * (1.0f + u * (0.5f + u * (1.0f / 3.0f))) : -logf(larger_of(1.0f - u, 0x1p-25f));
    return -logf(exponential);
  }
};

}  // namespace phloem::kernels::PHLOEM_LEVEL
