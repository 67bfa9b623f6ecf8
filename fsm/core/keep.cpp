// Which of the tokens that may come next leave few enough to complete the text (`CompletionBounds::keep_within`).
//
// Few tokens are tried one by one, many by a walk through the trie, in which they share the bytes that they begin with.
// How many more each of them needs is counted only where bytes alone do not settle the matter.
#include <bit>

#include "completions.h"
#include "trie_walk.h"

namespace phloem::fsm {

namespace {

constexpr int64_t MANY_TOKENS = 4096;  // beyond that the trie is walked instead of each token

}  // namespace

int64_t CompletionBounds::keep_within(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged) {
  const int64_t num_ids = automaton_.vocabulary.num_tokens;
  for (int64_t token = num_ids; token < 32 * automaton_.vocabulary.num_words; ++token) clear_bit(bits, token);
  int64_t num_tokens = 0;
  for (int64_t word = 0; word < automaton_.vocabulary.num_words; ++word) {
    num_tokens += std::popcount(static_cast<uint32_t>(bits[word]));
  }
  if (num_tokens > MANY_TOKENS || judged.node) {
    keep_by_walk(state, bits, limit, most_bytes, judged);
  } else {
    keep_each(state, bits, limit, most_bytes, judged);
  }
  return judged.worst;
}

// `tokens`, or 0 if the bytes alone are within the limit; NEVER where they are beyond `most_bytes`.
int64_t CompletionBounds::tokens_beyond(int64_t state, int64_t limit, int64_t most_bytes) {
  const int64_t cost = automaton_.states[state].cost;
  if (cost <= limit) return 0;
  return state == 0 || cost > most_bytes ? NEVER : tokens(state);
}

void CompletionBounds::keep_each(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged) {
  for (int64_t& word = judged.word; word < automaton_.vocabulary.num_words; ++word) {
    for (uint32_t left = bits[word]; left; left &= left - 1) {
      const int64_t token = 32 * word + std::countr_zero(left);
      const int64_t needed = tokens_beyond(automaton_.advance(state, token), limit, most_bytes);
      judged.worst = std::max(judged.worst, needed + 1);
      if (0 <= limit && limit < needed) clear_bit(bits, token);
    }
    ++progress_;
  }
}

void CompletionBounds::keep_by_walk(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged) {
  const TokenTrie& trie = automaton_.vocabulary.whole;
  judged.states[0] = state;
  walk_trie(automaton_, trie, judged.node, trie.size(), judged.states, [&](int64_t node, int64_t target) {
    if (trie.tokens[node] >= 0) {
      const int64_t needed = tokens_beyond(target, limit, most_bytes);
      for (int64_t token = trie.tokens[node]; token >= 0; token = trie.next_same[token]) {
        if (!has_bit(bits, token)) continue;
        judged.worst = std::max(judged.worst, needed + 1);
        if (0 <= limit && limit < needed) clear_bit(bits, token);
      }
    }
    ++progress_;
  });
}

}  // namespace phloem::fsm
