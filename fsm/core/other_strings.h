// The automata of all texts except some: a trie of these, from which every other character leads into "any text".
#pragma once
#include "text_table.h"

namespace phloem::fsm {

constexpr int32_t OTHER_CLASS = 1;  // of any character

// A `Dfa` from state 1 that takes all texts but the given ones.
//
// symbols: the characters of the sorted, distinct texts one after the other, each as its class - 1; lens:
// int64[num_texts]; num_classes: class 0 is never written, the last one is that of no symbol.
struct OtherTexts {
  Table table;
  std::vector<uint8_t> accepting;
  std::vector<int32_t> distance;
};
OtherTexts trie_except(std::span<const int64_t> symbols, std::span<const int64_t> lens, int64_t num_classes);

// What the tables of `strings_except` have in common, in which class 1 is any character: int32, the numbers of nodes
// and of ASCII characters, is_wide; the template of all JSON strings; by node the bytes to a whole character.
// num_classes: the columns of byte_costs, int32[num_nodes, num_classes].
std::vector<int32_t> base_of_strings(TableView nodes, TableView byte_costs, Bytes is_wide, Ints num_ascii);

// The `TextTable` of all JSON strings but some, as `OtherStrings` numbers their states.
//
// Classes are numbered as in `base` (`base_of_strings`), those of single characters follow: so the template is
// that of all strings but for the first node, since only ASCII is distinguished. It lies in `base`, which must live as
// long.
//
// texts: the sorted, distinct texts, printable ASCII without backslash, with a quote after each.
//
// Returns int64: the fields, the length of the shortest string (which is the greatest cost of a state), and the arrays
// that the fields point to.
std::vector<int64_t> strings_except(Bytes texts, Ints base);

// Throws std::invalid_argument unless its arguments are such texts, and such a base; TooLarge if there are too many.
void check_strings(Bytes texts, Ints base);

}  // namespace phloem::fsm
