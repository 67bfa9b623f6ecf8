// Rows of bits, int32[n], one bit for each token: hashed and compared. Rows are equal if their hashes are, and
// then all words.
//
// Loops go by blocks of a fixed size, which compilers turn into vector instructions: a row of 131,072 tokens takes
// about a microsecond.
#pragma once
#include <cstring>

#include "table.h"

namespace phloem::fsm {

constexpr uint32_t ROW_BLOCK = 8, ONE_KEY = 0x9E3779B1, OTHER_KEY = 0x85EBCA77;

// A hash, 62 bits: the sum of (word + key) * (word + key) over pairs of words, as in NH, the inner hash of UMAC (Black,
// Halevi, Krawczyk, Krovetz, Rogaway, 1999). The keys are no secret, as equal hashes are always followed by a
// comparison.
inline int64_t hash_row(Ints words) {
  const size_t half = words.size() / 2;
  const int32_t *low = words.data(), *high = low + half;
  uint64_t total = words.size();
  uint32_t one_keys[ROW_BLOCK], other_keys[ROW_BLOCK];
  uint64_t sums[ROW_BLOCK] = {};
  for (uint32_t index = 0; index < ROW_BLOCK; ++index) {
    one_keys[index] = index * ONE_KEY;
    other_keys[index] = index * OTHER_KEY + 1;
  }
  size_t begin = 0;
  for (; begin + ROW_BLOCK <= half; begin += ROW_BLOCK) {
    for (uint32_t index = 0; index < ROW_BLOCK; ++index) {
      const uint32_t one = static_cast<uint32_t>(low[begin + index]) + one_keys[index];
      const uint32_t other = static_cast<uint32_t>(high[begin + index]) + other_keys[index];
      sums[index] += uint64_t{one} * other;
      one_keys[index] += ROW_BLOCK * ONE_KEY;
      other_keys[index] += ROW_BLOCK * OTHER_KEY;
    }
  }
  for (uint32_t index = 0; index < ROW_BLOCK; ++index) {
    total += sums[index];
    if (begin + index >= half) continue;
    const uint32_t one = static_cast<uint32_t>(low[begin + index]) + one_keys[index];
    const uint32_t other = static_cast<uint32_t>(high[begin + index]) + other_keys[index];
    total += uint64_t{one} * other;
  }
  if (words.size() & 1) total += uint64_t{static_cast<uint32_t>(words.back())} * 0x9E3779B97F4A7C15u;
  return static_cast<int64_t>((total ^ (total >> 32)) & 0x3FFFFFFFFFFFFFFFu);
}

inline bool is_same_row(Ints one, Ints other) {
  return one.size() == other.size() && std::memcmp(one.data(), other.data(), one.size_bytes()) == 0;
}

}  // namespace phloem::fsm
