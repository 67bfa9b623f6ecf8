#include "text_table.h"

#include <algorithm>

namespace phloem::fsm {

namespace {

constexpr uint8_t ALL_WIDE = 63;

class KindsWalk {
 public:
  KindsWalk(TableView nodes, const bool* reach, int64_t num_classes, const WideKinds& wide)
      : nodes_(nodes), reach_(reach), num_classes_(num_classes), wide_(wide), is_wide(num_classes) {}

  void run() {
    pending_.push_back({0, 0});
    while (!pending_.empty()) {
      const auto [node, wide] = pending_.back();
      pending_.pop_back();
      const uint8_t kinds = wide_.below[wide];
      const bool is_one_kind = (kinds & (kinds - 1)) == 0;
      if (node && (is_one_kind || num_reached(node) == 1)) {
        add(node, kinds);
      } else {
        step(node, wide);
      }
    }
  }

 private:
  struct Pair {
    int32_t node, wide;
  };

  const bool* reached(int32_t node) const { return reach_ + node * num_classes_; }
  int64_t num_reached(int32_t node) const { return std::count(reached(node), reached(node) + num_classes_, true); }

  void add(int32_t node, uint8_t kinds) {
    for (int64_t class_id = 0; class_id < num_classes_; ++class_id) {
      if (reached(node)[class_id]) is_wide[class_id] |= kinds;
    }
  }

  void step(int32_t node, int32_t wide) {
    int32_t previous = 0, previous_wide = 0;
    for (int byte = 0x80; byte < 256; ++byte) {
      const int32_t entry = nodes_[node][byte], wide_entry = wide_.nodes[wide][byte];
      if (entry == previous && wide_entry == previous_wide) continue;
      previous = entry;
      previous_wide = wide_entry;
      if (entry < 0) {
        is_wide[-entry] |= node && wide_entry < 0 ? wide_.kinds[-wide_entry] : ALL_WIDE;
      } else if (entry > 0 && wide_entry > 0) {
        pending_.push_back({entry, wide_entry});
      } else if (entry > 0) {  // bytes that are no characters
        add(entry, ALL_WIDE);
      }
    }
  }

  TableView nodes_;
  const bool* reach_;
  int64_t num_classes_;
  const WideKinds& wide_;
  std::vector<Pair> pending_;

 public:
  std::vector<uint8_t> is_wide;
};

}  // namespace

std::vector<int32_t> costs_of(DfaView dfa, const int32_t* byte_costs) {
  const int64_t num_states = dfa.table.num_rows;
  std::vector<int32_t> costs(num_states, NEVER);
  bool forwards = false;
  for (bool changed = true; changed; forwards = !forwards) {
    changed = false;
    for (int64_t turn = 1; turn < num_states; ++turn) {
      const int64_t state = forwards ? turn : num_states - turn;
      int32_t cost = dfa.accepting[state] ? 0 : NEVER;
      for (int64_t class_id = 1; class_id < dfa.table.num_columns; ++class_id) {
        const int32_t target = dfa.table[state][class_id];
        if (target) cost = std::min(cost, costs[target] + byte_costs[class_id]);
      }
      if (cost < costs[state]) {
        costs[state] = cost;
        changed = true;
      }
    }
  }
  return costs;
}

CharacterKinds character_kinds(TableView nodes, const bool* reach, int64_t num_classes, const WideKinds& wide) {
  KindsWalk walk(nodes, reach, num_classes, wide);
  walk.run();
  CharacterKinds found{std::move(walk.is_wide), std::vector<int32_t>(num_classes)};
  for (int byte = 0; byte < 0x80; ++byte) {
    if (nodes[0][byte] < 0) ++found.num_ascii[-nodes[0][byte]];
  }
  return found;
}

TextArrays copies_of(const TextTable& text) {
  const int64_t num_classes = text.num_classes;
  TextArrays found{Table(text.num_states, num_classes), {text.accepts, text.accepts + text.num_states},
                   {text.costs, text.costs + text.num_states}, Table(text.num_nodes, 256),
                   std::vector<uint8_t>(text.num_nodes * num_classes)};
  std::copy_n(text.table, found.table.cells.size(), found.table.cells.begin());
  for (int64_t node = 0; node < text.num_nodes; ++node) {
    std::copy_n(text.node(node), 256, found.nodes[node]);
    for (int64_t class_id = 0; class_id < num_classes; ++class_id) {
      const uint64_t word = text.reach[node * text.num_words + (class_id >> 6)];
      found.reach[node * num_classes + class_id] = (word >> (class_id & 63)) & 1;
    }
  }
  return found;
}

}  // namespace phloem::fsm
