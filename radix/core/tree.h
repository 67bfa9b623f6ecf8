// RadixAttention's tree (SGLang, arXiv 2312.07104), over blocks as in PagedAttention (arXiv 2309.06180): token prefixes
// -> ids of KV blocks. It knows ints only.
//
//   root "" -- [1 7 3 ... 2,000 tokens | blocks 0-124] --+-- [40 8 ...  | 125-129]
//                                                        +-- [91 2 ...  | 130-131] --+-- ...
//                                                                                    +-- ...
//   split:  -- [a b c d] --     -- [a b] --+-- [c d]    the lower part stays the node that it was, so leases and pins
//                                          +-- [x y]    hold; the upper part is new
//
// * A run has whole blocks only, at least one. A last block that is not full (a *tail*) is filled up with PADDING, so a
//   match finds it as a donor of its first tokens and never as a whole block.
// * Each namespace has a root of its own; a root without children is dropped.
// * A lease is counted at the end of a prefix: a node with a child is never evicted, so what is above is safe. For the
//   number of leased blocks, `num_holds` climbs until it meets a path that is held already.
// * Use is recorded at the end of a prefix, and handed to the parent when a leaf goes: a node becomes a leaf only after
//   all its descendants have handed theirs up.
// * Leaves wait for eviction in a lazy heap. The key of a node only grows, so an entry that is out of date comes up
//   early, and is put back: a match costs the heap nothing. Each leaf without holds has one entry.
// * Ids of nodes are never used again, so one that is kept beyond its eviction is not found.
//
// Cost: match and insert O(tokens), and O(log children) per node on the path; lease and release O(1) below a held node;
// evict O(log leaves) per leaf, amortised. Memory: 4 bytes per token, 4 per block, and about 350 per node (measured, see
// bench/results/radix.md). Nothing recurses. An operation that throws leaves a sound tree: all memory that a change
// needs is there before the change. Not thread-safe, and callbacks must not use the tree (module.cpp refuses it).
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
constexpr int32_t PADDING = -1;  // no token is negative

// How many tokens `a` and `b` have in common from their start.
inline size_t common_prefix(Tokens a, Tokens b) {
  const size_t length = std::min(a.size(), b.size());
  const auto agree = [&](size_t at, size_t count) { return std::memcmp(&a[at], &b[at], count * sizeof(int32_t)) == 0; };
  size_t at = 0;
  while (at + 64 <= length && agree(at, 64)) at += 64;  // at the speed of memory
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
// By first block, a view of the child's own run. In lexicographic order, so that the neighbours of a block that is not
// there are those that begin like it furthest.
using Children = std::map<Tokens, Node*, Lexicographic>;

struct Node {
  Node* parent = nullptr;       // of a root there is none
  std::vector<int32_t> tokens;  // the run: `block_size` for each of its blocks
  std::vector<int32_t> blocks;
  Children children;
  Children::iterator place;            // in the parent's children
  size_t end = 0;                      // blocks from the root to the end of the run
  NodeId id = NOTHING;                 // that of all roots is NOTHING
  const std::string* space = nullptr;  // the namespace
  int32_t num_leases = 0;              // leases and pins that end here
  int32_t num_holds = 0;               // `num_leases`, and the children with holds
  int64_t num_hits = 0;                // matches that ended here, or at a descendant that was evicted
  int32_t priority = 0;                // the highest that an insert gave
  bool is_candidate = false;           // whether the heap has an entry for it
  double last_used = 0;
  double era = 0;  // that of the tree when it was last used
};

// An eviction policy: the leaf of the smallest rank goes first, the least recently used one among equals. `cost` is that
// of computing the last block of the leaf again. A rank may only grow while the leaf is in the tree.
struct Policy {
  const char* name;
  double (*rank)(const Node& leaf, double cost);
};

inline constexpr std::array<Policy, 4> POLICIES{{
    {"lru", [](const Node&, double) { return 0.0; }},
    {"lfu", [](const Node& leaf, double) { return static_cast<double>(leaf.num_hits); }},
    {"priority", [](const Node& leaf, double) { return static_cast<double>(leaf.priority); }},
    // GreedyDual-Size-Frequency (Cherkasova 1998): the era, the rank of what was evicted last, lets frequency age
    {"cost", [](const Node& leaf, double cost) { return leaf.era + static_cast<double>(leaf.num_hits + 1) * cost; }},
}};

struct Match {
  size_t num_tokens = 0;          // of the longest prefix of whole blocks
  NodeId node = NOTHING;          // its end
  NodeId partial_node = NOTHING;  // the node whose first block agrees furthest with what comes after the prefix
  size_t num_partial_tokens = 0;  // how many tokens of that block agree
  int32_t partial_block = -1;
};

struct Inserted {
  size_t num_new_tokens = 0;
  NodeId node = NOTHING;
  std::vector<int32_t> duplicates;  // given blocks at places that have others: still the caller's
};

// Blocks that came to, or were taken from, the end of one prefix.
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
  bool operator<(const Candidate& other) const {  // the standard's heaps begin with the greatest: what goes first
    return rank != other.rank ? rank > other.rank : last_used > other.last_used;
  }
};

