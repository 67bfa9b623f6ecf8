// The CPU's work list of one step: which rows pass over which keys, in which order. Knows no tensors.
//
// An item is (block-table row, range of keys, run of query rows). Requests are sorted so that those that share leading
// blocks stand side by side; a node of the forest becomes the items of its range of keys for all its requests' rows.
// Items of one tree form a chain, root to leaf, because a row's running sums pass from item to item; a request that
// shares nothing gives a chain per tile of rows. Chains are independent.
//
// Invariant: every (row, visible key) is covered by exactly one item, and each row meets its keys in rising order.
#pragma once
#include "sharing.h"

namespace phloem::kernels {

struct CpuItem {
  int32_t table_row, key_begin, key_end, row_begin, row_end, is_last;
};

struct CpuWork {
  std::vector<CpuItem> items;
  std::vector<int32_t> chain_starts;  // chain c = items [chain_starts[c], chain_starts[c + 1])
  std::vector<int32_t> rows;          // [T] token of each row; requests in prefix order
  std::vector<int32_t> positions;     // [T] absolute position of each row's token
  int64_t num_pairs = 0;              // (row, visible key) pairs: what the step costs
};

// grid: keys of a tile. shares: read keys that several requests share once (never changes a bit).
CpuWork plan_cpu_work(const Step& step, int64_t grid, bool shares);

}  // namespace phloem::kernels
