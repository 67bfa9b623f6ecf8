// The minimal acyclic automaton (DAWG) of a list of texts (`minimal_acyclic`), and lengths of texts (`least_lengths`).
#include <algorithm>

#include "text_table.h"

namespace phloem::fsm {

namespace {

// Closed states, equal ones once; and the states along the text in hand, which are still open, by depth.
class Suffixes {
 public:
  Suffixes(int64_t longest, int32_t num_classes, int64_t max_cells)
      : table(1, num_classes), accepting(1), open_(longest + 1, num_classes), open_ends_(longest + 1),
        max_cells_(max_cells) {}

  // Closes the open state at a depth, to which `symbol` led: its number; -1 if there are too many.
  int32_t close(int64_t depth, int32_t symbol) {
    int32_t* row = open_[depth];
    uint64_t hash = open_ends_[depth];
    for (int64_t class_id = 1; class_id < table.num_columns; ++class_id) {
      if (row[class_id]) hash = mixed(hash, row[class_id] * table.num_columns + class_id);
    }
    int32_t state = numbers_.find(hash, [&](int32_t known) {
      return accepting[known] == open_ends_[depth] && std::equal(row, row + table.num_columns, table[known]);
    });
    if (state < 0) {
      state = static_cast<int32_t>(table.num_rows());
      if ((state + 1) * table.num_columns > max_cells_) return -1;
      table.add_row();
      std::copy_n(row, table.num_columns, table[state]);
      accepting.push_back(open_ends_[depth]);
      numbers_.add(hash, state);
    }
    std::fill_n(row, table.num_columns, 0);
    open_ends_[depth] = 0;
    if (depth) open_[depth - 1][symbol] = state;
    return state;
  }

  void end_at(int64_t depth) { open_ends_[depth] = 1; }

  Table table;
  std::vector<uint8_t> accepting;

 private:
  Table open_;
  std::vector<uint8_t> open_ends_;
  int64_t max_cells_;
  Numbers numbers_;
};

}  // namespace

Acyclic minimal_acyclic(Ints symbols, std::span<const int64_t> offsets, int32_t num_classes, int64_t max_cells) {
  const Acyclic too_large{Table(0, num_classes), {}, 0};
  std::vector<Ints> texts;
  int64_t longest = 0;
  for (size_t index = 0; index + 1 < offsets.size(); ++index) {
    texts.push_back(symbols.subspan(offsets[index], offsets[index + 1] - offsets[index]));
    longest = std::max(longest, static_cast<int64_t>(texts.back().size()));
  }
  if ((longest + 1) * num_classes > max_cells) return too_large;
  Suffixes suffixes(longest, num_classes, max_cells);
  Ints before;
  int32_t state = 0;
  for (size_t index = 0; index <= texts.size(); ++index) {
    const bool is_last = index == texts.size();
    const Ints text = is_last ? Ints() : texts[index];
    const auto shared = std::mismatch(before.begin(), before.end(), text.begin(), text.end()).first - before.begin();
    const int64_t kept = is_last ? -1 : shared;  // after the last text the root is closed, too
    for (int64_t depth = static_cast<int64_t>(before.size()); depth > kept; --depth) {
      state = suffixes.close(depth, depth ? before[depth - 1] : 0);
      if (state < 0) return too_large;
    }
    if (!is_last) suffixes.end_at(static_cast<int64_t>(text.size()));
    before = text;
  }
  return {std::move(suffixes.table), std::move(suffixes.accepting), state};
}

LeastLengths least_lengths(DfaView dfa, int64_t limit) {
  const int64_t num_states = dfa.table.num_rows, num_classes = dfa.table.num_columns;
  std::vector<std::vector<uint8_t>> ends;  // [n][q]: a text of n characters leads from q to an end
  Numbers known;
  int32_t tail = -1;
  while (tail < 0) {
    const int64_t length = static_cast<int64_t>(ends.size());
    if (length > limit) return {Table(0, 1), 0};
    std::vector<uint8_t> column(num_states);
    uint64_t hash = 0;
    for (int64_t state = 1; state < num_states; ++state) {
      bool is_end = length == 0 && dfa.accepting[state];
      for (int64_t class_id = 1; class_id < num_classes && length && !is_end; ++class_id) {
        is_end = ends[length - 1][dfa.table[state][class_id]];
      }
      column[state] = is_end;
      hash = mixed(hash, state * 2 + is_end);
    }
    tail = known.find(hash, [&](int32_t earlier) { return ends[earlier] == column; });
    known.add(hash, static_cast<int32_t>(length));
    if (tail < 0) ends.push_back(std::move(column));
  }
  const int64_t columns = static_cast<int64_t>(ends.size()), period = columns - tail;
  LeastLengths found{Table(num_states, columns, NEVER), tail};
  for (int64_t state = 1; state < num_states; ++state) {
    int32_t following = NEVER;
    for (int64_t column = columns + period - 1; column >= 0; --column) {
      const int64_t here = column < columns ? column : column - period;
      if (ends[here][state]) following = static_cast<int32_t>(column);
      if (column < columns) found.least[state][column] = following;
    }
  }
  return found;
}

}  // namespace phloem::fsm
