// Rows: the memory in which an automaton remembers its steps, 256 targets for each state that was left again.
//
// There are at most as many as states and stacks leave room for, and a sixteenth of the bound in any case; then the
// oldest gives way to the newest. Giving rows back forgets steps, no states. They lie in segments, which never move.
#pragma once
#include <memory>

#include "states.h"

namespace phloem::fsm {

struct Row {
  int32_t targets[256];  // -1: not known yet
  int32_t owner;         // the state it belongs to
};

class Rows {
 public:
  Rows(States& states, const Budget& budget) : states_(states), budget_(budget) {}

  Row& operator[](int64_t row) { return segments_[row / SEGMENT_ROWS][row % SEGMENT_ROWS]; }

  // A row for a state that has none.
  Row& add(int64_t state);
  // Gives back what there is no room for beside what lasts.
  void fit();
  // Forgets all but the first `count` rows.
  void keep(int64_t count);

  int64_t num_rows() const { return num_rows_; }
  int64_t num_bytes() const { return static_cast<int64_t>(segments_.size() * SEGMENT_ROWS * sizeof(Row)); }
  // How many rows have given way to others, so that a long call may lose what it has found.
  int64_t num_given_way() const { return num_given_way_; }

  static constexpr int64_t SEGMENT_ROWS = 16;

 private:
  int64_t max_rows() const;
  void forget(int64_t row);

  States& states_;
  const Budget& budget_;
  std::vector<std::unique_ptr<Row[]>> segments_;
  int64_t num_rows_ = 0, next_row_ = 0, num_given_way_ = 0;
  int64_t fitted_ = 0;  // bytes that lasted when `fit` last looked
};

}  // namespace phloem::fsm
