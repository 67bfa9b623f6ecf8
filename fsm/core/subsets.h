// The subset construction for patterns without assertions: a DFA state is a sorted set of nodes of the pattern's graph.
#pragma once
#include "table.h"

namespace phloem::fsm {

enum NodeKind : int32_t { SET, SPLIT, ASSERT, LOOK, MATCH };  // see `Nfa`

// A graph of SET, SPLIT and MATCH nodes that starts at node 0: int32[num_nodes] each, as in `Nfa`.
struct Graph {
  Ints kinds, args, next_nodes, others;
  Flags universal;        // bool[num_nodes], SET nodes from which everything is accepted
  const bool* has_class;  // bool[num_sets, num_classes]
  int64_t num_classes;
};

enum class Subsets { DONE, TOO_MANY_STATES, TOO_MUCH_WORK };

struct Determinised {
  Table table;  // int32[num_states, num_classes]; state 0 is dead, 1 the start; of one state unless all is DONE
  std::vector<uint8_t> accepting;
  Subsets status;
};

// Throws std::invalid_argument unless the indices of a graph are in range.
void check_graph(const Graph& graph, int64_t num_sets);

// max_states, max_work: bounds; work is counted in nodes looked at.
Determinised subset_construction(const Graph& graph, int64_t max_states, int64_t max_work);

}  // namespace phloem::fsm