using Spare = std::function<int64_t(const std::string&, Tokens)>;  // how many tokens of a prefix will soon be needed
using BlockCost = std::function<double(size_t)>;  // what computing the block that ends at a token would cost

// `now`: seconds. What is refused throws std::invalid_argument, as does an id of a node that was evicted.
class Tree {
 public:
  // max_ghosts: evicted runs that are remembered.
  Tree(int64_t block_size, const std::string& policy, size_t max_ghosts);
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  // The longest cached prefix. Counts as a use of it, and splits a run that it ends within.
  Match match(Tokens tokens, std::string_view space, double now);
  // How many tokens a match would find: (of whole blocks, of the donor after them). Changes and counts nothing.
  std::pair<size_t, size_t> look(Tokens tokens, std::string_view space);
  // At most `count` tokens that follow `tokens`, as far as they can be followed in one way only. Changes nothing.
  std::vector<int32_t> continuation(Tokens tokens, std::string_view space, size_t count);
  // Puts a prefix into the tree, `after` a node or from the root. `blocks` has one id per whole block, and one more for
  // a tail. `block_cost`: for the policy "cost", asked once for each position; else null.
  Inserted insert(Tokens tokens, Blocks blocks, std::string_view space, NodeId after, int32_t priority, double now,
                  const BlockCost& block_cost);
  // Counts a use of the prefix that ends at a node, and a hit; nothing if it was evicted.
  void use(NodeId id, double now);

  void lease(NodeId id);  // protects the prefix that ends at a node until as many releases
  void release(NodeId id);
  size_t num_sole_blocks(NodeId id);  // how many blocks only the one lease on a node protects; O(depth)

  std::vector<int32_t> path_blocks(NodeId id);  // from the root to the end of a node; O(depth)
  std::vector<int32_t> path_tokens(NodeId id);
  bool is_tail(NodeId id);

  // Takes at least `num_wanted` blocks of the leaves that go first out of the tree, while there are any. What `spare`
  // (or null) needs stays, in up to MAX_SPARED leaves, as if it were used now. `runs`: to tell what was taken, or null.
  std::vector<int32_t> evict(size_t num_wanted, double now, const Spare& spare, std::vector<Run>* runs);
  // When a run was last evicted that hung where the walk along `tokens` ends, and began as they go on, for more tokens
  // than anything that is still there.
  std::optional<double> evicted_at(Tokens tokens, std::string_view space);

  size_t block_size() const { return block_size_; }
  const Counts& counts() const { return counts_; }
  const std::unordered_map<NodeId, Node>& nodes() const { return nodes_; }
  const std::map<std::string, Node, std::less<>>& roots() const { return roots_; }
  const std::vector<Candidate>& candidates() const { return candidates_; }
  double rank_of(const Node& node) const;

 private:
  // Where a walk ends: after `offset` tokens at `node` (null: no such namespace). `child` agrees furthest with what
  // comes next, in `num_agreeing` tokens and not in all of its run: a block or more, and the walk ends within its run.
  struct Place {
    Node* node = nullptr;
    size_t offset = 0;
    Node* child = nullptr;
    size_t num_agreeing = 0;
  };
  // An evicted run. It hung on a node that was still there, which is where a later walk for its tokens ends.
  struct Ghost {
    std::string space;
    NodeId place;
    double when;
    std::vector<int32_t> block;  // its first
  };

  Tokens first_block(Tokens run) const { return run.first(std::min(run.size(), block_size_)); }
  Place walk(Node* start, Tokens tokens) const;
  Place walk_and_split(Node* start, Tokens tokens);
  Place closest_child(const Node& node, Tokens rest) const;
  Node* find_root(std::string_view space);
  Node* find(NodeId id, const char* if_evicted);  // null: NOTHING; with no message, evicted too
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
