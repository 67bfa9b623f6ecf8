#include "alphabet.h"

#include <algorithm>
#include <array>

namespace phloem::fsm {

namespace {

constexpr int32_t MAX_CODE_POINT = 0x10FFFF;
constexpr int32_t SURROGATES = 0xD800, AFTER_SURROGATES = 0xE000;
constexpr std::pair<int, int> SHORT_ESCAPES[] = {{0x22, 0x22}, {0x5C, 0x5C}, {0x08, 0x62}, {0x0C, 0x66},
                                                 {0x0A, 0x6E}, {0x0D, 0x72}, {0x09, 0x74}};

// Follows the intervals of an alphabet, forwards only.
struct Reader {
  AlphabetView alphabet;
  size_t interval = 0;

  int32_t class_at(int32_t point) {
    while (ends_at() <= point) ++interval;
    return alphabet.classes[interval];
  }
  int32_t ends_at() const {
    return interval + 1 < alphabet.starts.size() ? alphabet.starts[interval + 1] : MAX_CODE_POINT + 1;
  }
};

// Makes the nodes of a template, equal ones once, children first.
class Speller {
 public:
  Speller(AlphabetView alphabet, int32_t num_classes) : reader_{alphabet}, uniform_(num_classes) {}

  Table template_of() {
    std::array<int32_t, 256> root{};
    for (int32_t point = 0; point < 0x80; ++point) root[point] = -reader_.class_at(point);
    for (int lead = 0xC2; lead < 0xF5; ++lead) {
      if (lead < 0xE0) {
        root[lead] = block((lead - 0xC0) << 6, 0, 0x80);
      } else if (lead < 0xF0) {
        root[lead] = block((lead - 0xE0) << 12, 1, 0x800);
      } else {
        root[lead] = block((lead - 0xF0) << 18, 2, 0x10000);
      }
    }
    return turned(root);
  }

 private:
  using Row = std::array<int32_t, 64>;

  // The number of the node for 64 << 6 * level code points, of which those from `least` on are spelt so; 0: none.
  int32_t block(int32_t first, int level, int32_t least) {
    const int32_t after = first + (64 << 6 * level);
    if (after <= least || first > MAX_CODE_POINT) return 0;
    const int32_t class_id = first >= least ? reader_.class_at(first) : 0;
    const bool is_one = class_id && level < 2 && reader_.ends_at() >= after;
    if (is_one && uniform_[class_id][level]) return uniform_[class_id][level];
    Row row;
    for (int32_t index = 0; index < 64; ++index) {
      row[index] = level ? block(first + (index << 6 * level), level - 1, least) : -reader_.class_at(first + index);
    }
    const int32_t number = shared(row);
    if (is_one) uniform_[class_id][level] = number;
    return number;
  }

  int32_t shared(const Row& row) {
    uint64_t hash = 0;
    for (int32_t value : row) hash = mixed(hash, static_cast<uint64_t>(value + 0x10000));
    if (std::all_of(row.begin(), row.end(), [](int32_t value) { return value == 0; })) return 0;
    const int32_t known = numbers_.find(hash, [&](int32_t number) { return rows_[number] == row; });
    if (known >= 0) return known + 1;
    numbers_.add(hash, static_cast<int32_t>(rows_.size()));
    rows_.push_back(row);
    return static_cast<int32_t>(rows_.size());
  }

  // Rows were numbered children first: turned round, so that parents come first and the root is 0.
  Table turned(const std::array<int32_t, 256>& root) const {
    const int32_t num_nodes = static_cast<int32_t>(rows_.size()) + 1;
    auto target = [&](int32_t value) { return value <= 0 ? value : num_nodes - value; };
    Table found(num_nodes, 256);
    std::transform(root.begin(), root.end(), found[0], target);
    for (int32_t row = 0; row < num_nodes - 1; ++row) {
      std::transform(rows_[row].begin(), rows_[row].end(), found[num_nodes - 1 - row] + 0x80, target);
    }
    return found;
  }

