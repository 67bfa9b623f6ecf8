// The graph-structured stack (Tomita): interned frames that point to their parents, each with its cost to completion.
//
//   CALL    (node after it, 0, 0)
//   LOOP    (node of the loop, turns so far, 0)
//   SET     one frame per 31 members (node of the set, cannot be written, must be written); see `Sets`
//   KEY     (node of the key, 0, 0) on top of a set, while a separator is written
//   TEXT    (~ node of a counted text, characters read, 0), while inside it; what is left of it is not in the cost
//   JOINT   (JOINT, a stack, 0) on top of another: both of them at once; see `join`
//
// Stack 0 is the bottom. The number of a stack never changes, so two of them are equal if and only if their numbers
// are.
#pragma once
#include "arena.h"
#include "network.h"

namespace phloem::fsm {

struct Frame {
  int32_t node;  // to return to
  int32_t count, owed;
  int32_t parent;
  int32_t cost;  // bytes from there to the end of the text
};

constexpr int32_t JOINT = -(1 << 30);  // as a node: less than any ~ node
constexpr int SUB_BITS = 23, STACK_BITS = 20, NODE_SHIFT = SUB_BITS + STACK_BITS;
constexpr int64_t SUB_MASK = (1 << SUB_BITS) - 1, STACK_MASK = (1 << STACK_BITS) - 1;

class Stacks {
 public:
  explicit Stacks(Budget& budget) : frames_(budget, FIRST_STACKS), slots_(budget, 2 * FIRST_STACKS) {
    frames_.push({});
  }

  const Frame& operator[](int64_t stack) const { return frames_[stack]; }
  int64_t size() const { return frames_.size(); }

  // The stack (node, count, owed) on top of parent. Throws TooLarge.
  int64_t push(int64_t node, int64_t count, int64_t owed, int64_t parent, int64_t cost);

  // The stack inside the counted text at a node after `count` characters.
  int64_t push_count(int64_t node, int64_t count, int64_t parent) {
    return push(~node, count, 0, parent, frames_[parent].cost);
  }

  static constexpr int64_t FIRST_STACKS = 64;

 private:
  Growing<Frame> frames_;
  Slots slots_;
};

}  // namespace phloem::fsm
