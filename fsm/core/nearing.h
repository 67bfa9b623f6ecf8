// The byte with which a shortest completion goes on.
//
// For each state it is always the same byte: so a text has one shortest completion, and the rest of it after any of its
// bytes is the completion of the state there.
#pragma once
#include "automaton.h"

namespace phloem::fsm {

struct Step {
  int byte;
  int64_t state;
};

// The byte with which the shortest completion goes on from a state, and the state after it: of those that lead nearer
// to the end the space, or else the first one from the small letters on; of keys in any order the first one in the order
// of the set. The cost of the state after it is not less where what is left is not known byte by byte.
Step step_nearer(Automaton& automaton, int64_t state);

bool is_nearer(const Automaton& automaton, int64_t target, int64_t state);

}  // namespace phloem::fsm