  Reader reader_;
  std::vector<std::array<int32_t, 2>> uniform_;  // the node of "all of this class", by level; 0: not made yet
  std::vector<Row> rows_;
  Numbers numbers_;
};

// Whether all characters beyond ASCII are of one class: the surrogates are an interval of their own.
bool is_one_beyond_ascii(AlphabetView alphabet) {
  const size_t size = alphabet.starts.size();
  return size > 2 && alphabet.starts[size - 1] == AFTER_SURROGATES &&
         alphabet.classes[size - 3] == alphabet.classes[size - 1] && alphabet.starts[size - 3] <= 0x80;
}

// Where the intervals and the surrogates begin and end, sorted, each once; none among the surrogates.
std::vector<int32_t> cuts(Ints firsts, Ints lasts) {
  std::vector<int32_t> found = {0, SURROGATES, AFTER_SURROGATES};
  for (size_t index = 0; index < firsts.size(); ++index) {
    for (int32_t cut : {firsts[index], lasts[index] + 1}) {
      if (cut <= MAX_CODE_POINT && !(SURROGATES < cut && cut < AFTER_SURROGATES)) found.push_back(cut);
    }
  }
  std::sort(found.begin(), found.end());
  found.erase(std::unique(found.begin(), found.end()), found.end());
  return found;
}

// Calls visit(set, interval of the partition) for all that each set covers.
template <class Visit>
void each_covered(const std::vector<int32_t>& starts, Ints firsts, Ints lasts, Ints set_ends, Visit visit) {
  int32_t index = 0;
  for (int32_t set = 0; set < static_cast<int32_t>(set_ends.size()); ++set) {
    for (; index < set_ends[set]; ++index) {
      auto at = std::lower_bound(starts.begin(), starts.end(), firsts[index]) - starts.begin();
      for (; at < static_cast<int64_t>(starts.size()) && starts[at] <= lasts[index]; ++at) visit(set, at);
    }
  }
}

// Splits classes one set after the other: what a set covers of a class becomes a class of its own, unless that is all.
class Splitter {
 public:
  explicit Splitter(size_t num_intervals)
      : classes(num_intervals, 1), stamps_(num_intervals, -1), known_{{}, {static_cast<int32_t>(num_intervals)}} {}

  void take(int32_t set, int64_t at) {
    if (stamps_[at] == set) return;
    stamps_[at] = set;
    const int32_t before = classes[at];
    if (known_[before].split_by != set) {
      const int32_t added = new_class();
      known_[before].split_by = set;
      known_[before].split_into = added;
    }
    classes[at] = known_[before].split_into;
    ++known_[classes[at]].size;
    if (--known_[before].size == 0) free_.push_back(before);
  }

  std::vector<int32_t> classes;
  size_t num_classes() const { return known_.size(); }

 private:
  struct Class {
    int32_t size = 0, split_by = -1, split_into = 0;
  };

  int32_t new_class() {
    if (free_.empty()) {
      known_.push_back({});
      return static_cast<int32_t>(known_.size()) - 1;
    }
    const int32_t found = free_.back();
    free_.pop_back();
    known_[found].split_by = -1;
    return found;
  }

