// The nodes of a tree as columns of int32.
#include "columns.h"

#include <numeric>

namespace phloem::radix {

namespace {

struct Seen {
  const Node* node;
  int64_t parent;  // its index; -1: below a root
  int32_t space;
  int64_t size;  // tokens of the subtree, with PADDING
  int64_t hits, leases, pins;
  double last_used;
  int32_t rank = -1;
};

int32_t clamped(double value) {
  return static_cast<int32_t>(std::clamp(value, 0.0, static_cast<double>(std::numeric_limits<int32_t>::max())));
}

int32_t shown_id(NodeId id) { return static_cast<int32_t>(id & std::numeric_limits<int32_t>::max()); }

size_t num_real_tokens(const Node& node) {
  size_t count = node.tokens.size();
  while (count && node.tokens[count - 1] == PADDING) --count;
  return count;
}

// All nodes, level by level, so that a parent comes before its children.
std::vector<Seen> walk_all(const Tree& tree, const std::unordered_map<NodeId, int64_t>& num_pins) {
  std::vector<Seen> seen;
  seen.reserve(tree.nodes().size());
  const auto add_children = [&](const Node& node, int64_t parent, int32_t space) {
    for (const auto& [block, child] : node.children) {
      const auto found = num_pins.empty() ? num_pins.end() : num_pins.find(child->id);
      const int64_t pins = found == num_pins.end() ? 0 : found->second;
      seen.push_back({child, parent, space, static_cast<int64_t>(child->tokens.size()),
                      static_cast<int64_t>(child->num_hits), static_cast<int64_t>(child->num_leases) - pins, pins,
                      child->last_used});
    }
  };
  int32_t space = 0;
  for (const auto& [name, root] : tree.roots()) add_children(root, -1, space++);
  for (size_t at = 0; at < seen.size(); ++at) {
    const Seen one = seen[at];
    add_children(*one.node, static_cast<int64_t>(at), one.space);
  }
  for (size_t at = seen.size(); at-- > 0;) {
    const Seen& one = seen[at];
    if (one.parent < 0) continue;
    Seen& parent = seen[static_cast<size_t>(one.parent)];
    parent.size += one.size, parent.hits += one.hits, parent.leases += one.leases, parent.pins += one.pins;
    parent.last_used = std::max(parent.last_used, one.last_used);
  }
  return seen;
}

void rank_leaves(const Tree& tree, std::vector<Seen>& seen) {
  std::vector<std::tuple<double, double, NodeId, Seen*>> leaves;
  for (Seen& one : seen)
    if (one.node->children.empty() && !one.node->num_holds)
      leaves.emplace_back(tree.rank_of(*one.node), one.node->last_used, one.node->id, &one);
  std::sort(leaves.begin(), leaves.end());
  int32_t rank = 0;
  for (const auto& leaf : leaves) std::get<3>(leaf)->rank = rank++;
}

// Which of them are shown. A subtree is larger than any that is within it, so a node that is shown has its parent.
std::vector<bool> largest(const std::vector<Seen>& seen, size_t most) {
  std::vector<bool> kept(seen.size(), seen.size() <= most);
  if (seen.size() <= most) return kept;
  std::vector<size_t> order(seen.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::nth_element(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(most), order.end(),
                   [&](size_t a, size_t b) { return seen[a].size != seen[b].size ? seen[a].size > seen[b].size : a < b; });
  for (size_t place = 0; place < most; ++place) kept[order[place]] = true;
  return kept;
}

}  // namespace

Columns columns(const Tree& tree, double now, size_t most, const std::vector<NodeId>& pins) {
  std::unordered_map<NodeId, int64_t> num_pins;
  for (const NodeId id : pins) ++num_pins[id];
  std::vector<Seen> seen = walk_all(tree, num_pins);
  rank_leaves(tree, seen);
  const std::vector<bool> kept = largest(seen, most);
  Columns found;
  found.num_nodes = std::min(most, seen.size());
  found.num_left_out = seen.size() - found.num_nodes;
  found.values.resize(NUM_COLUMNS * found.num_nodes);
  for (const auto& [name, root] : tree.roots()) found.spaces.push_back(name);
  size_t at = 0;
  for (size_t index = 0; index < seen.size(); ++index) {
    if (!kept[index]) continue;
    const Seen& one = seen[index];
    const int32_t parent = one.parent < 0 ? -1 : shown_id(seen[static_cast<size_t>(one.parent)].node->id);
    const std::array<int32_t, NUM_COLUMNS> row{
        shown_id(one.node->id), parent, clamped(static_cast<double>(num_real_tokens(*one.node))),
        clamped(static_cast<double>(one.node->blocks.size())), clamped((now - one.last_used) * 1000),
        clamped(static_cast<double>(one.hits)), one.space, clamped(static_cast<double>(one.leases)),
        clamped(static_cast<double>(one.pins)), one.rank};
    for (size_t column = 0; column < NUM_COLUMNS; ++column) found.values[column * found.num_nodes + at] = row[column];
    ++at;
  }
  return found;
}

}  // namespace phloem::radix
