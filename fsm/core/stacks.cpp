#include "stacks.h"

namespace phloem::fsm {

namespace {

uint64_t hash_of(const Frame& frame) {
  auto word = [](int32_t value) { return static_cast<uint64_t>(int64_t{value}); };
  const uint64_t value = word(frame.node) * 0x9E3779B1 + word(frame.count) * 0x85EBCA77 +
                         word(frame.owed) * 0x165667B19E37 + word(frame.parent) * 0xC2B2AE3D;
  const uint64_t folded = value & 0x7FFFFFFFFFFF;
  return folded ^ (folded >> 15);
}

bool is_same(const Frame& one, const Frame& other) {
  return one.node == other.node && one.count == other.count && one.owed == other.owed && one.parent == other.parent;
}

}  // namespace

int64_t Stacks::push(int64_t node, int64_t count, int64_t owed, int64_t parent, int64_t cost) {
  const Frame frame{static_cast<int32_t>(node), static_cast<int32_t>(count), static_cast<int32_t>(owed),
                    static_cast<int32_t>(parent), static_cast<int32_t>(std::min<int64_t>(cost, NEVER))};
  const uint64_t hash = hash_of(frame);
  const int32_t known = slots_.find(hash, [&](int32_t stack) { return is_same(frames_[stack], frame); });
  if (known) return known;
  if (frames_.size() >= STACK_MASK) {
    throw TooLarge("a text has more than " + std::to_string(STACK_MASK) +
                   " stacks open at once; let less nest in itself and be open at once");
  }
  slots_.reserve_one([&](int32_t known_stack) { return hash_of(frames_[known_stack]); });
  frames_.push(frame);
  const int64_t stack = frames_.size() - 1;
  slots_.add(static_cast<int32_t>(stack), hash);
  return stack;
}

}  // namespace phloem::fsm
