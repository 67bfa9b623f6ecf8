// The work list of one step on a device (see `cuda_work.py`): what to share, what to cut, and the items. Knows no
// tensors.
#pragma once
#include "sharing.h"

namespace phloem::kernels {

struct CudaOptions {
  int64_t num_heads, num_kv_heads;
  Ints classes;              // packed rows of the tile classes, narrowest first
  int64_t split_size;        // keys, also the grid of sharing
  int64_t num_processors;    // programs that run at once
  bool shares;               // whether requests may read keys that they share together
  double partial, launch;    // what a partial result and a launch cost, in keys of a KV head
  int64_t most_slots;        // of partial results; beyond, nothing is shared, and if that is not enough, nothing cut
  int64_t max_sharing_rows;  // packed rows of one request that may share
};

struct CudaItem {
  int32_t table, kv_head, key_begin, key_end, row_begin, num_rows, is_direct, tile_class;
};

struct CudaPlan {
  std::vector<CudaItem> items;
  std::vector<int32_t> rows;       // [T] token of each row; requests in prefix order
  std::vector<int32_t> positions;  // [T] by token
  std::vector<int32_t> slots;      // [T, 2] by token: its first slot, and from one split to the next
  std::vector<uint8_t> is_cut;     // [B]
  int64_t num_slots;
};

CudaPlan plan_cuda_work(const Step& step, const CudaOptions& options);

// Writes items [N] from host[begin] on, tables after them, end to end, of each request num_blocks blocks; items name
// their table by its place in host then.
void write_items_and_tables(int32_t* host, int64_t begin, std::span<const CudaItem> items, const BlockTables& tables,
                            Ints num_blocks);

}  // namespace phloem::kernels
