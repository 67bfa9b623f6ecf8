// Arena memory of an automaton, freed with it: arrays that grow as needed, within a bound on their bytes.
#pragma once
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace phloem::fsm {

// The bound on memory, or on how much may be looked at for one byte, is passed; in Python ConstraintTooLarge.
struct TooLarge : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The bytes of all arrays of an automaton. Any thread may ask for them.
class Budget {
 public:
  explicit Budget(int64_t max_bytes) : max_bytes_(max_bytes) {}
  int64_t max_bytes() const { return max_bytes_; }
  int64_t held() const { return held_.load(std::memory_order_relaxed); }

  // How many of `wanted` further bytes the bound allows; at least `least`, or it throws TooLarge.
  int64_t granted(int64_t wanted, int64_t least) const {
    const int64_t left = max_bytes_ - held();
    if (left >= least) return std::min(wanted, left);
    throw TooLarge("the automaton of the constraint has passed its bound of " + std::to_string(max_bytes_ >> 10) +
                   " KiB (max_constraint_bytes): raise it, or let less nest in itself and be open at once");
  }
  void add(int64_t bytes) { held_.fetch_add(bytes, std::memory_order_relaxed); }

 private:
  int64_t max_bytes_;
  std::atomic<int64_t> held_ = 0;
};

// An array that only grows: to twice its size, by a megabyte once it is large, or by as much as is left. Memory
// is enlarged in place where the system can (no element is constructed or destroyed). Growing moves it: keep indices.
template <class T>
class Growing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Growing(Budget& budget, int64_t capacity) : budget_(budget) { enlarge(capacity); }
  Growing(const Growing&) = delete;
  Growing& operator=(const Growing&) = delete;
  ~Growing() { std::free(data_); }

  T& operator[](int64_t index) { return data_[index]; }
  const T& operator[](int64_t index) const { return data_[index]; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }

  // Reserves room for that many more. Throws TooLarge.
  void reserve_more(int64_t count) {
    if (size_ + count <= capacity_) return;
    const int64_t least = (size_ + count - capacity_) * WIDTH;
    const int64_t wanted = std::max(least, std::min(capacity_ * WIDTH, LARGE_STEP));
    enlarge(capacity_ + budget_.granted(wanted, least) / WIDTH);
  }
  void push(const T& value) {
    reserve_more(1);
    data_[size_++] = value;
  }
  void append(const T* values, int64_t count) {
    reserve_more(count);
    std::copy_n(values, count, data_ + size_);
    size_ += count;
  }

 private:
  static constexpr int64_t WIDTH = sizeof(T), LARGE_STEP = 1 << 20;  // bytes

  void enlarge(int64_t capacity) {
    void* larger = std::realloc(data_, capacity * WIDTH);
    if (!larger) throw std::bad_alloc();
    budget_.add((capacity - capacity_) * WIDTH);
    data_ = static_cast<T*>(larger);
    capacity_ = capacity;
  }

  Budget& budget_;
  T* data_ = nullptr;
  int64_t size_ = 0, capacity_ = 0;
};

// Open addressing over numbers from 1 on, at most half full; what they stand for is compared and hashed by the owner.
class Slots {
 public:
  Slots(Budget& budget, int64_t size) : budget_(budget), slots_(size) { budget.add(size * 4); }

  // The number for which is_same(number) holds, or 0.
  template <class IsSame>
  int32_t find(uint64_t hash, IsSame is_same) const {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash & mask;
    while (slots_[slot] && !is_same(slots_[slot])) slot = (slot + 1) & mask;
    return slots_[slot];
  }

  // Reserves a slot for one more; hash_of(number) is the hash of any number that was added. Throws std::bad_alloc
  // before anything is changed: so the owner reserves first, then adds the object with that number, then the number.
  template <class HashOf>
  void reserve_one(HashOf hash_of) {
    if (2 * static_cast<size_t>(count_ + 1) <= slots_.size()) return;
    std::vector<int32_t> before(2 * slots_.size());
    budget_.add(static_cast<int64_t>(slots_.size()) * 4);
    before.swap(slots_);
    for (int32_t known : before) {
      if (known) place(known, hash_of(known));
    }
  }

  // Adds a number that `find` did not find, in a reserved slot.
  void add(int32_t number, uint64_t hash) noexcept {
    ++count_;
    place(number, hash);
  }

 private:
  void place(int32_t number, uint64_t hash) noexcept {
    const size_t mask = slots_.size() - 1;
    size_t slot = hash & mask;
    while (slots_[slot]) slot = (slot + 1) & mask;
    slots_[slot] = number;
  }

  Budget& budget_;
  std::vector<int32_t> slots_;
  int64_t count_ = 0;
};

}  // namespace phloem::fsm
