// Which requests share leading blocks: the batch as a forest of key ranges. Knows block ids, no tensors.
//
// Sorted by their block tables, requests that share a prefix stand side by side, and the shared lengths of neighbours
// spell the forest. Each node is a range of keys and the run of (sorted) requests that read it:
//
//     sorted requests    0    1    2    3          nodes (request run, keys), root to leaf
//     keys 0..255        |----+----|    |          [0, 3) x [0, 256)
//     keys 256..511      |----|    |    |          [0, 2) x [256, 512)
//     own keys           |    |    |    |          leaves: [0, 1) x [512, n0), [1, 2) x [512, n1),
//                                                          [2, 3) x [256, n2), [3, 4) x [0, n3)
//
// Invariant: the nodes over one request cover its keys [0, context_len) exactly once, in rising order; inner nodes
// begin and end on the grid and hold only keys that every one of their query rows sees; every request has a leaf of its
// own, never empty. Cost: O(batch x blocks compared).
#pragma once
#include <cstdint>
#include <span>
#include <vector>

namespace phloem::kernels {

using Ints = std::span<const int32_t>;

// Block tables [num_rows, width].
struct BlockTables {
  const int32_t* ids;
  int64_t num_rows, width;
  const int32_t* row(int64_t index) const { return ids + index * width; }
};

// A step: requests one after another, `query_starts` [B + 1] their first tokens, `context_lens` [B] their keys.
struct Step {
  Ints query_starts, context_lens;
  BlockTables tables;
  int64_t block_size;
  int32_t q_len(int64_t request) const { return query_starts[request + 1] - query_starts[request]; }
};

struct Node {
  int32_t first, last;  // sorted requests: the first, and the end
  int32_t key_begin, key_end;
  int32_t tree;
};

// A permutation of the requests that puts equal leading blocks side by side.
std::vector<int32_t> order_by_prefix(const BlockTables& tables);

// Entry i: keys that sorted requests i - 1 and i share, rounded down to the grid (entry 0 is 0). Only keys that both
// have fully computed count, so that no query row of either is among them.
std::vector<int32_t> shared_lens(const Step& step, Ints order, int64_t grid);

// The nodes, each tree root to leaf. shared: from `shared_lens`; ends: the context_lens in sorted order.
std::vector<Node> forest(Ints shared, Ints ends);

}  // namespace phloem::kernels
