// A trie of literals as nodes of a network: they share their common prefixes.
//
//   "car" "cart" "cat"        'ca' -> split -> 'r' -> split -> end
//                                       |                `--> 't' -> end
//                                       `----> 't' -> end
#pragma once
#include "table.h"

namespace phloem::fsm {

struct LiteralTrie {
  std::vector<int64_t> nodes;    // int64[num_nodes, 3], kind, arg and next of each (see `network`)
  std::vector<int64_t> spans;    // int64[.., 2], where in `data` the bytes of each node of kind K_BYTE begin and end
  std::vector<int64_t> options;  // of the splits
  std::vector<int64_t> entries;  // the nodes at which a literal begins
};

// Nodes that together spell exactly these literals, from the last to the first; linear in their length.
//
// data: the literals one after the other, sorted and distinct; lens: how long each is; end: the node after all of
// them; first_node, first_option: the numbers that the first node and the first option of a split will have.
LiteralTrie literal_trie(Bytes data, std::span<const int64_t> lens, int64_t end, int64_t first_node,
                         int64_t first_option);

}  // namespace phloem::fsm
