// The radix tree of RadixAttention (SGLang, arXiv 2312.07104) over the KV blocks of PagedAttention (arXiv 2309.06180):
// it maps prefixes of token ids to the blocks that hold their KV. It knows token ids and block ids only: no tensors, no
// requests, no pool.
//
//   root "" -- [1 7 3 ... 2,000 tokens | blocks 0-124] --+-- [40 8 ...  | 125-129]
//                                                        +-- [91 2 ...  | 130-131] --+-- ...
//                                                                                    +-- ...
//
// * Nodes. A node is labelled with a *run*: a sequence of tokens that fills whole blocks, at least one, and the ids of
//   these blocks. The path from the root to a node spells a cached prefix. Each namespace has its own root, which is
//   removed when it has no children. A node id is never used again, so an id kept after an eviction is not found.
// * Prefix matching descends as long as whole runs match. Where a prefix ends inside a run, at a block boundary, the
//   node is split. The lower part keeps the identity of the node, so leases and pins stay valid; the upper part is new:
//
//     -- [a b c d] --     -- [a b] --+-- [c d]
//                                    +-- [x y]
//
// * Insertion matches, then adds the rest as a leaf. A last block that is not full (a *tail*) is filled up with
//   PADDING, which no token equals: a match never returns it as a whole block, only as the donor of its first tokens.
// * Reference counting. A lease is the paper's reference to a node in use. It is counted at the end of a prefix only:
//   only leaves are evicted, so the ancestors of a leased node are safe. `num_holds` counts the leases here and the
//   children with holds; it climbs up to the first node that has holds already, which keeps the number of leased blocks
//   exact.
// * Eviction removes leaves without holds, by default the least recently used first, so common prefixes stay until
//   they become leaves themselves. Use is recorded at the end of the matched prefix only, and a leaf passes its own on
//   to its parent when it is evicted: once a node is a leaf, its use is that of its whole former subtree.
// * The eviction order is a binary heap with lazy updates: the key of a node can only grow, so a match leaves the heap
//   alone, and an entry whose key is out of date surfaces too early and is pushed again. Each leaf without holds has
//   one entry.
//
// Cost: match and insert O(tokens), and O(log children) per node on the path; lease and release O(1) below a node that
// has holds, else O(depth); evict O(log leaves) per leaf, amortised. Memory: 4 bytes per token, 4 per block, about 350
// per node (measured, see bench/results/radix.md). Nothing recurses. An operation that throws leaves the tree valid: it
// allocates all the memory that a change needs before the change. Not thread-safe; callbacks must not use the tree
// (module.cpp refuses that).
#pragma once
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace phloem::radix {

using Tokens = std::span<const int32_t>;
using Blocks = std::span<const int32_t>;  // ids
using NodeId = int64_t;

constexpr NodeId NOTHING = 0;    // the end of the empty prefix of any namespace
constexpr int32_t PADDING = -1;  // equals no token: token ids are not negative

// The length of the longest common prefix of `a` and `b`.
inline size_t common_prefix(Tokens a, Tokens b) {
  const size_t length = std::min(a.size(), b.size());
  const auto agree = [&](size_t at, size_t count) { return std::memcmp(&a[at], &b[at], count * sizeof(int32_t)) == 0; };
  size_t at = 0;
  while (at + 64 <= length && agree(at, 64)) at += 64;  // memcmp runs at the speed of memory
  while (at + 4 <= length && agree(at, 4)) at += 4;     // two words at once
  while (at < length && a[at] == b[at]) ++at;
  return at;
}

struct Lexicographic {
  bool operator()(Tokens a, Tokens b) const {
    const size_t at = common_prefix(a, b);
    return at < b.size() && (at == a.size() || a[at] < b[at]);
  }
};

struct Node;
// Children by their first block (a view of the child's own run). The order is lexicographic: if no child has a block as
// its first, the one that shares the longest prefix with it is a neighbour of the place where it would be.
using Children = std::map<Tokens, Node*, Lexicographic>;

struct Node {
  Node* parent = nullptr;       // null for a root
  std::vector<int32_t> tokens;  // the run: `block_size` tokens per block
  std::vector<int32_t> blocks;
  Children children;
  Children::iterator place;            // in the parent's children
  size_t end = 0;                      // blocks from the root to the end of the run
  NodeId id = NOTHING;                 // NOTHING for every root
  const std::string* space = nullptr;  // the namespace
  int32_t num_leases = 0;              // leases and pins that end here
  int32_t num_holds = 0;               // `num_leases` + the number of children with holds
  int64_t num_hits = 0;                // matches that ended here, or at a descendant evicted since
  int32_t priority = 0;                // the highest priority given by an insert
  bool is_candidate = false;           // whether the eviction heap has an entry for it
  double last_used = 0;
  double era = 0;  // the tree's era when it was last used
};

// An eviction policy: the leaf with the lowest rank is evicted first, of equal ranks the least recently used. `cost`:
// of recomputing the last block of the leaf. While the leaf is in the tree its rank must not fall.
struct Policy {
  const char* name;
  double (*rank)(const Node& leaf, double cost);
};

inline constexpr std::array<Policy, 4> POLICIES{{
    {"lru", [](const Node&, double) { return 0.0; }},
    {"lfu", [](const Node& leaf, double) { return static_cast<double>(leaf.num_hits); }},
    {"priority", [](const Node& leaf, double) { return static_cast<double>(leaf.priority); }},
    // GreedyDual-Size-Frequency (Cherkasova 1998). The era is the highest rank evicted so far: old frequencies fade
    {"cost", [](const Node& leaf, double cost) { return leaf.era + static_cast<double>(leaf.num_hits + 1) * cost; }},
}};

struct Match {
  size_t num_tokens = 0;          // length of the longest cached prefix, in whole blocks
  NodeId node = NOTHING;          // the node where it ends
  NodeId partial_node = NOTHING;  // the node whose first block shares most tokens with what follows
  size_t num_partial_tokens = 0;  // how many tokens it shares: the block is a donor for copy-on-write
  int32_t partial_block = -1;
};

struct Inserted {
  size_t num_new_tokens = 0;
  NodeId node = NOTHING;
  std::vector<int32_t> duplicates;  // given blocks whose positions the tree holds in other blocks: still the caller's
};

// A run that was inserted or evicted.
struct Run {
  std::string space;
  std::vector<int32_t> path;  // tokens from the root to the end of the run
  std::vector<int32_t> blocks;
};

struct Counts {
  size_t num_matches = 0, num_asked_tokens = 0, num_matched_tokens = 0;
  size_t num_duplicate_blocks = 0, num_evicted_blocks = 0, num_splits = 0;
  size_t num_cached_blocks = 0, num_leased_blocks = 0;
};

struct Candidate {
  double rank, last_used;
  Node* node;
  bool operator<(const Candidate& other) const {  // std heaps put the greatest first: the next to be evicted
    return rank != other.rank ? rank > other.rank : last_used > other.last_used;
  }
};

using Spare = std::function<int64_t(const std::string&, Tokens)>;  // how many tokens of a prefix will be needed soon
using BlockCost = std::function<double(size_t)>;  // cost of computing the block that ends at a position

// `space`: a namespace; `now`: seconds. Invalid arguments, the id of an evicted node among them, throw
// std::invalid_argument.
class Tree {
 public:
  // max_ghosts: how many evicted runs are remembered, for `evicted_at`.
  Tree(int64_t block_size, const std::string& policy, size_t max_ghosts);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // Prefix matching: the longest cached prefix. Counts as a use of it; splits the node if it ends inside a run.
  Match match(Tokens tokens, std::string_view space, double now);
  // How many tokens `match` would find: (in whole blocks, in the donor after them). Changes and counts nothing.
  std::pair<size_t, size_t> peek(Tokens tokens, std::string_view space);
  // At most `count` tokens that follow `tokens` in the tree, up to the first branch. Changes nothing.
  std::vector<int32_t> continuation(Tokens tokens, std::string_view space, size_t count);
  // Insertion of a prefix, from the root or `after` the end of a node. `blocks` has one id per whole block, and one
  // more for a tail. `block_cost`: for the policy "cost", called once for each position; otherwise null.
  Inserted insert(Tokens tokens, Blocks blocks, std::string_view space, NodeId after, int32_t priority, double now,
                  const BlockCost& block_cost);
  // Counts a use of the prefix that ends at a node, and a hit. No effect if it was evicted.
  void touch(NodeId id, double now);

  void lease(NodeId id);  // protects the prefix that ends at a node, until released as often
  void release(NodeId id);
  size_t num_sole_blocks(NodeId id);  // blocks protected by the one lease on a node alone; O(depth)

  std::vector<int32_t> path_blocks(NodeId id);  // from the root to the end of a node; O(depth)
  std::vector<int32_t> path_tokens(NodeId id);
  bool is_tail(NodeId id);

  // Eviction of at least `num_wanted` blocks, leaf by leaf in the order of the policy, or of all that can be evicted.
  // What `spare` (or null) says is needed stays, in up to MAX_SPARED leaves, and counts as used now. `runs` (or null)
  // gets the evicted runs. Returns the blocks.
  std::vector<int32_t> evict(size_t num_wanted, double now, const Spare& spare, std::vector<Run>* runs);
  // When the run that followed the cached prefix of `tokens` was evicted: the last one whose first block agrees with
  // them for more tokens than any child that is still there.
  std::optional<double> evicted_at(Tokens tokens, std::string_view space);

  size_t block_size() const { return block_size_; }
  const Counts& counts() const { return counts_; }
  const std::unordered_map<NodeId, Node>& nodes() const { return nodes_; }
  const std::map<std::string, Node, std::less<>>& roots() const { return roots_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  double rank_of(const Node& node) const;

 private:
  // Where a walk ends: at `node` (null: no such namespace), after `offset` tokens. `child` is the child that shares the
  // longest prefix with the following tokens: `num_agreeing`, but not its whole run. With a block or more the walk ends
  // inside that run.
  struct Place {
    Node* node = nullptr;
    size_t offset = 0;
    Node* child = nullptr;
    size_t num_agreeing = 0;
  };
  // A record of an evicted run, by the parent that it had: this is where a later walk along the same tokens ends.
  struct Ghost {
    std::string space;
    NodeId place;  // the parent
    double when;
    std::vector<int32_t> block;  // the first block of the run
  };

  Tokens first_block(Tokens run) const { return run.first(std::min(run.size(), block_size_)); }
  Place walk(Node* start, Tokens tokens) const;
  Place walk_and_split(Node* start, Tokens tokens);
  Place closest_child(const Node& node, Tokens rest) const;
  Node* find_root(std::string_view space);
  Node* find(NodeId id, const char* if_evicted);  // null for NOTHING, and for an evicted one if there is no message
  Node* add_node(Node* parent);
  Node* add_leaf(Node* parent, Tokens tokens, Blocks blocks);
  Node* split(Node* lower, size_t num_blocks);
  void drop_if_empty(Node* root) noexcept;
  Inserted insert_below(Node* start, Tokens tokens, Blocks blocks, int32_t priority, double now);
  std::vector<int32_t> path(const Node* node, std::vector<int32_t> Node::* run, size_t length) const;
  void mark_use(Node* node, double now) noexcept;

  void offer(Node* node) noexcept;
  Node* first_candidate();
  void drop_first_candidate() noexcept;
  size_t count_spared(const Node& leaf, const Spare& spare) const;
  size_t count_left(const Node& leaf, size_t num_spared, size_t num_wanted) const;
  void remember(const Node& leaf, const Node& parent, double now);
  Node* cut(Node* leaf, size_t num_left, double now);

  const size_t block_size_, max_ghosts_;
  const Policy* policy_;
  std::unordered_map<NodeId, Node> nodes_;  // without the roots; their addresses are stable
  std::map<std::string, Node, std::less<>> roots_;
  std::vector<Candidate> candidates_;  // a heap
  std::vector<Ghost> ghosts_;          // a ring buffer
  size_t num_ghosts_ = 0;              // recorded so far
  std::vector<double> costs_{0.0};     // of a block, by the number of blocks up to its end
  NodeId next_id_ = NOTHING + 1;
  double last_use_ = -std::numeric_limits<double>::infinity();
  double era_ = 0;
  Counts counts_;
};

}  // namespace phloem::radix
