// The network of a grammar as flat arrays, one node per position; drawn in network/network.py and network/any_order.py.
#pragma once
#include "text_table.h"

namespace phloem::fsm {

enum Kind : int32_t { K_BYTE, K_BYTES, K_TEXT, K_SPLIT, K_CALL, K_LOOP, K_RETURN, K_SET, K_KEY };

constexpr int32_t WORD_BITS = 31;          // members of a set per frame
constexpr int32_t UNBOUNDED = 1 << 30;     // as the number of members that may still be written
// `TextTable::is_key` of texts that have to be remembered, and of brackets and commas around items that must differ
constexpr int64_t A_KEY = 1, AN_ITEM = 2, AN_EDGE = 3;

struct Loop {
  int32_t entry, minimum, maximum;  // maximum below 0: none
  int32_t cost;                     // of one item
};

struct Set {
  int32_t node, key, separator, separator_cost;
  int32_t members, num_members;  // from there on in `Network::members`; the first num_texts have texts in the trie
  int32_t num_texts, num_words;  // num_words: frames, of WORD_BITS members each
  int32_t is_counted, spare, missing;
  int32_t words;  // from there on in `Network::lists`: what cannot and what must be written of each word at first
  int32_t trie;   // the root of its texts in `Network::tries`
  int32_t others, num_others, others_cost;
  int32_t num_mixed;  // the members after these are last: nothing that is no member follows one of them
};

struct Member {
  int32_t entry, head, cost, is_required;
  int32_t cheap;  // the member of this rank by cost
  int32_t implied, num_implied, excluded, num_excluded;  // in `Network::lists`
};

struct KeyNode {
  int32_t first, end;  // the members whose texts go through it
  int32_t edges, num_edges;
  int32_t depth;
  int32_t ends;  // whether the text of the first of them ends here
};

struct Edge {
  int32_t byte, target;  // a node, or ~ member, whose head is then distinguished
};

// What `lay_out` makes of a grammar: all indices in it are in range.
struct NetworkArrays {
  std::vector<int32_t> kinds, args, nexts, costs;  // by node
  std::vector<int32_t> options;                    // of splits, and of what is no member of a set
  std::vector<int32_t> entries;                    // the entry node of each rule
  std::vector<Loop> loops;
  std::vector<Set> sets;
  std::vector<Member> members;
  std::vector<KeyNode> tries;
  std::vector<Edge> edges;
  std::vector<int32_t> lists;
  int64_t num_byte_sets = 0, num_texts = 0;  // that nodes refer to

  int64_t num_bytes() const;
};

// Those arrays, with the byte sets and texts of one automaton.
struct Network {
  const int32_t *kinds, *args, *nexts, *costs, *options;
  const Loop* loops;
  const Set* sets;
  const Member* members;
  const KeyNode* tries;
  const Edge* edges;
  const int32_t* lists;
  const uint64_t* byte_sets;  // [.., 4]
  const TextTable* texts;
  int32_t start, num_sets;
  bool has_counts;  // whether stacks may differ in counts only

  bool has_byte(int32_t set, int64_t byte) const { return byte_sets[set * 4 + (byte >> 6)] >> (byte & 63) & 1; }
  const Member& member(const Set& set, int64_t number) const { return members[set.members + number]; }
  const TextTable& text_at(int64_t node) const { return texts[args[node]]; }
  const Set& set_at(int64_t node) const { return sets[args[node]]; }  // of a node of kind K_SET or K_KEY
};

// The arrays, sets and texts must live as long.
Network network_of(const NetworkArrays& arrays, const uint64_t* byte_sets, std::span<const TextTable> texts);

}  // namespace phloem::fsm
