// Checks of arguments from Python: indices, sizes, and the values of arrays that are used as indices.
//
// A wrong index is std::out_of_range (in Python IndexError), all else std::invalid_argument (ValueError). `what` is the
// name of the argument. Each check costs one comparison for an index, and one pass over an array.
#pragma once
#include <algorithm>
#include <limits>

#include "alphabet.h"
#include "text_table.h"

namespace phloem::fsm {

constexpr int32_t MOST_CLASSES = 0x110000 + 2;  // of an alphabet: one for each code point, none, and one more
constexpr int64_t MAX_BYTE_STATES = 1 << 23;   // of a text: they share an integer with a position and a stack
constexpr int32_t NUM_CODE_POINTS = 0x110000;
constexpr int64_t MAX_LENGTH = int64_t{1} << 40;    // of a text, in characters: as good as endless
constexpr int64_t MAX_COUNT = std::numeric_limits<int32_t>::max();

[[noreturn]] void refuse_index(const char* what, int64_t index, int64_t end);
[[noreturn]] void refuse(const char* what, const char* why);

inline void check(bool is_right, const char* what, const char* why) {
  if (!is_right) refuse(what, why);
}

// An index below `end`.
inline void check_index(const char* what, int64_t index, int64_t end) {
  if (index < 0 || index >= end) refuse_index(what, index, end);
}

// A number in first .. last.
inline void check_number(const char* what, int64_t number, int64_t first, int64_t last) {
  check(first <= number && number <= last, what, "is out of range");
}

// The same number of entries as something else.
inline void check_size(const char* what, size_t size, int64_t wanted) {
  check(static_cast<int64_t>(size) == wanted, what, "has the wrong size");
}

// Values in first .. end - 1.
template <class T>
void check_values(const char* what, std::span<const T> values, int64_t first, int64_t end) {
  T least = std::numeric_limits<T>::max(), most = std::numeric_limits<T>::lowest();
  for (T value : values) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
  check(values.empty() || (least >= first && most < end), what, "has a value out of range");
}

// Offsets into an array of `end` entries: they never fall.
template <class T>
void check_offsets(const char* what, std::span<const T> offsets, int64_t end) {
  check_values(what, offsets, 0, end + 1);
  check(std::is_sorted(offsets.begin(), offsets.end()), what, "falls");
}

// Lengths of parts of an array of `size` entries, one after the other.
void check_lens(const char* what, std::span<const int64_t> lens, size_t size);

// An alphabet with classes below num_classes: see alphabet.h.
void check_alphabet(AlphabetView alphabet, int64_t num_classes);
// A template over classes below num_classes, children after their parents.
void check_template(TableView nodes, int64_t num_classes);
// Code points that rise, without surrogates.
void check_points(Ints points);
void check_wide(const WideKinds& wide);
// A transition table, with at least one state and class; and which of its states accept.
void check_table(TableView table);
void check_dfa(DfaView dfa);

}  // namespace phloem::fsm
