// See cpu_work.h.
#include "cpu_work.h"

#include <algorithm>
#include <numeric>

namespace phloem::kernels {
namespace {

constexpr int32_t MAX_ITEM_TOKENS = 64;  // of one item: their queries and sums stay in L2 together with the tile

// Lists the rows of the requests in order; returns where those of each begin.
std::vector<int32_t> list_rows(const Step& step, Ints order, CpuWork& work) {
  std::vector<int32_t> starts{0};
  for (const int32_t b : order) {
    const int64_t q_len = step.q_len(b);
    work.num_pairs += q_len * (2 * step.context_lens[b] - q_len + 1) / 2;
    for (int32_t token = step.query_starts[b]; token < step.query_starts[b + 1]; token++) {
      work.rows.push_back(token);
      work.positions.push_back(step.context_lens[b] - step.query_starts[b + 1] + token);
    }
    starts.push_back((int32_t)work.rows.size());
  }
  return starts;
}

void list_items(const Step& step, Ints order, Ints row_starts, const std::vector<Node>& nodes, CpuWork& work) {
  int32_t tree = -1;
  for (const Node& node : nodes) {
    const int32_t request = order[node.first];
    const bool is_leaf = node.last - node.first == 1 && node.key_end == step.context_lens[request];
    const bool is_alone = is_leaf && node.key_begin == 0;  // its tiles of rows depend on no others: a chain each
    for (int32_t row = row_starts[node.first]; row < row_starts[node.last]; row += MAX_ITEM_TOKENS) {
      const int32_t row_end = std::min(row + MAX_ITEM_TOKENS, row_starts[node.last]);
      const int32_t end = is_leaf ? std::min(node.key_end, work.positions[row_end - 1] + 1) : node.key_end;
      if (is_alone || tree != node.tree) {
        work.chain_starts.push_back((int32_t)work.items.size());
        tree = node.tree;
      }
      work.items.push_back({request, node.key_begin, end, row, row_end, is_leaf});
    }
  }
  work.chain_starts.push_back((int32_t)work.items.size());
}

}  // namespace

CpuWork plan_cpu_work(const Step& step, int64_t grid, bool shares) {
  const size_t num_requests = step.context_lens.size();
  std::vector<int32_t> order(num_requests), shared(num_requests), ends;
  std::iota(order.begin(), order.end(), 0);
  if (shares && num_requests > 1) {
    order = order_by_prefix(step.tables);
    shared = shared_lens(step, order, grid);
  }
  for (const int32_t b : order) ends.push_back(step.context_lens[b]);
  CpuWork work;
  const std::vector<int32_t> row_starts = list_rows(step, order, work);
  list_items(step, order, row_starts, forest(shared, ends), work);
  return work;
}

}  // namespace phloem::kernels