  std::vector<int32_t> stamps_;  // the last set that covered the interval
  std::vector<Class> known_;
  std::vector<int32_t> free_;
};

}  // namespace

Table spell(AlphabetView alphabet, int32_t num_classes, TableView of_one_class) {
  if (!of_one_class.num_rows || !is_one_beyond_ascii(alphabet)) return Speller(alphabet, num_classes).template_of();
  Table found(of_one_class.num_rows, 256);
  const int32_t beyond = -alphabet.classes.back();
  std::transform(of_one_class.cells, of_one_class.cells + found.cells.size(), found.cells.begin(),
                 [&](int32_t value) { return value < 0 ? beyond : value; });
  Reader reader{alphabet};
  for (int32_t point = 0; point < 0x80; ++point) found[0][point] = -reader.class_at(point);
  return found;
}

Table with_escapes(TableView inner, int32_t quote) {
  const int32_t first = static_cast<int32_t>(inner.num_rows);
  Table found(first + 6, 256);
  std::copy_n(inner.cells, first * 256, found.cells.begin());
  auto long_escape = [&](int32_t point) -> int32_t& {
    const int32_t last = point & 15;
    return found[first + 4 + (point >> 4)][last + (last < 10 ? 0x30 : 0x57)];
  };
  for (int32_t point = 0; point < 0x20; ++point) {
    found[0][point] = 0;
    long_escape(point) = inner[0][point];
  }
  found[0][0x22] = -quote;
  found[0][0x5C] = first;
  found[first][0x75] = first + 1;
  found[first + 1][0x30] = first + 2;
  found[first + 2][0x30] = first + 3;
  found[first + 3][0x30] = first + 4;
  found[first + 3][0x31] = first + 5;
  for (auto [point, letter] : SHORT_ESCAPES) {
    found[first][letter] = inner[0][point];
    if (point < 0x20) long_escape(point) = 0;
  }
  return found;
}

SplitSets classes_of_sets(Ints firsts, Ints lasts, Ints set_ends) {
  SplitSets found{{cuts(firsts, lasts), {}, 1}, {}, {}};
  auto& [starts, classes, num_classes] = found.partition;
  Splitter splitter(starts.size());
  each_covered(starts, firsts, lasts, set_ends, [&](int32_t set, int64_t at) { splitter.take(set, at); });
  classes = std::move(splitter.classes);
  std::vector<int32_t> numbers(splitter.num_classes());  // in the order of the first characters
  for (size_t at = 0; at < starts.size(); ++at) {
    int32_t& number = numbers[classes[at]];
    if (starts[at] != SURROGATES && number == 0) number = num_classes++;
    classes[at] = starts[at] == SURROGATES ? 0 : number;
  }
  std::vector<int32_t> seen(num_classes, -1);
  found.member_ends.resize(set_ends.size());
  each_covered(starts, firsts, lasts, set_ends, [&](int32_t set, int64_t at) {
    const int32_t class_id = classes[at];
    if (class_id == 0 || seen[class_id] == set) return;
    seen[class_id] = set;
    found.members.push_back(class_id);
    ++found.member_ends[set];
  });
  for (size_t set = 1; set < set_ends.size(); ++set) found.member_ends[set] += found.member_ends[set - 1];
  return found;
}

Refined common_classes(AlphabetView one, AlphabetView other) {
  const size_t size = one.starts.size() + other.starts.size();
  Refined found{{{}, {}, 1}, {0}, {0}};
  auto& [starts, classes, num_classes] = found.partition;
  starts.reserve(size), classes.reserve(size);
  Numbers numbers(size);
  Reader left{one}, right{other};
  for (int32_t position = 0; position <= MAX_CODE_POINT;) {
    const int32_t mine = left.class_at(position), theirs = right.class_at(position);
    int32_t number = 0;
    if (mine || theirs) {
      const uint64_t hash = mixed(mixed(0, mine), theirs);
      number = numbers.find(
          hash, [&](int32_t known) { return found.mine[known] == mine && found.theirs[known] == theirs; });
      if (number < 0) {
        number = num_classes++;
        numbers.add(hash, number);
        found.mine.push_back(mine), found.theirs.push_back(theirs);
      }
    }
    if (classes.empty() || classes.back() != number) starts.push_back(position), classes.push_back(number);
    position = std::min(left.ends_at(), right.ends_at());
  }
  return found;
}

Partition cut_out(Ints points) {
  const int32_t num_points = static_cast<int32_t>(points.size());
  Partition found{{}, {}, num_points + 2};
  found.starts.reserve(2 * num_points + 3), found.classes.reserve(2 * num_points + 3);
  int32_t index = 0;
  for (int32_t following = 0; following <= MAX_CODE_POINT;) {
    found.starts.push_back(following);
    if (following == SURROGATES) {
      found.classes.push_back(0);
      following = AFTER_SURROGATES;
    } else if (index < num_points && points[index] == following) {
      found.classes.push_back(++index);
      ++following;
    } else {
      found.classes.push_back(num_points + 1);
      const int32_t end = index < num_points ? points[index] : MAX_CODE_POINT + 1;
      following = following < SURROGATES ? std::min(end, SURROGATES) : end;
    }
  }
  return found;
}

Completions completions(TableView inner, int32_t num_classes) {
  Completions found{std::vector<uint8_t>(inner.num_rows * num_classes),
                    Table(inner.num_rows, num_classes, UNREACHABLE)};
  for (int64_t node = inner.num_rows - 1; node >= 0; --node) {
    uint8_t* reach = found.reach.data() + node * num_classes;
    int32_t* costs = found.byte_costs[node];
    int32_t previous = 0;
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t value = inner[node][byte];
      if (value < 0) {
        reach[-value] = 1;
        costs[-value] = 1;
      } else if (value > 0 && value != previous) {
        previous = value;
        for (int32_t class_id = 0; class_id < num_classes; ++class_id) {
          reach[class_id] |= found.reach[value * num_classes + class_id];
          costs[class_id] = std::min(costs[class_id], found.byte_costs[value][class_id] + 1);
        }
      }
    }
  }
  return found;
}

}  // namespace phloem::fsm
