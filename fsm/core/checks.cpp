#include "checks.h"

#include <stdexcept>
#include <string>

namespace phloem::fsm {

void refuse_index(const char* what, int64_t index, int64_t end) {
  throw std::out_of_range("there is no such " + std::string(what) + ": " + std::to_string(index) + " of " +
                          std::to_string(end));
}

void refuse(const char* what, const char* why) { throw std::invalid_argument(std::string(what) + " " + why); }

void check_lens(const char* what, std::span<const int64_t> lens, size_t size) {
  int64_t left = static_cast<int64_t>(size);
  for (int64_t length : lens) {
    check(0 <= length && length <= left, what, "goes beyond the data");
    left -= length;
  }
}

void check_alphabet(AlphabetView alphabet, int64_t num_classes) {
  const Ints starts = alphabet.starts;
  check(!starts.empty() && starts[0] == 0, "starts", "does not begin with 0");
  check(std::adjacent_find(starts.begin(), starts.end(), std::greater_equal<>()) == starts.end(), "starts",
        "does not rise");
  check_values("starts", starts, 0, NUM_CODE_POINTS);
  check_size("classes", alphabet.classes.size(), static_cast<int64_t>(starts.size()));
  check_values("classes", alphabet.classes, 0, num_classes);
}

void check_template(TableView nodes, int64_t num_classes) {
  check(nodes.num_rows > 0 && nodes.num_columns == 256, "a template", "is int32[num_nodes, 256] of at least one node");
  for (int64_t node = 0; node < nodes.num_rows; ++node) {
    const int32_t* row = nodes[node];
    bool is_right = true;
    for (int byte = 0; byte < 256; ++byte) {
      is_right &= (row[byte] > node) | ((row[byte] <= 0) & (row[byte] > -num_classes));
      is_right &= row[byte] < nodes.num_rows;
    }
    check(is_right, "a template", "has a node or a class out of range");
  }
}

void check_points(Ints points) {
  check_values("points", points, 0, NUM_CODE_POINTS);
  const bool rises = std::adjacent_find(points.begin(), points.end(), std::greater_equal<>()) == points.end();
  const bool has_surrogates = std::any_of(points.begin(), points.end(), [](int32_t point) { return point >> 11 == 27; });
  check(rises && !has_surrogates, "points", "does not rise or has a surrogate");
}

void check_wide(const WideKinds& wide) {
  check_template(wide.nodes, static_cast<int64_t>(wide.kinds.size()));
  check_size("below", wide.below.size(), wide.nodes.num_rows);
}

void check_table(TableView table) {
  check(table.num_rows > 0 && table.num_columns > 0, "a table", "has no state or no class");
  const size_t size = static_cast<size_t>(table.num_rows * table.num_columns);
  check_values("a table", Ints(table.cells, size), 0, table.num_rows);
}

void check_dfa(DfaView dfa) {
  check_table(dfa.table);
  check_size("accepting", dfa.accepting.size(), dfa.table.num_rows);
}

}  // namespace phloem::fsm
