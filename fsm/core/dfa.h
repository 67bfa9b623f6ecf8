// Loops over transition tables int32[num_states, num_classes], in which state 0 is dead. They know integers only.
#pragma once
#include <array>

#include "alphabet.h"

namespace phloem::fsm {

struct DfaView {
  TableView table;
  Flags accepting;  // bool[num_states]
};

enum class Alive { BOTH, EITHER, FIRST };  // which of a pair of states must be alive for the pair to be alive

// Two tables as one over common classes; classes: int32[num_common], the class in that table of each common class.
struct Pairing {
  TableView left, right;
  Ints left_classes, right_classes;
};

using Pair = std::array<int32_t, 2>;

// The reachable part of the product; other pairs collapse into state 0.
struct Product {
  Table table;              // int32[n, num_common]
  std::vector<Pair> pairs;  // int32[n, 2], the dead pair, then the start; empty if there were more than max_states
};
Product product(const Pairing& both, Pair start, Alive alive, int64_t max_states);

// Whether two automata accept a text in common: 1, 0, or -1 if more than `max_pairs` pairs would be looked at.
int meet(const Pairing& both, Flags left_accepts, Flags right_accepts, Pair start, int64_t max_pairs);

// bool[num_texts]: which texts an automaton accepts. points: the code points of all of them, one text after the other;
// lens: how many each has.
std::vector<uint8_t> takes(AlphabetView alphabet, DfaView dfa, int32_t start, Ints points,
                           std::span<const int64_t> lens);

// int32[num_states]: the least number of steps to an accepting state, -1 if there is no way.
std::vector<int32_t> distances(DfaView dfa);

// The table without states that cannot be reached or cannot end; the others keep their order. Only the dead state is
// left if the start is none of them.
struct Trimmed {
  Table table;
  std::vector<uint8_t> accepting;
  std::vector<int32_t> distance;
  int32_t start;
};
Trimmed trimmed(DfaView dfa, int32_t start);

// Classes with equal columns as one: the new number of each, in the order of their first ones, class 0 for itself; and
// the table of the new classes.
struct Joined {
  std::vector<int32_t> numbers;
  Table table;
};
Joined joined_classes(TableView table);

// The states by behaviour, for a table in which every state but 0 can end and class 0 leads nowhere: int32[num_states],
// equal for states that accept the same texts, numbered by the first of them; and these first ones.
//
// J. Hopcroft, "An n log n algorithm for minimizing states in a finite automaton" (1971).
struct Alike {
  std::vector<int32_t> blocks, members;
};
Alike alike_states(DfaView dfa);

// The lengths of texts from every state to an end, which become periodic (`Lengths` in text/counted.py).
struct LeastLengths {
  Table least;  // int32[num_states, tail + period]; no rows if there were more columns than `limit`
  int32_t tail;
};
LeastLengths least_lengths(DfaView dfa, int64_t limit);

// The minimal automaton of sorted, distinct texts: equal ends are one state at once (Daciuk and others 2000).
//
// symbols: the classes, from 1 on and below num_classes, of the characters of all texts, one text after the other;
// offsets: int64[num_texts + 1], where each begins. An empty table if it had more than max_cells entries.
struct Acyclic {
  Table table;
  std::vector<uint8_t> accepting;
  int32_t start;
};
Acyclic minimal_acyclic(Ints symbols, std::span<const int64_t> offsets, int32_t num_classes, int64_t max_cells);

}  // namespace phloem::fsm
