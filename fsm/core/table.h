// Tables of int32 rows of one width, for automata; and interning: the number of a row by its contents.
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace phloem::fsm {

using Ints = std::span<const int32_t>;
using Bytes = std::span<const uint8_t>;
using Flags = std::span<const bool>;

// A view of a table that is owned elsewhere: int32[num_rows, num_columns].
struct TableView {
  const int32_t* cells;
  int64_t num_rows, num_columns;
  const int32_t* operator[](int64_t row) const { return cells + row * num_columns; }
};

// A table that grows by rows of zeros.
struct Table {
  int64_t num_columns;
  std::vector<int32_t> cells;
  Table(int64_t num_rows, int64_t columns, int32_t value = 0)
      : num_columns(columns), cells(num_rows * columns, value) {}
  int32_t* operator[](int64_t row) { return cells.data() + row * num_columns; }
  const int32_t* operator[](int64_t row) const { return cells.data() + row * num_columns; }
  int64_t num_rows() const { return static_cast<int64_t>(cells.size()) / num_columns; }
  void add_row() { cells.resize(cells.size() + num_columns); }
  TableView view() const { return {cells.data(), num_rows(), num_columns}; }
};

// One more value in a hash (Fibonacci hashing, with the high bits folded back).
constexpr uint64_t mixed(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
  return hash ^ (hash >> 29);
}

// Numbers by the hash of what they stand for: open addressing, at most half full. What that is, the caller compares.
class Numbers {
 public:
  explicit Numbers(size_t expected = 8) {
    size_t size = 16;
    while (size < 2 * expected) size *= 2;
    slots_.resize(size);
  }

  // The number with this hash for which is_same(number) holds, or -1.
  template <class IsSame>
  int32_t find(uint64_t hash, IsSame is_same) const {
    const uint32_t folded = fold(hash);
    const size_t mask = slots_.size() - 1;
    for (size_t slot = folded & mask; slots_[slot].number >= 0; slot = (slot + 1) & mask) {
      if (slots_[slot].hash == folded && is_same(slots_[slot].number)) return slots_[slot].number;
    }
    return -1;
  }

  // Adds a number (not below 0) that `find` did not find.
  void add(uint64_t hash, int32_t number) {
    if (2 * (count_ + 1) > slots_.size()) grow();
    ++count_;
    place({fold(hash), number});
  }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t number = -1;
  };

  static uint32_t fold(uint64_t hash) { return static_cast<uint32_t>(hash ^ (hash >> 32)); }

  void place(Slot added) {
    const size_t mask = slots_.size() - 1;
    size_t slot = added.hash & mask;
    while (slots_[slot].number >= 0) slot = (slot + 1) & mask;
    slots_[slot] = added;
  }

  void grow() {
    std::vector<Slot> before(2 * slots_.size());
    before.swap(slots_);
    for (const Slot& slot : before) {
      if (slot.number >= 0) place(slot);
    }
  }

  std::vector<Slot> slots_;
  size_t count_ = 0;
};

}  // namespace phloem::fsm
