// The radix tree: token prefixes -> KV block ids (RadixAttention, arXiv 2312.07104; blocks as in PagedAttention,
// arXiv 2309.06180).
//
//   root "" -- [1 7 3 ... 2,000 tokens | blocks 0-124] --+-- [40 8 ...  | 125-129]
//                                                        +-- [91 2 ...  | 130-131] --+-- ...
//                                                                                    +-- ...
//   split:  -- [a b c d] --     -- [a b] --+-- [c d]    the lower part stays the node that it was, so leases and pins
//                                          +-- [x y]    hold; the upper part is new
//
// * A run has whole blocks only, at least one. What does not fill a last block (a *tail*) is filled up with PADDING, so
//   matches find it as a donor of its first tokens and never as a whole block.
// * Each namespace has a root of its own; a root without children is dropped.
// * A lease is counted at the end of a prefix only: a node with a child is never evicted, so what is above is safe. The
//   exact number of leased blocks is known because `num_holds` climbs until it meets a path that is held already.
// * For the same reason use is written at the end of a prefix only, and handed to the parent when a leaf goes: a node
//   becomes a leaf only after its descendants have handed theirs up.
// * Candidates for eviction are in a lazy heap. The key of a node only grows while it is in the tree, so an entry is
//   compared with its node when it comes up, and put back if it is out of date: a match costs the heap nothing.
//   Invariant: a leaf without holds has one entry, under a key that is at most its present one.
// * Ids of nodes are never used again, so one that is kept beyond its eviction is simply not found.
//
// Cost: match and insert O(tokens), and O(log children) per node on the path; lease and release O(1) below a held node;
// evict O(log leaves) per leaf, amortised. Memory: 4 bytes per token, 4 per block, and 350 to 380 per node (measured
// with glibc on 100,000 leaves of 1 and of 10 blocks). Nothing recurses: all nodes belong to one table, at any depth.
//
// An operation that fails, because memory runs out or a callback raises, leaves a sound tree: all memory that a change
// needs is there before the change. `insert` has then changed nothing but by splits; `evict` has taken out what it had
// taken before.
//
// Not thread-safe, and not to be called by its own callbacks: pointers into the tree are held across them. The bindings
// keep Python's lock throughout and refuse a call while another is under way (module.cpp).
#pragma once
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "node.h"

namespace phloem::radix {

// An eviction policy: the leaf of the smallest rank goes first, the least recently used one among equals. `cost` is
// that of computing its last block again. A rank may only grow while the leaf is in the tree.
struct Policy {
  const char* name;
  double (*rank)(const Node& leaf, double cost);
};

inline constexpr std::array<Policy, 4> POLICIES{{
    {"lru", [](const Node&, double) { return 0.0; }},
    {"lfu", [](const Node& leaf, double) { return static_cast<double>(leaf.num_hits); }},
    {"priority", [](const Node& leaf, double) { return static_cast<double>(leaf.priority); }},
    // greedy-dual-size-frequency (Cherkasova 1998); the era is the rank of what was evicted last
    {"cost", [](const Node& leaf, double cost) { return leaf.era + static_cast<double>(leaf.num_hits + 1) * cost; }},
}};

struct Match {
  size_t num_tokens = 0;  // of the longest prefix of whole blocks
  NodeId node = NOTHING;  // its end
  NodeId partial_node = NOTHING;  // the node whose first block agrees furthest with what comes after it
  size_t num_partial_tokens = 0;  // how many tokens of that block agree
  int32_t partial_block = -1;
};

struct Inserted {
  size_t num_new_tokens = 0;
  NodeId node = NOTHING;
  std::vector<int32_t> duplicates;  // given blocks at places that have others: still the caller's
};

// What came to, or was taken from, the end of one prefix.
struct Run {
  std::string space;
  std::vector<int32_t> path;  // tokens from the root to the end of the run
  std::vector<int32_t> blocks;
};

struct Counts {
  int64_t num_matches = 0, num_asked_tokens = 0, num_matched_tokens = 0;
  int64_t num_duplicate_blocks = 0, num_evicted_blocks = 0, num_splits = 0;
  int64_t num_cached_blocks = 0, num_leased_blocks = 0;
};

struct Candidate {
  double rank, last_used;
  Node* node;
  bool operator<(const Candidate& other) const {  // what goes first is the greatest, as heaps of the standard want it
    return rank != other.rank ? rank > other.rank : last_used > other.last_used;
  }
};

// Says how many tokens of a prefix (namespace, tokens) will soon be needed.
using Spare = std::function<int64_t(const std::string&, Tokens)>;
// What computing the block that ends at a token would cost.
using BlockCost = std::function<double(int64_t)>;

class Tree {
 public:
  // policy: a name of POLICIES. max_ghosts: evicted runs that are remembered. Throws std::invalid_argument.
  Tree(int64_t block_size, const std::string& policy, size_t max_ghosts);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // The longest cached prefix. Counts as a use of it (`now`: seconds), and splits a run that it ends within.
  Match match(Tokens tokens, std::string_view space, double now);
  // How many tokens a match would find: (of whole blocks, of the donor after them). Changes and counts nothing.
  std::pair<size_t, size_t> look(Tokens tokens, std::string_view space);
  // At most `count` tokens that follow `tokens`, as far as they can be followed in one way only. Changes nothing.
  std::vector<int32_t> continuation(Tokens tokens, std::string_view space, size_t count);
  // Puts a prefix into the tree, `after` a node or from the root. `blocks` has one id per whole block, and one more for
  // a tail. `block_cost` is asked once for each position, before anything changes; null if the policy needs none.
  // Throws std::invalid_argument, and has changed nothing: a wrong number of blocks, or `after` was evicted.
  Inserted insert(Tokens tokens, Blocks blocks, std::string_view space, NodeId after, int64_t priority, double now,
                  const BlockCost& block_cost);
  // Counts a use of the prefix that ends at a node, and a hit; nothing if it was evicted.
  void use(NodeId id, double now);

