// Rows: a cache of an automaton's transitions, 256 targets for each state that was left.
//
// It takes the memory that states and stacks leave, but at least a sixteenth of the bound; then the newest row replaces
// the oldest (FIFO). Freeing rows forgets transitions, not states. Rows lie in segments, which never move.
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
  // Frees the rows that have no room besides states and stacks.
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
