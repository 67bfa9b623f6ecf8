#include "network.h"

#include "laying.h"

namespace phloem::fsm {

Network network_of(const int32_t* data, const uint64_t* byte_sets, int64_t num_byte_sets,
                   std::span<const TextTable> texts) {
  auto at = [&](Head field) { return data + data[field]; };
  Network found{.kinds = at(N_KIND), .args = at(N_ARG), .nexts = at(N_NEXT), .costs = at(N_COST),
                .options = at(N_OPTIONS), .loops = reinterpret_cast<const Loop*>(at(N_LOOPS)),
                .sets = reinterpret_cast<const Set*>(at(N_SETS)),
                .members = reinterpret_cast<const Member*>(at(N_MEMBERS)),
                .tries = reinterpret_cast<const KeyNode*>(at(N_TRIES)),
                .edges = reinterpret_cast<const Edge*>(at(N_EDGES)), .lists = at(N_LISTS), .byte_sets = byte_sets,
                .texts = texts.data(), .start = data[N_START],
                .num_nodes = data[N_ARG] - data[N_KIND],
                .num_sets = static_cast<int32_t>((data[N_MEMBERS] - data[N_SETS]) * 4 / sizeof(Set)),
                .num_members = (data[N_TRIES] - data[N_MEMBERS]) * 4 / static_cast<int64_t>(sizeof(Member)),
                .num_byte_sets = num_byte_sets, .has_counts = false};
  const Loop* end = reinterpret_cast<const Loop*>(at(N_ENTRIES));
  for (const Loop* loop = found.loops; loop < end; ++loop) found.has_counts |= loop->maximum != 0;
  for (const TextTable& text : texts) found.has_counts |= text.num_nodes > 0 && text.max_length >= 0;
  return found;
}

namespace {

class Marking {
 public:
  Marking(const Network& network, const Marks& marks, bool with_members)
      : network_(network), marks_(marks), with_members_(with_members), sets_(marks.heads.begin(), marks.heads.end()),
        nodes(network.num_nodes) {}

  void run() {
    bool is_growing = true;
    while (is_growing) {
      is_growing = false;
      for (int32_t set = 0; set < network_.num_sets && with_members_; ++set) {
        is_growing |= mark(sets_[set], !sets_[set] && is_set_marked(network_.sets[set]));
      }
      for (int64_t node = 0; node < network_.num_nodes; ++node) {
        is_growing |= mark(nodes[node], !nodes[node] && network_.costs[node] < NEVER && is_marked(node));
      }
    }
  }

 private:
  static bool mark(uint8_t& flag, bool is_new) {
    flag |= is_new;
    return is_new;
  }

  bool is_set_marked(const Set& set) const {
    bool found = nodes[set.separator];
    for (int32_t member = 0; member < set.num_members; ++member) {
      found |= nodes[network_.member(set, member).entry] != 0;
    }
    for (int32_t other = set.others; other < set.others + set.num_others; ++other) {
      found |= nodes[network_.options[other]] != 0;
    }
    return found;
  }

  bool is_marked(int64_t node) const {
    const int32_t arg = network_.args[node], next = network_.nexts[node];
    switch (network_.kinds[node]) {
      case K_SPLIT: {
        bool found = false;
        for (int32_t option = arg; option < arg + next; ++option) found |= nodes[network_.options[option]] != 0;
        return found;
      }
      case K_BYTE: return (!marks_.bytes.empty() && marks_.bytes[arg]) || nodes[next];
      case K_BYTES: return marks_.byte_sets[arg] || ((marks_.ends.empty() || !marks_.ends[arg]) && nodes[next]);
      case K_TEXT: return marks_.texts[arg] || nodes[next];
      case K_CALL: return nodes[arg] || nodes[next];
      case K_LOOP: return nodes[network_.loops[arg].entry] || nodes[next];
      case K_SET: return (with_members_ && sets_[arg]) || nodes[next];
      case K_KEY: return with_members_ && sets_[arg];
      default: return false;
    }
  }

  const Network& network_;
  const Marks& marks_;
  bool with_members_;
  std::vector<uint8_t> sets_;

 public:
  std::vector<uint8_t> nodes;
};

}  // namespace

std::vector<uint8_t> find_marked(const Network& network, const Marks& marks, bool with_members) {
  Marking marking(network, marks, with_members);
  marking.run();
  return std::move(marking.nodes);
}

}  // namespace phloem::fsm
