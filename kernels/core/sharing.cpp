// See sharing.h.
#include "sharing.h"

#include <algorithm>
#include <numeric>

namespace phloem::kernels {

std::vector<int32_t> order_by_prefix(const BlockTables& tables) {
  std::vector<int32_t> order(tables.num_rows);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    const int32_t *one = tables.row(a), *other = tables.row(b);
    return std::lexicographical_compare(one, one + tables.width, other, other + tables.width);
  });
  return order;
}

std::vector<int32_t> shared_lens(const Step& step, Ints order, int64_t grid) {
  std::vector<int32_t> shared(order.size());
  for (size_t i = 1; i < order.size(); i++) {
    const int32_t a = order[i - 1], b = order[i];
    const int64_t computed = std::min(step.context_lens[a] - step.q_len(a), step.context_lens[b] - step.q_len(b));
    const int32_t *one = step.tables.row(a), *other = step.tables.row(b);
    int64_t same = 0;
    while ((same + 1) * step.block_size <= computed && one[same] == other[same]) same++;
    shared[i] = (int32_t)(same * step.block_size / grid * grid);
  }
  return shared;
}

namespace {

// A run of sorted requests, and the first key that is not in a node above it.
struct Run {
  int32_t first, last, key;
};

// The nodes of one tree.
void add_tree(Run whole, int32_t tree, Ints shared, Ints ends, std::vector<Node>& nodes) {
  std::vector<Run> left{whole};
  while (!left.empty()) {
    const auto [first, last, key] = left.back();
    left.pop_back();
    int32_t until = ends[first];
    for (int32_t i = first + 1; i < last; i++) until = std::min(until, shared[i]);
    if (until > key) nodes.push_back({first, last, key, until, tree});
    if (last - first == 1) continue;
    int32_t child_end = last;  // children: runs between the neighbours that share no more than `until`
    for (int32_t i = last - 1; i >= first; i--) {
      if (i == first || shared[i] == until) {
        left.push_back({i, child_end, until});
        child_end = i;
      }
    }
  }
}

}  // namespace

std::vector<Node> forest(Ints shared, Ints ends) {
  std::vector<Node> nodes;
  const int32_t num_requests = (int32_t)shared.size();
  for (int32_t begin = 0, end, tree = 0; begin < num_requests; begin = end, tree++) {
    end = begin + 1;
    while (end < num_requests && shared[end] > 0) end++;
    add_tree({begin, end, 0}, tree, shared, ends, nodes);
  }
  return nodes;
}

}  // namespace phloem::kernels
