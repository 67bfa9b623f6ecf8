#include "rows.h"

namespace phloem::fsm {

int64_t Rows::max_rows() const {
  const int64_t room = std::max(budget_.max_bytes() - budget_.held(), budget_.max_bytes() / 16);
  return std::max<int64_t>(room / static_cast<int64_t>(SEGMENT_ROWS * sizeof(Row)), 1) * SEGMENT_ROWS;
}

Row& Rows::add(int64_t state) {
  int64_t row = num_rows_;
  if (row == static_cast<int64_t>(segments_.size()) * SEGMENT_ROWS && row < max_rows()) {
    segments_.push_back(std::make_unique_for_overwrite<Row[]>(SEGMENT_ROWS));
  }
  if (row < static_cast<int64_t>(segments_.size()) * SEGMENT_ROWS) {
    ++num_rows_;
  } else {
    row = next_row_;
    next_row_ = row + 1 < num_rows_ ? row + 1 : 0;
    forget(row);
    ++num_given_way_;
  }
  states_[state].row = static_cast<int32_t>(row);
  Row& made = (*this)[row];
  std::fill_n(made.targets, 256, -1);
  made.owner = static_cast<int32_t>(state);
  return made;
}

void Rows::forget(int64_t row) {
  states_[(*this)[row].owner].row = NO_ROW;
}

void Rows::fit() {
  if (budget_.held() == fitted_) return;
  fitted_ = budget_.held();
  if (num_bytes() > max_rows() * static_cast<int64_t>(sizeof(Row))) keep(max_rows());
}

void Rows::keep(int64_t count) {
  for (int64_t row = count; row < num_rows_; ++row) forget(row);
  num_rows_ = std::min(num_rows_, count);
  next_row_ = 0;
  segments_.resize((count + SEGMENT_ROWS - 1) / SEGMENT_ROWS);
}

}  // namespace phloem::fsm
