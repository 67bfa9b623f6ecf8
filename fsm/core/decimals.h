// Automata of decimal texts: comparison with a bound, and short decimals that are tried one by one.
#pragma once
#include "table.h"

namespace phloem::fsm {

// Texts in one of the wanted relations to a bound. Rows per sign: zero; more digits than the bound has before its
// point; (digits read, order so far); then, after the point, less and greater with and without a digit, and how many
// digits equal those of the bound.
struct Bound {
  Bytes whole, fraction;  // the digits before and after the point
  int side;               // its sign, 0 for zero
};
struct DecimalClasses {
  int32_t sign, point, zero;  // the classes of - and . and 0, after which those of the other digits follow
};
struct Comparison {
  Table table;  // int32[num_rows, zero + 10]; row 0 is dead, 1 the first
  std::vector<uint8_t> accepting;
};
// wanted: whether texts that are less, equal, greater are accepted; with_point: whether texts with a fraction are read.
Comparison comparison(const Bound& bound, Bytes wanted, bool with_point, DecimalClasses classes);

// int32[num_units]: 0 where index / 10**decimals is a multiple of numerator / 10**places for all readers, else -1: for
// readers that compute in decimals, and for readers that divide floats. There are at most as many decimals as places.
std::vector<int32_t> tried(int64_t numerator, int places, int decimals, int64_t num_units);

// Equal rows of ten (int32[10 * n]) as one kind: the kinds, int32[num_kinds, 10], in the order of their first rows, and
// the kind of each row, int32[n].
struct Kinds {
  Table rows;
  std::vector<int32_t> kinds;
};
Kinds grouped(Ints numbers);

}  // namespace phloem::fsm
