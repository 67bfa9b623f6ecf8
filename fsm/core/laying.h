// The network of a grammar laid out as flat arrays, once all its rules are built (network/network.py).
#pragma once
#include "network.h"

namespace phloem::fsm {

// Computes places of nodes, costs and tables of sets.
//
// packed: int32, a head (how many there are of nodes, literals, options, loops, rules, texts, sets, members,
// relations), then by node kind, arg and next_node; the lengths of the literals; options; loops (three each); entries,
// firsts (one more) and order of the rules; the costs of the texts; sets, required and relations of `SetBuilder`. data:
// all literals.
//
// Throws std::invalid_argument if they contradict each other (`check_packed`).
NetworkArrays lay_out(Ints packed, Bytes data);

// A set as `SetBuilder` describes it.
struct BuiltSet {
  int32_t option, num_members, num_texts, num_mixed, num_others, minimum, maximum, literal;
};

// What `Positions` has built, node by node, a literal being one node.
struct Built {
  Ints kinds, args, nexts;  // by node
  Ints options;
  Ints loops;              // entry, minimum, maximum of each
  Ints entries;            // by number of the rule
  Ints firsts, order;      // the nodes of rule order[i] are firsts[i] up to firsts[i + 1]
  Ints text_costs;
  std::span<const BuiltSet> sets;
  Ints required;   // by member, whether it must be written
  Ints relations;  // nothing, or for each member how many it implies and excludes, and these, by their numbers
  Bytes data;
  std::vector<int64_t> begins;  // of each literal, and of the end
  std::vector<int64_t> heads;   // how much of each literal is read by the trie of a set

  Bytes text(int64_t literal) const { return data.subspan(begins[literal], begins[literal + 1] - begins[literal]); }
};

// The head of what is packed: how many there are of each.
enum PackedHead {
  P_NODES,
  P_LITERALS,
  P_OPTIONS,
  P_LOOPS,
  P_RULES,
  P_TEXTS,
  P_SETS,
  P_MEMBERS,
  P_RELATIONS,
  PACKED_HEAD
};

struct SetSizes {
  int64_t num_nodes = 0, num_edges = 0, num_words = 0;  // of tries, of these (at most), of frames
};

// ---- laying_checks.cpp

// Throws std::invalid_argument unless all lengths and indices in it are in range. Linear in it.
void check_packed(Ints packed, Bytes data);
// The same for what has been taken from it.
void check_built(const Built& built);

// ---- laying_sets.cpp

// Finds out how much of each text is in its trie (`Built::heads`), and how large the tables are.
SetSizes measure_sets(Built& built);
// Fills in all that is known of sets before there are nodes and costs.
void fill_sets(const Built& built, NetworkArrays& laid);
// Fills in the nodes of the sets from the network's options (see `SetBuilder.add`).
void place_sets(NetworkArrays& laid);
// Bytes that suffice for a whole set, its end not counted; NEVER if it cannot be completed.
int64_t least_cost(const NetworkArrays& laid, const Set& set);
// Fills in what depends on the costs of the nodes: costs, and the words that a set begins with.
void settle_sets(NetworkArrays& laid);

// ---- laying_costs.cpp

// Fills in the costs of nodes and of the items of loops. `firsts`: as of `Built`, but of the finished nodes.
void settle_costs(NetworkArrays& laid, Ints text_costs, Ints order, Ints firsts);

}  // namespace phloem::fsm
