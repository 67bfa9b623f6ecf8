// Whether the arrays of a vocabulary are right (`check_trie`, `check_vocabulary`): each index in range, and each walk
// through a trie in bounds.
#include "checks.h"
#include "vocabulary.h"

namespace phloem::fsm {

void check_nodes(Bytes depths, Ints trie_ends) {
  int32_t ends[MAX_TOKEN_LEN + 1] = {static_cast<int32_t>(depths.size())};
  int depth_before = 0;
  for (int32_t node = 0; node < static_cast<int32_t>(depths.size()); ++node) {
    const int depth = depths[node];
    check(1 <= depth && depth <= depth_before + 1, "depths", "is not that of a trie");
    check(node < trie_ends[node] && trie_ends[node] <= ends[depth - 1], "ends", "is not that of a trie");
    check(depth > depth_before || ends[depth] == node, "ends", "is not that of a trie");
    ends[depth] = trie_ends[node];
    depth_before = depth;
  }
}

void check_next_same(Ints next_same) {
  const int64_t num_tokens = static_cast<int64_t>(next_same.size());
  check_values("next_same", next_same, -1, num_tokens);
  for (int64_t token = 0; token < num_tokens; ++token) {
    check(next_same[token] < 0 || next_same[token] > token, "next_same", "does not rise");
  }
}

void check_trie(const TokenTrie& trie, size_t num_summaries, size_t num_ordered) {
  check_nodes({trie.depths, static_cast<size_t>(trie.size)}, Ints(trie.ends, trie.size));
  check_values("summary_of", Ints(trie.summary_of, trie.size), -1, static_cast<int64_t>(num_summaries));
  check_offsets("firsts", Ints(trie.firsts, trie.size + 1), static_cast<int64_t>(num_ordered));
  for (int byte = 0; byte < 256; ++byte) {
    const int32_t root = trie.roots[byte];
    check(root == -1 || (0 <= root && root < trie.size && trie.depths[root] == 1), "roots", "has a value out of range");
  }
}

void check_vocabulary(const Vocabulary& vocabulary, size_t num_token_bytes) {
  const int64_t num_tokens = vocabulary.num_tokens;
  check(0 <= num_tokens && num_tokens <= 32 * vocabulary.num_words, "all_tokens", "is shorter than the vocabulary");
  check_offsets("token_offsets", Ints(vocabulary.token_offsets, num_tokens + 1), static_cast<int64_t>(num_token_bytes));
  check_next_same(Ints(vocabulary.next_same, num_tokens));
  for (const TokenTrie* trie : {&vocabulary.whole, &vocabulary.rest}) {
    check_values("tokens", Ints(trie->tokens, trie->size), -1, num_tokens);
    check_values("ordered", Ints(trie->ordered, trie->firsts[trie->size]), 0, num_tokens);
  }
}

}  // namespace phloem::fsm
