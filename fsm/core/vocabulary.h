// What all automata over one vocabulary have in common: its tries, its tokens, and scratch space.
#pragma once
#include <memory>
#include <mutex>

#include "text_table.h"

namespace phloem::fsm {

constexpr int MAX_TOKEN_LEN = 255;
constexpr int NUM_PLAIN_ROWS = 32;  // row n holds the tokens of at most n plain characters

// The vocabulary as a byte trie, flattened in depth-first order; drawn in vocabulary/trie.py. Made by `build_trie`.
struct TokenTrie {
  // by node: its byte, its depth (from 1 on), the first node that is not below it, and the token that ends there or -1
  std::vector<uint8_t> bytes, depths;
  std::vector<int32_t> ends, tokens;
  std::vector<int32_t> next_same;  // by token: the next one with the same bytes, or -1
  std::vector<int32_t> roots;      // [256]: the node of each first byte, or -1
  // By node the summary of its sub-tree, or -1: a small one, or not skippable. Each has three words: the ASCII bytes that
  // occur (two words); the kinds of other characters (`wide_kinds`), HAS_CUT if some token ends within a character, the
  // height in characters << HEIGHT_SHIFT, and the number of characters before the sub-tree << BEFORE_SHIFT. Of a
  // character that is cut any one kind that it may become.
  std::vector<int32_t> summary_of;
  std::vector<uint64_t> summaries;
  std::vector<int32_t> ordered;  // the tokens in the order of their nodes, all ids with the same bytes
  std::vector<int32_t> firsts;   // by node, and for the end: how many of them end before it
  std::vector<uint8_t> lens;     // the number of characters begun in each of them, if it is well-formed

  int64_t size() const { return static_cast<int64_t>(bytes.size()); }
};

constexpr uint64_t HAS_CUT = 128;
constexpr int HEIGHT_SHIFT = 8, BEFORE_SHIFT = 16;

// Characters of which any text of at most `steps` may follow a state of a text; see `find_safe`.
struct SafeCharacters {
  uint64_t ascii[2] = {0, 0};
  uint64_t unsafe_wide = 0;  // the kinds beyond ASCII that do not all belong to the set
  int64_t steps = 0;
  int64_t worst = 0;      // the greatest cost on the way
  bool is_exact = false;  // no text of more than `steps` of them may follow
};

// Space that a call may write to. Nothing in it outlives the call.
struct Scratch {
  static constexpr int SAFE_SLOTS = 256;  // states of a walk whose safe characters are kept, by state modulo SAFE_SLOTS
  struct Place {
    int64_t state, node, count;
  };
  struct Visit {
    int64_t key, stamp;
  };

  std::vector<Visit> seen = std::vector<Visit>(1 << 10);  // of a closure: open addressing
  int64_t stamp = 0;                                      // of this closure; other entries are free
  std::vector<int64_t> work, found, calls;
  int64_t path[MAX_TOKEN_LEN + 1];  // by depth of the trie: a state
  Place places[MAX_TOKEN_LEN + 1];  // the same inside a text
  uint8_t live[256];
  int64_t safe_of[SAFE_SLOTS];
  SafeCharacters safe[SAFE_SLOTS];
};

class Vocabulary {
 public:
  Vocabulary(const TokenTrie& all, const TokenTrie& others) : whole(all), rest(others) {}  // which must live as long

  const TokenTrie &whole, &rest;  // of all tokens, and of those that no plain row covers
  const uint8_t* token_bytes;
  const int32_t* token_offsets;
  const int32_t* plain_rows;  // [NUM_PLAIN_ROWS + 1, num_words]
  const int32_t* all_tokens;  // [num_words]
  const int32_t* eos;         // [num_words], the tokens that may follow a state that accepts
  int64_t num_words, num_tokens;

  std::span<const uint8_t> bytes_of(int64_t token) const {
    return {token_bytes + token_offsets[token], token_bytes + token_offsets[token + 1]};
  }

  // Scratch space for one call; given back when it ends. Any thread may ask.
  std::unique_ptr<Scratch> borrow();
  void give_back(std::unique_ptr<Scratch> scratch) noexcept;

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<Scratch>> free_;  // with room for all that were made
  size_t num_made_ = 0;
};

// The bits of a row, int32[num_words].
inline void set_bit(int32_t* bits, int64_t token) { bits[token >> 5] |= static_cast<int32_t>(1u << (token & 31)); }
inline void clear_bit(int32_t* bits, int64_t token) { bits[token >> 5] &= ~static_cast<int32_t>(1u << (token & 31)); }
inline bool has_bit(const int32_t* bits, int64_t token) {
  return static_cast<uint32_t>(bits[token >> 5]) >> (token & 31) & 1;
}

// Sets, clears the bits of all tokens that end at nodes node .. end - 1 of a trie.
void set_tokens(const TokenTrie& trie, int64_t node, int64_t end, int32_t* bits);
void clear_tokens(const TokenTrie& trie, int64_t node, int64_t end, int32_t* bits);
// Sets the bits of the tokens of at most `limit` characters that end there, and clears those of the others.
void set_short_tokens(const TokenTrie& trie, int64_t node, int64_t end, int64_t limit, int32_t* bits);

}  // namespace phloem::fsm
