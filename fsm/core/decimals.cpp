#include "decimals.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace phloem::fsm {

namespace {

enum Order { LESS = -1, EQUAL = 0, GREATER = 1 };
constexpr int32_t START = 1, MINUS = 2;

Order order_of(int digit, int other) { return digit < other ? LESS : digit > other ? GREATER : EQUAL; }

// Fills the rows of one sign, which begin at `base`; `relations`: whether an order in size is one of those wanted.
class SignRows {
 public:
  SignRows(Comparison& found, const Bound& bound, std::array<bool, 3> relations, bool with_point,
           DecimalClasses classes, int32_t base)
      : table_(found.table), accepting_(found.accepting), bound_(bound), relations_(relations), with_point_(with_point),
        classes_(classes), num_whole_(static_cast<int32_t>(bound.whole.size())),
        num_fraction_(static_cast<int32_t>(bound.fraction.size())), zero_(base), beyond_(base + 1), read_(base + 2),
        after_(read_ + 3 * num_whole_) {}

  void fill(int32_t opening) {
    for (int32_t digit = 0; digit < 10; ++digit) fill_whole(opening, digit);
    end(zero_, num_whole_ == 1 ? order_of(0, bound_.whole[0]) : LESS);
    end(beyond_, GREATER);
    for (int32_t count = 1; count <= num_whole_; ++count) {
      for (Order order : {LESS, EQUAL, GREATER}) {
        end(read_ + 3 * (count - 1) + order + 1, count == num_whole_ ? order : LESS);
      }
    }
    if (with_point_) fill_fraction();
  }

 private:
  void fill_whole(int32_t opening, int32_t digit) {
    const int32_t column = classes_.zero + digit;
    table_[opening][column] = digit ? read_ + 1 + order_of(digit, bound_.whole[0]) : zero_;
    for (int32_t count = 1; count < num_whole_; ++count) {
      const int32_t row = read_ + 3 * (count - 1);
      table_[row][column] = row + 3;
      table_[row + 1][column] = row + 4 + order_of(digit, bound_.whole[count]);
      table_[row + 2][column] = row + 5;
    }
    for (int32_t order = 0; order < 3; ++order) table_[after_ - 3 + order][column] = beyond_;
    table_[beyond_][column] = beyond_;
  }

  // Less and greater just after the point, then with digits; then the equal ones; the last row: all further zeros.
  void fill_fraction() {
    const int32_t less = after_ + 2, greater = after_ + 3, equal = after_ + 4;
    accepting_[less] = relations_[0];
    accepting_[greater] = relations_[2];
    for (int32_t digit = 0; digit < 10; ++digit) {
      const int32_t column = classes_.zero + digit;
      table_[after_][column] = table_[less][column] = less;
      table_[after_ + 1][column] = table_[greater][column] = greater;
      for (int32_t position = 0; position < num_fraction_ + 2; ++position) {
        const Order order = order_of(digit, position < num_fraction_ ? bound_.fraction[position] : 0);
        const int32_t following = equal + std::min(position, num_fraction_) + 1;
        table_[equal + position][column] = order == LESS ? less : order == GREATER ? greater : following;
      }
    }
    for (int32_t position = 1; position < num_fraction_ + 2; ++position) {
      accepting_[equal + position] = relations_[position < num_fraction_ ? 0 : 1];
    }
  }

  // A row at which the whole part may end, with this order to the bound's whole part.
  void end(int32_t row, Order order) {
    accepting_[row] = relations_[order == EQUAL && num_fraction_ ? 0 : order + 1];
    if (with_point_) table_[row][classes_.point] = order == LESS ? after_ : order == GREATER ? after_ + 1 : after_ + 4;
  }

  Table& table_;
  std::vector<uint8_t>& accepting_;
  const Bound& bound_;
  std::array<bool, 3> relations_;
  bool with_point_;
  DecimalClasses classes_;
  int32_t num_whole_, num_fraction_;
  int32_t zero_, beyond_, read_, after_;
};

}  // namespace

Comparison comparison(const Bound& bound, Bytes wanted, bool with_point, DecimalClasses classes) {
  const int32_t rows_per_sign = static_cast<int32_t>(3 * bound.whole.size() + bound.fraction.size()) + 9;
  const int64_t num_rows = 3 + 2 * rows_per_sign;
  Comparison found{Table(num_rows, classes.zero + 10), std::vector<uint8_t>(num_rows)};
  found.table[START][classes.sign] = MINUS;
  for (int sign : {1, -1}) {
    std::array<bool, 3> relations;
    for (int order = 0; order < 3; ++order) {
      relations[order] = wanted[1 + (bound.side == -sign ? sign : sign * (order - 1))] != 0;
    }
    SignRows rows(found, bound, relations, with_point, classes, sign > 0 ? 3 : 3 + rows_per_sign);
    rows.fill(sign > 0 ? START : MINUS);
  }
  return found;
}

std::vector<int32_t> tried(int64_t numerator, int places, int decimals, int64_t num_units) {
  const double scale = std::pow(10.0, decimals);
  const double step = static_cast<double>(numerator) / std::pow(10.0, places);
  int64_t shift = 1;
  for (int place = decimals; place < places; ++place) shift *= 10;
  std::vector<int32_t> found(num_units);
  for (int64_t unit = 0; unit < num_units; ++unit) {
    const double quotient = static_cast<double>(unit) / scale / step;
    found[unit] = unit * shift % numerator == 0 && quotient == std::floor(quotient) ? 0 : -1;
  }
  return found;
}

Kinds grouped(Ints numbers) {
  Kinds found{Table(0, 10), {}};
  Numbers known(numbers.size() / 10);
  for (const int32_t* row = numbers.data(); row < numbers.data() + numbers.size(); row += 10) {
    uint64_t hash = 0;
    for (int index = 0; index < 10; ++index) hash = mixed(hash, row[index]);
    int32_t kind = known.find(hash, [&](int32_t other) { return std::equal(row, row + 10, found.rows[other]); });
    if (kind < 0) {
      kind = static_cast<int32_t>(found.rows.num_rows());
      known.add(hash, kind);
      found.rows.cells.insert(found.rows.cells.end(), row, row + 10);
    }
    found.kinds.push_back(kind);
  }
  return found;
}

}  // namespace phloem::fsm
