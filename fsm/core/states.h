// States: interned sets of configurations (hash-consed), and their records.
//
// A configuration is one int64: node << NODE_SHIFT | state within a text, or place within the trie of a set, <<
// STACK_BITS | stack. A state is a sorted run of configurations in the pool together with "accepting"; equal runs are
// one state, 0 is the dead one. `Closure` finds such sets.
#pragma once
#include "sets.h"

namespace phloem::fsm {

constexpr int32_t END = 1;                         // the state in which the text is complete and cannot go on
constexpr int32_t NO_ROW = -1, NEVER_A_ROW = -2;   // not yet; recomputed each time, since it is hardly ever met again
enum KeyPlace : int32_t { NO_KEY, BEFORE_KEY, IN_KEY };  // where a state stands as to keys that have to be remembered
constexpr int32_t PLACE_BITS = 2, PLACE_MASK = 3;

constexpr int64_t node_of(int64_t key) { return key >> NODE_SHIFT; }
constexpr int64_t sub_of(int64_t key) { return key >> STACK_BITS & SUB_MASK; }
constexpr int64_t place_of(int64_t key) { return sub_of(key) - 1; }  // in the trie of a set
constexpr int64_t stack_of(int64_t key) { return key & STACK_MASK; }
constexpr int64_t configuration(int64_t node, int64_t sub, int64_t stack) {
  return node << NODE_SHIFT | sub << STACK_BITS | stack;
}

struct State {
  int32_t offset, size;  // of its configurations in the pool
  int32_t accepts;
  int32_t cost;  // bytes that suffice to reach acceptance: an upper bound
  int32_t row;   // with its steps, or NO_ROW or NEVER_A_ROW
  int32_t byte;  // the byte that must come next, if that is plain to see, or -1 ...
  int32_t next;  // ... and the state after it, or -1: not known yet
  int32_t key;   // KeyPlace; above PLACE_BITS where a reader of JSON stands (`Mode`)
};

class States {
 public:
  States(const Network& network, Budget& budget);

  State& operator[](int64_t state) { return states_[state]; }
  const State& operator[](int64_t state) const { return states_[state]; }
  int64_t size() const { return states_.size(); }
  int64_t capacity() const { return states_.capacity(); }
  int64_t pool_size() const { return pool_.size(); }

  // The configurations of a state, until a state is added.
  std::span<const int64_t> of(int64_t state) const {
    return {pool_.data() + states_[state].offset, static_cast<size_t>(states_[state].size)};
  }

  // The state of these configurations, which are sorted; those that others cover are left out. Throws TooLarge.
  int64_t intern(std::vector<int64_t>& found, bool accepts);

  // What the count of the topmost frame of a configuration's stack is: characters read of a counted text.
  int64_t count_of(int64_t key) const { return stacks[stack_of(key)].count; }

  const Network& network;
  Stacks stacks;
  Sets sets;

  static constexpr int64_t FIRST_STATES = 128, FIRST_CONFIGURATIONS = 512;
  // Memory of states and stacks before any are found: the arrays with two slots for each entry.
  static constexpr int64_t FIRST_BYTES = Stacks::FIRST_STACKS * (sizeof(Frame) + 8) +
                                         FIRST_STATES * (sizeof(State) + 8) + FIRST_CONFIGURATIONS * sizeof(int64_t);

 private:
  State described(const std::vector<int64_t>& found, bool accepts);
  int64_t only_byte(const std::vector<int64_t>& found) const;

  Growing<State> states_;
  Growing<int64_t> pool_;
  Slots slots_;
};

// Reduces sorted configurations to an antichain: moves those that no other covers to the front, and drops the others.
// One covers another if whatever may follow the other may follow it: their stacks differ in counts only, of which it
// has the least, and where there is a minimum has reached it. So of nested counted repetition, as in
// ``(.{1,1000}b?){1,1000}``, a state keeps a few configurations where there were a million ways to read the same text.
// The language is the same, and every mask.
void drop_covered(const Network& network, const Stacks& stacks, std::vector<int64_t>& found);

}  // namespace phloem::fsm
