#include "subsets.h"

#include <algorithm>
#include <optional>

#include "checks.h"

namespace phloem::fsm {

namespace {

// A set of SET nodes, and whether MATCH is in it as well.
struct Subset {
  std::vector<int32_t> nodes;
  bool matches = false;
  bool operator==(const Subset&) const = default;
};

uint64_t hash_of(const Subset& subset) {
  uint64_t hash = subset.nodes.size() * 2 + subset.matches;
  for (int32_t node : subset.nodes) hash = mixed(hash, node);
  return hash;
}

class Construction {
 public:
  explicit Construction(const Graph& graph)
      : graph_(graph), seen_(graph.kinds.size()), closures_(graph.kinds.size()), table_(1, graph.num_classes) {
    subsets_.resize(1);
  }

  Subsets run(int64_t max_states, int64_t max_work) {
    Subset here = closure(0);
    work_ += static_cast<int64_t>(here.nodes.size());
    if (intern(here, max_states) < 0) return Subsets::TOO_MANY_STATES;
    for (int32_t state = 1; state < static_cast<int32_t>(subsets_.size()); ++state) {
      for (int64_t class_id = 1; class_id < graph_.num_classes; ++class_id) {
        read(state, class_id, here);
        if (here.nodes.empty() && !here.matches) continue;
        if (work_ > max_work) return Subsets::TOO_MUCH_WORK;
        const int32_t target = intern(here, max_states);
        if (target < 0) return Subsets::TOO_MANY_STATES;
        table_[state][class_id] = target;
      }
    }
    return work_ > max_work ? Subsets::TOO_MUCH_WORK : Subsets::DONE;
  }

  Determinised result(Subsets status) {
    Determinised found{std::move(table_), {}, status};
    if (status != Subsets::DONE) found.table = Table(1, graph_.num_classes);
    for (int64_t state = 0; state < found.table.num_rows(); ++state) found.accepting.push_back(subsets_[state].matches);
    return found;
  }

 private:
  // The SET nodes reachable from a node without reading. A universal one accepts whatever follows, so it stands for
  // all.
  Subset closure(int32_t node) {
    Subset found;
    ++stamp_;
    seen_[node] = stamp_;
    pending_.assign(1, node);
    while (!pending_.empty()) {
      const int32_t here = pending_.back();
      pending_.pop_back();
      if (graph_.kinds[here] == SET) {
        if (graph_.universal[here]) return {{here}, true};
        found.nodes.push_back(here);
      } else if (graph_.kinds[here] == MATCH) {
        found.matches = true;
      } else {
        for (int32_t target : {graph_.next_nodes[here], graph_.others[here]}) {
          if (target < 0 || seen_[target] == stamp_) continue;
          seen_[target] = stamp_;
          pending_.push_back(target);
        }
      }
    }
    return found;
  }

  // Whether a node leads to one other node only, without reading.
  bool is_detour(int32_t node) const {
    return graph_.kinds[node] == SPLIT && graph_.others[node] < 0 && graph_.next_nodes[node] >= 0;
  }

  const Subset& closure_after(int32_t node) {
    int32_t target = graph_.next_nodes[node];
    for (size_t turn = 0; turn < graph_.kinds.size() && is_detour(target); ++turn) target = graph_.next_nodes[target];
    if (!closures_[target]) {
      closures_[target] = closure(target);
      work_ += static_cast<int64_t>(closures_[target]->nodes.size());
    }
    return *closures_[target];
  }

  // Where the nodes of a state lead by a class of characters.
  void read(int32_t state, int64_t class_id, Subset& found) {
    found.nodes.clear();
    found.matches = false;
    reading_.clear();
    for (int32_t node : subsets_[state].nodes) {
      if (!graph_.has_class[graph_.args[node] * graph_.num_classes + class_id]) continue;
      reading_.push_back(&closure_after(node));
    }
    work_ += static_cast<int64_t>(subsets_[state].nodes.size());
    ++stamp_;
    for (const Subset* after : reading_) {
      found.matches = found.matches || after->matches;
      work_ += static_cast<int64_t>(after->nodes.size());
      for (int32_t node : after->nodes) {
        if (seen_[node] == stamp_) continue;
        seen_[node] = stamp_;
        found.nodes.push_back(node);
      }
    }
    for (int32_t node : found.nodes) {
      if (!graph_.universal[node]) continue;
      found.nodes.assign(1, int32_t{node});
      found.matches = true;
      break;
    }
  }

  // The state of a subset, which is sorted; -1 if there would be too many.
  int32_t intern(Subset& subset, int64_t max_states) {
    std::sort(subset.nodes.begin(), subset.nodes.end());
    const uint64_t hash = hash_of(subset);
    const int32_t known = numbers_.find(hash, [&](int32_t state) { return subsets_[state] == subset; });
    if (known >= 0) return known;
    if (static_cast<int64_t>(subsets_.size()) >= max_states) return -1;
    numbers_.add(hash, static_cast<int32_t>(subsets_.size()));
    subsets_.push_back(subset);
    table_.add_row();
    return static_cast<int32_t>(subsets_.size()) - 1;
  }

  const Graph& graph_;
  std::vector<int64_t> seen_;
  int64_t stamp_ = 0, work_ = 0;
  std::vector<int32_t> pending_;
  std::vector<const Subset*> reading_;
  std::vector<std::optional<Subset>> closures_;  // by node; made when a SET node leads there
  std::vector<Subset> subsets_;                  // by state
  Numbers numbers_;
  Table table_;
};

}  // namespace

void check_graph(const Graph& graph, int64_t num_sets) {
  const int64_t num_nodes = static_cast<int64_t>(graph.kinds.size());
  check(num_nodes > 0 && graph.num_classes > 0, "the graph", "has no node or no class");
  for (size_t size : {graph.args.size(), graph.next_nodes.size(), graph.others.size(), graph.universal.size()}) {
    check_size("an array of the graph", size, num_nodes);
  }
  check_values("next_nodes", graph.next_nodes, -1, num_nodes);
  check_values("others", graph.others, -1, num_nodes);
  for (int64_t node = 0; node < num_nodes; ++node) {
    if (graph.kinds[node] != SET) continue;
    check(0 <= graph.args[node] && graph.args[node] < num_sets, "args", "has a set out of range");
    check(graph.next_nodes[node] >= 0, "next_nodes", "leads nowhere from a set");
  }
}

Determinised subset_construction(const Graph& graph, int64_t max_states, int64_t max_work) {
  Construction construction(graph);
  const Subsets status = construction.run(max_states, max_work);
  return construction.result(status);
}

}  // namespace phloem::fsm
