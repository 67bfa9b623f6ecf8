// What all automata over one vocabulary have in common: its tries, its tokens, and scratch space.
#pragma once
#include <memory>
#include <mutex>

#include "text_table.h"

namespace phloem::fsm {

constexpr int MAX_TOKEN_LEN = 255;
constexpr int NUM_PLAIN_ROWS = 32;  // row n holds the tokens of at most n plain characters

// The arrays of a `Trie` (vocabulary/trie.py), by node.
struct TokenTrie {
  const uint8_t *bytes, *depths;
  const int32_t *ends, *tokens;
  const int32_t* roots;       // [256]
  const int32_t* summary_of;  // -1: none
  const uint64_t* summaries;  // [.., 3]
  const int32_t *ordered, *firsts;
  const uint8_t* lens;
  int64_t size;
};

// The third word of a summary: kinds of characters, then this flag, then the height and the characters before.
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
  TokenTrie whole, rest;      // of all tokens, and of those that no plain row covers
  const int32_t* next_same;   // by token: the next one with the same bytes, or -1
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

// Throw std::invalid_argument unless all indices are in range, of arrays whose sizes agree. Linear in the arrays.
void check_trie(const TokenTrie& trie, size_t num_summaries, size_t num_ordered);
void check_vocabulary(const Vocabulary& vocabulary, size_t num_token_bytes);
// Nodes in depth-first order: each is at most one deeper than the one before, and ends where its parent does or before.
void check_nodes(Bytes depths, Ints ends);
// The next token with the same bytes is a greater one, so following it ends.
void check_next_same(Ints next_same);

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
