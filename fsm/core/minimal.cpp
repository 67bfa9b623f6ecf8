// Hopcroft's algorithm (`alike_states`): blocks of states are split by where their members go; after a block was split
// only the smaller part need split others, so that a state is looked at a logarithmic number of times.
#include <utility>

#include "dfa.h"

namespace phloem::fsm {

namespace {

// The states that lead to a state by a class: sources[begins[cell] : begins[cell + 1]], cell = state * classes + class.
struct SourcesByClass {
  std::vector<int64_t> begins;
  std::vector<int32_t> sources;

  explicit SourcesByClass(TableView table) : begins(table.num_rows * table.num_columns + 2) {
    each(table, [&](int64_t cell, int32_t) { ++begins[cell + 2]; });
    for (size_t cell = 2; cell < begins.size(); ++cell) begins[cell] += begins[cell - 1];
    sources.resize(begins.back());
    each(table, [&](int64_t cell, int32_t state) { sources[begins[cell + 1]++] = state; });
  }

  template <class Visit>
  static void each(TableView table, Visit visit) {
    for (int64_t state = 0; state < table.num_rows; ++state) {
      for (int64_t class_id = 1; class_id < table.num_columns; ++class_id) {
        const int32_t target = table[state][class_id];
        if (target) visit(target * table.num_columns + class_id, static_cast<int32_t>(state));
      }
    }
  }
};

struct Block {
  int32_t first, size;     // its states lie together in `order`
  int32_t num_marked = 0;  // at its beginning, to be split off
};

class Blocks {
 public:
  explicit Blocks(DfaView dfa) : order_(dfa.accepting.size()), places_(order_.size()), block_of(order_.size()) {
    int32_t at = 0;
    for (int wanted = 0; wanted < 3; ++wanted) {  // the dead state, then those that refuse, then those that accept
      const int32_t first = at;
      for (int32_t state = 0; state < static_cast<int32_t>(order_.size()); ++state) {
        if ((state == 0 ? 0 : dfa.accepting[state] ? 2 : 1) != wanted) continue;
        block_of[state] = static_cast<int32_t>(blocks_.size());
        places_[state] = at;
        order_[at++] = state;
      }
      if (at > first) blocks_.push_back({first, at - first});
    }
    for (int32_t block = 1; block < size(); ++block) pending_.push_back(block);  // where nothing goes, the others tell
  }

  int32_t size() const { return static_cast<int32_t>(blocks_.size()); }

  // The states of a block by which others are still to be split; false if there is none.
  bool next(std::vector<int32_t>& states) {
    if (pending_.empty()) return false;
    const Block& block = blocks_[pending_.back()];
    pending_.pop_back();
    states.assign(order_.begin() + block.first, order_.begin() + block.first + block.size);
    return true;
  }

  void mark(int32_t state) {
    Block& block = blocks_[block_of[state]];
    if (block.num_marked == 0) touched_.push_back(block_of[state]);
    const int32_t place = places_[state], target = block.first + block.num_marked++;
    const int32_t other = order_[target];
    std::swap(order_[target], order_[place]);
    places_[state] = target;
    places_[other] = place;
  }

  void split_marked() {
    for (int32_t whole : touched_) {
      const int32_t num_marked = std::exchange(blocks_[whole].num_marked, 0);
      if (num_marked < blocks_[whole].size) split(whole, num_marked);
    }
    touched_.clear();
  }

 private:
  // Makes the smaller part a block of its own.
  void split(int32_t whole, int32_t num_marked) {
    Block& block = blocks_[whole];
    Block added{block.first, num_marked};
    if (2 * num_marked <= block.size) {
      block.first += num_marked;
      block.size -= num_marked;
    } else {
      added = {block.first + num_marked, block.size - num_marked};
      block.size = num_marked;
    }
    const int32_t number = size();
    for (int32_t at = added.first; at < added.first + added.size; ++at) block_of[order_[at]] = number;
    blocks_.push_back(added);
    pending_.push_back(number);
  }

  std::vector<int32_t> order_, places_;
  std::vector<Block> blocks_;
  std::vector<int32_t> pending_, touched_;

 public:
  std::vector<int32_t> block_of;
};

}  // namespace

Alike alike_states(DfaView dfa) {
  const SourcesByClass led(dfa.table);
  Blocks blocks(dfa);
  std::vector<int32_t> splitter;
  while (blocks.next(splitter)) {
    for (int64_t class_id = 1; class_id < dfa.table.num_columns; ++class_id) {
      for (int32_t state : splitter) {
        const int64_t cell = state * dfa.table.num_columns + class_id;
        for (int64_t edge = led.begins[cell]; edge < led.begins[cell + 1]; ++edge) blocks.mark(led.sources[edge]);
      }
      blocks.split_marked();
    }
  }
  Alike found{std::move(blocks.block_of), {}};
  std::vector<int32_t> numbers(blocks.size(), -1);
  for (size_t state = 0; state < found.blocks.size(); ++state) {
    int32_t& number = numbers[found.blocks[state]];
    if (number < 0) {
      number = static_cast<int32_t>(found.members.size());
      found.members.push_back(static_cast<int32_t>(state));
    }
    found.blocks[state] = number;
  }
  return found;
}

}  // namespace phloem::fsm
