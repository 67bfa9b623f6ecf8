// Alphabets: code points sorted into classes, and their spelling as a byte trie, in UTF-8 and in JSON strings.
//
// Alphabets and templates are drawn in text/alphabet.py: starts and classes are int32[num_intervals],
// template int32[num_nodes, 256], where > 0 is the next node, < 0 a whole character of class -value, 0 nothing.
#pragma once
#include "table.h"

namespace phloem::fsm {

constexpr int32_t UNREACHABLE = 9;  // more bytes than any character has

struct AlphabetView {
  Ints starts, classes;
};

// The template of an alphabet. `of_one_class`: that of the alphabet of one class, from which one is quickly made that
// distinguishes only ASCII; or no rows.
Table spell(AlphabetView alphabet, int32_t num_classes, TableView of_one_class);

// A template that spells characters as inside a JSON string. The bare quote has the class `quote`. Six more nodes:
// after the backslash, after u, u0, u00, u000 and u001.
Table with_escapes(TableView inner, int32_t quote);

struct Partition {
  std::vector<int32_t> starts, classes;
  int32_t num_classes;
};

// The coarsest partition in which every set is a union of classes, neighbours not joined yet; with the classes of all
// sets, one after the other, and where those of each set end.
struct SplitSets {
  Partition partition;
  std::vector<int32_t> members, member_ends;
};

// firsts, lasts: the inclusive intervals of all sets, in any order, overlapping or not; set_ends: int32[num_sets],
// where those of each set end.
SplitSets classes_of_sets(Ints firsts, Ints lasts, Ints set_ends);

// The common refinement of two alphabets; and for each of its classes the class in either.
struct Refined {
  Partition partition;
  std::vector<int32_t> mine, theirs;
};
Refined common_classes(AlphabetView one, AlphabetView other);

// The alphabet in which the i-th of the sorted code points has class i + 1, all others but the surrogates one more.
Partition cut_out(Ints points);

// What can still be completed from each node of a template, whose children have greater numbers.
struct Completions {
  std::vector<uint8_t> reach;  // bool[num_nodes, num_classes]
  Table byte_costs;            // int32[num_nodes, num_classes], UNREACHABLE: none
};
Completions completions(TableView inner, int32_t num_classes);

}  // namespace phloem::fsm
