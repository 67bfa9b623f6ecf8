// TextTable: a text automaton laid out for the loops over tokens. Its arrays are described in text/text_table.py.
#pragma once
#include "alphabet.h"
#include "dfa.h"

namespace phloem::fsm {

constexpr int32_t NEVER = 1 << 29;  // a cost that is never paid

// Python keeps these fields as int64[24], and the arrays that they point to alive. Q table states, G classes, N nodes
// of the template, W words of G bits. A state of the byte automaton is state * N + node.
struct TextTable {
  const int32_t* table;           // [Q, G]
  const uint8_t* accepts;         // [Q]
  const int32_t* first_node;      // [256], the node of the template at the boundary of a character
  const uint64_t* reach;          // [N, W], the classes that can be completed from a node
  const uint64_t* live;           // [Q, W], the classes that lead on
  const int32_t* costs;           // [Q], least number of bytes to the end
  const int32_t* node_costs;      // [N, G], least number of bytes that complete a character of the class
  const uint8_t* is_wide;         // [G], the kinds beyond ASCII that the class has characters of
  const int32_t* num_ascii;       // [G], ASCII bytes that spell a character of the class
  int64_t num_classes;            // G
  int64_t num_nodes;              // N
  int64_t num_words;              // W
  int64_t start;                  // the first byte state
  int64_t num_states;             // Q
  int64_t min_length;             // least and greatest number of characters ...
  int64_t max_length;             // ... below 0: not counted
  const int32_t* least;           // [Q, tail + period], see `LeastLengths`
  int64_t tail, period;
  int64_t widest;                 // bytes of the widest character, if lengths are counted
  int64_t longest_way;            // greatest least length from any state to an end
  int32_t* plain;                 // [Q], filled when it is first asked for
  const int32_t* nodes;           // [N, 256], the template; its first node may be another one than `first_node`
  int64_t is_key;                 // A_KEY, AN_ITEM, AN_EDGE or 0

  const int32_t* node(int64_t index) const { return index ? nodes + index * 256 : first_node; }
};
static_assert(sizeof(TextTable) == 24 * 8);

// Rows of flags (whatever is not 0) as bits: uint64[num_rows, words].
template <class Flag>
std::vector<uint64_t> bits_of_rows(const Flag* flags, int64_t num_rows, int64_t num_flags) {
  const int64_t num_words = (num_flags + 63) >> 6;
  std::vector<uint64_t> bits(num_rows * num_words);
  for (int64_t row = 0; row < num_rows; ++row) {
    for (int64_t index = 0; index < num_flags; ++index) {
      if (flags[row * num_flags + index]) bits[row * num_words + (index >> 6)] |= uint64_t{1} << (index & 63);
    }
  }
  return bits;
}

// int32[num_states]: the least number of bytes from the boundary of a character to an end, NEVER if there is none.
// byte_costs: int32[num_classes], the least number of bytes of a character of the class.
std::vector<int32_t> costs_of(DfaView dfa, const int32_t* byte_costs);

// The kinds of characters beyond ASCII, spelt (`WideKinds`): kinds uint8[num_classes], below uint8[num_nodes].
struct WideKinds {
  TableView nodes;
  Bytes kinds, below;
};

// is_wide and num_ascii of a spelling. Both templates are followed at once, as far as more than one class meets more
// than one kind. reach: bool[num_nodes, num_classes].
struct CharacterKinds {
  std::vector<uint8_t> is_wide;
  std::vector<int32_t> num_ascii;
};
CharacterKinds character_kinds(TableView nodes, const bool* reach, int64_t num_classes, const WideKinds& wide);

// Copies of the arrays of a text, shapes as above; reach as bool[N, G].
struct TextArrays {
  Table table;
  std::vector<uint8_t> accepting;
  std::vector<int32_t> costs;
  Table nodes;
  std::vector<uint8_t> reach;
};
TextArrays copies_of(const TextTable& text);

}  // namespace phloem::fsm
