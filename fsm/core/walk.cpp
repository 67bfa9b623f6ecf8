// Walks through the vocabulary with the automaton: which tokens may follow a state.
#include "trie_walk.h"

namespace phloem::fsm {

namespace {

// Sets the bits of the tokens that may follow in the sub-tree of a node; 1 + the greatest cost after one of them.
int64_t walk_below(Automaton& automaton, const TokenTrie& trie, int64_t node, int32_t* bits) {
  const int32_t* same = trie.next_same.data();
  int64_t worst = 0;
  walk_trie(automaton, trie, node, trie.ends[node], automaton.scratch().path, [&](int64_t at, int64_t target) {
    if (trie.tokens[at] < 0) return;
    worst = std::max<int64_t>(worst, automaton.states[target].cost + 1);
    for (int64_t token = trie.tokens[at]; token >= 0; token = same[token]) set_bit(bits, token);
  });
  return worst;
}

}  // namespace

int64_t walk(Automaton& automaton, int64_t state, int32_t* bits) {
  const TokenTrie& trie = automaton.vocabulary.whole;
  Scratch& scratch = automaton.scratch();
  int64_t first = automaton.states[state].byte, end = first + 1;
  if (first < 0) {
    automaton.live_bytes(state, scratch.live);
    first = 0;
    end = 256;
  }
  int64_t worst = 0;
  for (int64_t byte = first; byte < end; ++byte) {
    const int64_t node = trie.roots[byte];
    if (node < 0 || (end > first + 1 && !scratch.live[byte])) continue;
    scratch.path[0] = state;
    worst = std::max(worst, walk_below(automaton, trie, node, bits));
  }
  return worst;
}

int64_t walk_exits(Automaton& automaton, const TokenTrie& trie, int64_t state, Ints exits, Ints starts, int32_t* bits) {
  Scratch& scratch = automaton.scratch();
  if (automaton.live_bytes(state, scratch.live) == 0 || starts[256] == 0) return 0;
  int64_t worst = 0;
  for (int byte = 0; byte < 256; ++byte) {
    if (!scratch.live[byte]) continue;
    for (int32_t index = starts[byte]; index < starts[byte + 1]; ++index) {
      const int64_t node = exits[index];
      scratch.path[trie.depths[node] - 1] = state;
      worst = std::max(worst, walk_below(automaton, trie, node, bits));
    }
  }
  return worst;
}

void add_eos(const Automaton& automaton, int64_t state, int32_t* bits) {
  if (!automaton.states[state].accepts) return;
  for (int64_t word = 0; word < automaton.vocabulary.num_words; ++word) bits[word] |= automaton.vocabulary.eos[word];
}

}  // namespace phloem::fsm
