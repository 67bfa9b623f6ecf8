// A node of the radix tree: the run of tokens on the edge that leads to it, the blocks that hold their KV, and its use.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace phloem::radix {

using Tokens = std::span<const int32_t>;
using Blocks = std::span<const int32_t>;  // ids
using NodeId = int64_t;

constexpr NodeId NOTHING = 0;    // the end of the empty prefix of any namespace
constexpr int32_t PADDING = -1;  // fills up a last block that is not full; no token is negative

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

// Lexicographic order.
struct ByTokens {
  bool operator()(Tokens a, Tokens b) const {
    const size_t at = common_prefix(a, b);
    return at < b.size() && (at == a.size() || a[at] < b[at]);
  }
};

struct Node;
using Children = std::map<Tokens, Node*, ByTokens>;

struct Node {
  Node* parent = nullptr;  // of a root there is none
  int32_t num_holds = 0;   // `num_leases` and the children with holds: protected while it is not 0
  int32_t num_leases = 0;  // leases and pins that end here
  std::vector<int32_t> tokens;  // the run: `block_size` for each of its blocks
  std::vector<int32_t> blocks;
  // By first block, which is a view of the child's own run. In lexicographic order, so that the neighbours of a block
  // that is not there are those that begin like it furthest.
  Children children;
  Children::iterator place;            // in the parent's children
  int64_t end = 0;                     // blocks from the root to the end of the run
  NodeId id = NOTHING;                 // never given to another node; that of all roots is NOTHING
  const std::string* space = nullptr;  // the namespace that it is in
  int64_t num_hits = 0;                // matches that ended here, or at a descendant that was evicted
  int32_t priority = 0;                // the highest given to an insert that ended at one of these
  bool is_candidate = false;           // whether the heap of candidates for eviction has an entry for it
  double last_used = 0;                // when a match or an insert last ended at one of these
  double era = 0;                      // that of the tree at that time
};

}  // namespace phloem::radix
