// Rows of bits, int32[n], one bit for each token: compared and counted. Equal are rows whose hashes are, and then all words.
#pragma once
#include <bit>
#include <cstring>

#include "table.h"

namespace phloem::fsm {

// A hash, 62 bits: the sum of (word + key) * (word + key) over pairs of words, as in NH, the inner hash of UMAC (Black,
// Halevi, Krawczyk, Krovetz, Rogaway, 1999). The keys are no secret, as equal hashes are always followed by a comparison.
inline int64_t hash_row(Ints words) {
  const size_t half = words.size() / 2;
  const int32_t *low = words.data(), *high = low + half;
  uint64_t total = words.size();
  for (uint32_t index = 0; index < half; ++index) {
    const uint32_t one = static_cast<uint32_t>(low[index]) + index * 0x9E3779B1u;
    const uint32_t other = static_cast<uint32_t>(high[index]) + index * 0x85EBCA77u + 1;
    total += uint64_t{one} * other;
  }
  if (words.size() & 1) total += uint64_t{static_cast<uint32_t>(words.back())} * 0x9E3779B97F4A7C15u;
  return static_cast<int64_t>((total ^ (total >> 32)) & 0x3FFFFFFFFFFFFFFFu);
}

inline bool is_same_row(Ints one, Ints other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

inline int64_t num_tokens_in(Ints words) {
  int64_t total = 0;
  for (int32_t word : words) total += std::popcount(static_cast<uint32_t>(word));
  return total;
}

}  // namespace phloem::fsm
