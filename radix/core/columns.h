// The nodes of a tree as columns of int32, for a picture of it: no object per node, so that a tree of 20,000 nodes is
// read in a few milliseconds. Reads only. O(nodes), and O(leaves log leaves) for their order.
#pragma once
#include "tree.h"

namespace phloem::radix {

// In this order: its own id (the lower 31 bits), that of its parent (-1 for one below a root), tokens and blocks of its
// run, milliseconds since its prefix was last used, hits on the prefix, its namespace (a place in `spaces`), leases and
// pins that hold it, its place in the order of eviction (-1: it cannot be evicted now, or it has children). Use, hits,
// leases and pins are those of the whole subtree. A number that does not fit is the largest int32.
constexpr size_t NUM_COLUMNS = 10;

struct Columns {
  size_t num_nodes = 0, num_left_out = 0;
  std::vector<int32_t> values;           // `NUM_COLUMNS` times `num_nodes`, column after column, parents first
  std::vector<std::string_view> spaces;  // views of the tree's own
};

// The nodes of all namespaces, without the roots; of more than `most` those with the most tokens below them.
// `pins`: the nodes that pins lease, each as often as it is pinned.
Columns columns(const Tree& tree, double now, size_t most, const std::vector<NodeId>& pins);

}  // namespace phloem::radix
