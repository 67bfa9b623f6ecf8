// Ways through the vocabulary's trie.
#pragma once
#include "automaton.h"

namespace phloem::fsm {

// Goes through the nodes node .. end - 1 in depth-first order, jumps over those whose byte the automaton refuses and
// calls visit(node, state after it) at the others; path[depth - 1] is the state before the first of them. It makes
// states as it goes; if that throws, the walk can go on from where `node` and `path` are then.
template <class Visit>
void walk_trie(Automaton& automaton, const TokenTrie& trie, int64_t& node, int64_t end, int64_t* path, Visit visit) {
  while (node < end) {
    const int depth = trie.depths[node];
    const int64_t before = path[depth - 1], byte = trie.bytes[node];
    const State& state = automaton.states[before];
    int64_t target = -1;
    if (state.byte >= 0 && state.byte != byte) {
      target = 0;
    } else if (state.row >= 0) {
      target = automaton.rows[state.row].targets[byte];
    }
    if (target < 0) target = automaton.step(before, byte);
    if (target == 0) {
      node = trie.ends[node];
      continue;
    }
    path[depth] = target;
    visit(node, target);
    ++node;
  }
}

// The node below another one with a byte; -1 if there is none.
inline int64_t child_of(const TokenTrie& trie, int64_t node, uint8_t byte) {
  const int64_t end = trie.ends[node];
  int64_t child = node + 1;
  while (child < end && trie.bytes[child] != byte) child = trie.ends[child];
  return child < end ? child : -1;
}

}  // namespace phloem::fsm