  // Protects the prefix that ends at a node until as many releases. std::invalid_argument: it was evicted; not leased.
  void lease(NodeId id);
  void release(NodeId id);
  // How many blocks only the lease on a node protects; 0 if it has none or several.
  int64_t num_sole_blocks(NodeId id);

  // Ids, or tokens, from the root to the end of a node. std::invalid_argument: it was evicted. O(depth).
  std::vector<int32_t> path_blocks(NodeId id);
  std::vector<int32_t> path_tokens(NodeId id);
  // Whether a prefix ends in a tail. std::invalid_argument: it was evicted.
  bool is_tail(NodeId id);

  // Takes at least `num_wanted` blocks of the leaves that go first out of the tree, while there are any: whole leaves,
  // or the end of one that is much longer. What `spare` (or null) needs stays, in up to MAX_SPARED leaves, as if it
  // were used now. `runs`: where to tell what was taken, or null.
  std::vector<int32_t> evict(int64_t num_wanted, double now, const Spare& spare, std::vector<Run>* runs);
  // When a run was last evicted that hung where the walk along `tokens` ends, and began as they go on, for more tokens
  // than anything that is still there. None: there was none, or it is forgotten.
  std::optional<double> evicted_at(Tokens tokens, std::string_view space);

  size_t block_size() const { return block_size_; }
  const Counts& counts() const { return counts_; }
  const std::unordered_map<NodeId, Node>& nodes() const { return nodes_; }
  const std::map<std::string, Node, std::less<>>& roots() const { return roots_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  double rank_of(const Node& node) const;

 private:
  // Where a walk ends: after `offset` tokens at `node` (null: no such namespace). `child` agrees furthest with what
  // comes next, in `num_agreeing` tokens and not in all of its run. At least a block: the walk ends within its run;
  // less: before it.
  struct Place {
    Node* node = nullptr;
    size_t offset = 0;
    Node* child = nullptr;
    size_t num_agreeing = 0;
  };
  struct Ghost {
    std::string space;
    NodeId place;  // the node on which the evicted run hung, or NOTHING
    double when;
    std::vector<int32_t> block;  // its first
  };

  Tokens first_block(Tokens run) const { return run.first(std::min(run.size(), block_size_)); }
  Place walk(Node* start, Tokens tokens) const;
  Place closest_child(const Node& node, Tokens rest) const;
  Node* find_root(std::string_view space);
  Node* find(NodeId id);                          // null: NOTHING, or evicted
  Node* find(NodeId id, const char* if_evicted);  // null: NOTHING; throws if evicted
  Node* add_root(std::string_view space);
  void drop_if_empty(Node* root) noexcept;
  Node* add_node(Node* parent);
  Node* add_leaf(Node* parent, Tokens tokens, Blocks blocks);
  Node* split(Node* lower, size_t num_blocks);
  Inserted insert_below(Node* start, Tokens tokens, Blocks blocks, int64_t priority, double now);
  std::vector<int32_t> path(const Node* node, std::vector<int32_t> Node::* run, size_t length) const;
  void find_duplicates(const Node* node, Blocks known, std::vector<int32_t>& duplicates) const;
  void ask_costs(size_t end, const BlockCost& block_cost);

  void mark_use(Node* node, double now) noexcept;
  void offer(Node* node) noexcept;
  Node* first_candidate();
  void drop_first_candidate() noexcept;
  size_t count_spared(const Node& leaf, const Spare& spare) const;
  size_t count_left(const Node& leaf, size_t num_spared, size_t num_wanted) const;
  void remember(const Node& leaf, const Node& parent, double now);
  Node* cut(Node* leaf, size_t num_left, double now);

  const size_t block_size_;
  const size_t max_ghosts_;
  const Policy* policy_;
  std::unordered_map<NodeId, Node> nodes_;  // all but roots; what is in it does not move
  std::map<std::string, Node, std::less<>> roots_;
  std::vector<Candidate> candidates_;  // a heap
  std::vector<Ghost> ghosts_;          // a ring
  size_t num_ghosts_ = 0;              // so far
  std::vector<double> costs_{0.0};     // by the end of a block
  NodeId next_id_ = NOTHING + 1;
  double last_use_ = -std::numeric_limits<double>::infinity();
  double era_ = 0;
  Counts counts_;
};

}  // namespace phloem::radix
