#include "dfa.h"

#include <algorithm>

namespace phloem::fsm {

namespace {

// Pairs of states, numbered from 1 on as they are met; number 0 is the dead pair.
struct PairNumbers {
  std::vector<Pair> pairs = {{0, 0}};
  Numbers numbers;

  int32_t find(Pair pair) const {
    return numbers.find(hash(pair), [&](int32_t number) { return pairs[number] == pair; });
  }
  int32_t add(Pair pair) {
    pairs.push_back(pair);
    const int32_t number = static_cast<int32_t>(pairs.size()) - 1;
    numbers.add(hash(pair), number);
    return number;
  }
  static uint64_t hash(Pair pair) { return mixed(mixed(0, pair[0]), pair[1]); }
};

bool is_dead(Pair pair, Alive alive) {
  switch (alive) {
    case Alive::BOTH: return pair[0] == 0 || pair[1] == 0;
    case Alive::EITHER: return pair[0] == 0 && pair[1] == 0;
    default: return pair[0] == 0;
  }
}

Pair after(const Pairing& both, Pair from, size_t common) {
  return {both.left[from[0]][both.left_classes[common]], both.right[from[1]][both.right_classes[common]]};
}

// Where each state is led to from, each way once: sources[begins[state] : begins[state + 1]].
struct Sources {
  std::vector<int64_t> begins;
  std::vector<int32_t> sources;
};

template <class Visit>
void each_way(TableView table, Visit visit) {
  for (int64_t state = 0; state < table.num_rows; ++state) {
    int32_t previous = 0;
    for (int64_t class_id = 0; class_id < table.num_columns; ++class_id) {
      const int32_t target = table[state][class_id];
      if (target != previous && target != 0) {
        visit(static_cast<int32_t>(state), target);
        previous = target;
      }
    }
  }
}

Sources sources_of(TableView table) {
  Sources found{std::vector<int64_t>(table.num_rows + 2), {}};
  each_way(table, [&](int32_t, int32_t target) { ++found.begins[target + 2]; });
  for (size_t at = 2; at < found.begins.size(); ++at) found.begins[at] += found.begins[at - 1];
  found.sources.resize(found.begins.back());
  each_way(table, [&](int32_t state, int32_t target) { found.sources[found.begins[target + 1]++] = state; });
  return found;
}

// bool[num_states]: the states that can be reached and can end (`steps` >= 0); never the dead one.
std::vector<uint8_t> reachable(TableView table, const std::vector<int32_t>& steps, int32_t start) {
  std::vector<uint8_t> seen(table.num_rows);
  std::vector<int32_t> pending;
  auto reach = [&](int32_t state) {
    if (state == 0 || steps[state] < 0 || seen[state]) return;
    seen[state] = 1;
    pending.push_back(state);
  };
  reach(start);
  while (!pending.empty()) {
    const int32_t* row = table[pending.back()];
    pending.pop_back();
    for (int64_t class_id = 0; class_id < table.num_columns; ++class_id) reach(row[class_id]);
  }
  return seen;
}

}  // namespace

Product product(const Pairing& both, Pair start, Alive alive, int64_t max_states) {
  const size_t num_common = both.left_classes.size();
  PairNumbers states;
  Table table(2, num_common);
  states.add(start);
  for (int32_t state = 1; state < static_cast<int32_t>(states.pairs.size()); ++state) {
    const Pair here = states.pairs[state];
    Pair previous{0, 0};  // neighbouring classes mostly lead to the same state
    int32_t target = 0;
    for (size_t common = 0; common < num_common; ++common) {
      const Pair following = after(both, here, common);
      if (is_dead(following, alive)) continue;
      if (following != previous) target = states.find(following);
      previous = following;
      if (target < 0) {
        if (static_cast<int64_t>(states.pairs.size()) >= max_states) return {Table(0, num_common), {}};
        target = states.add(following);
        table.add_row();
      }
      table[state][common] = target;
    }
  }
  return {std::move(table), std::move(states.pairs)};
}

int meet(const Pairing& both, Flags left_accepts, Flags right_accepts, Pair start, int64_t max_pairs) {
  PairNumbers states;
  states.add(start);
  for (size_t at = 1; at < states.pairs.size(); ++at) {
    const Pair here = states.pairs[at];
    if (left_accepts[here[0]] && right_accepts[here[1]]) return 1;
    for (size_t common = 0; common < both.left_classes.size(); ++common) {
      const Pair following = after(both, here, common);
      if (is_dead(following, Alive::BOTH) || states.find(following) >= 0) continue;
      if (static_cast<int64_t>(states.pairs.size()) >= max_pairs) return -1;
      states.add(following);
    }
  }
  return 0;
}

std::vector<uint8_t> takes(AlphabetView alphabet, DfaView dfa, int32_t start, Ints points,
                           std::span<const int64_t> lens) {
  std::vector<uint8_t> found(lens.size());
  const int32_t* point = points.data();
  for (size_t index = 0; index < lens.size(); ++index) {
    int32_t state = start;
    for (int64_t at = 0; at < lens[index] && state; ++at) {
      const auto above = std::upper_bound(alphabet.starts.begin(), alphabet.starts.end(), point[at]);
      state = dfa.table[state][alphabet.classes[above - alphabet.starts.begin() - 1]];
    }
    found[index] = dfa.accepting[state];
    point += lens[index];
  }
  return found;
}

std::vector<int32_t> distances(DfaView dfa) {
  const Sources led = sources_of(dfa.table);
  std::vector<int32_t> steps(dfa.table.num_rows, -1), queue;
  queue.reserve(dfa.table.num_rows);
  for (int32_t state = 1; state < dfa.table.num_rows; ++state) {
    if (!dfa.accepting[state]) continue;
    steps[state] = 0;
    queue.push_back(state);
  }
  for (size_t head = 0; head < queue.size(); ++head) {
    const int32_t state = queue[head];
    for (int64_t edge = led.begins[state]; edge < led.begins[state + 1]; ++edge) {
      const int32_t source = led.sources[edge];
      if (steps[source] >= 0) continue;
      steps[source] = steps[state] + 1;
      queue.push_back(source);
    }
  }
  return steps;
}

Trimmed trimmed(DfaView dfa, int32_t start) {
  const TableView table = dfa.table;
  const std::vector<int32_t> steps = distances(dfa);
  const std::vector<uint8_t> seen = reachable(table, steps, start);
  std::vector<int32_t> numbers(table.num_rows);
  int32_t count = 1;
  for (int64_t state = 1; state < table.num_rows; ++state) {
    if (seen[state]) numbers[state] = count++;
  }
  Trimmed found{Table(count, table.num_columns), std::vector<uint8_t>(count), std::vector<int32_t>(count, -1),
                numbers[start]};
  for (int64_t state = 1; state < table.num_rows; ++state) {
    if (!seen[state]) continue;
    const int32_t row = numbers[state];
    found.accepting[row] = dfa.accepting[state];
    found.distance[row] = steps[state];
    std::transform(table[state], table[state + 1], found.table[row], [&](int32_t target) { return numbers[target]; });
  }
  return found;
}

Joined joined_classes(TableView table) {
  std::vector<uint64_t> hashes(table.num_columns);
  for (int64_t state = 0; state < table.num_rows; ++state) {
    for (int64_t class_id = 0; class_id < table.num_columns; ++class_id) {
      hashes[class_id] = mixed(hashes[class_id], table[state][class_id]);
    }
  }
  auto is_same = [&](int32_t one, int32_t other) {
    for (int64_t state = 0; state < table.num_rows; ++state) {
      if (table[state][one] != table[state][other]) return false;
    }
    return true;
  };
  std::vector<int32_t> new_number(table.num_columns), kept = {0};
  Numbers known(table.num_columns);
  for (int32_t class_id = 1; class_id < table.num_columns; ++class_id) {
    const int32_t same = known.find(hashes[class_id], [&](int32_t other) { return is_same(other, class_id); });
    if (same >= 0) {
      new_number[class_id] = new_number[same];
      continue;
    }
    known.add(hashes[class_id], class_id);
    new_number[class_id] = static_cast<int32_t>(kept.size());
    kept.push_back(class_id);
  }
  Joined found{std::move(new_number), Table(table.num_rows, kept.size())};
  for (int64_t state = 0; state < table.num_rows; ++state) {
    std::transform(kept.begin(), kept.end(), found.table[state], [&](int32_t old) { return table[state][old]; });
  }
  return found;
}

}  // namespace phloem::fsm
