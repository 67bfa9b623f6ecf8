// See cuda_work.h.
#include "cuda_work.h"

#include <algorithm>
#include <numeric>

namespace phloem::kernels {
namespace {

// The requests of a step in the order of their prefixes.
struct Sorted {
  const Step& step;
  const CudaOptions& options;
  int64_t group;               // query heads of a KV head
  std::vector<int32_t> order;  // by sorted place
  std::vector<int32_t> shared;

  int64_t packed_rows(int64_t request) const { return step.q_len(request) * group; }
};

// The smallest class that holds the rows, or the largest.
int32_t tile_class(int64_t num_rows, Ints classes) {
  for (size_t i = 0; i < classes.size(); i++) {
    if (num_rows <= classes[i]) return (int32_t)i;
  }
  return (int32_t)classes.size() - 1;
}

int64_t num_parts(int64_t size, int64_t part) { return (size + part - 1) / part; }

// Puts sharers side by side; requests with many rows come last and share nothing: a tile reads their keys for many rows
// anyway.
void sort_sharers(Sorted& s) {
  const std::vector<int32_t> order = order_by_prefix(s.step.tables);
  s.order.clear();
  const auto has_few = [&](int32_t b) { return s.packed_rows(b) <= s.options.max_sharing_rows; };
  std::copy_if(order.begin(), order.end(), std::back_inserter(s.order), has_few);
  const size_t num_few = s.order.size();
  std::copy_if(order.begin(), order.end(), std::back_inserter(s.order), [&](int32_t b) { return !has_few(b); });
  s.shared = shared_lens(s.step, s.order, s.options.split_size);
  std::fill(s.shared.begin() + num_few, s.shared.end(), 0);
}

// Unshares each run of sharers that saves less than it costs.
//
// Saved per KV head: the shared lengths of neighbours, summed, are exactly the keys read less. Added: its requests are
// cut, so a partial for each of their packed rows and splits.
void drop_poor_sharing(Sorted& s) {
  for (size_t begin = 0, end; begin < s.shared.size(); begin = end) {
    end = begin + 1;
    while (end < s.shared.size() && s.shared[end] > 0) end++;
    int64_t saved = 0, added = 0;
    for (size_t i = begin; i < end; i++) {
      saved += s.shared[i];
      added += s.packed_rows(s.order[i]) * num_parts(s.step.context_lens[s.order[i]], s.options.split_size);
    }
    if ((double)saved < s.options.partial * (double)added + s.options.launch) {
      std::fill(s.shared.begin() + begin, s.shared.begin() + end, 0);
    }
  }
}

// The partial results of a wide tile are as many bytes as its keys: a few tiles that walk are better than that.
int64_t processors_for(int64_t width, int64_t num_processors) {
  return width <= 16 ? num_processors : width <= 32 ? num_processors / 2 : num_processors / 4;
}

void list_tile(const CudaOptions& options, CudaItem item, int32_t key_end, bool is_cut, std::vector<CudaItem>& items) {
  for (int32_t key = item.key_begin; key < key_end; key = item.key_end) {
    item.key_begin = key;
    item.key_end = is_cut ? std::min<int32_t>(key_end, key + (int32_t)options.split_size) : key_end;
    for (item.kv_head = 0; item.kv_head < options.num_kv_heads; item.kv_head++) items.push_back(item);
  }
}

// By request: does it share splits, or walk further than a processor's fair share of the step?
std::vector<uint8_t> choose_cut(const std::vector<Node>& nodes, const Sorted& s) {
  const size_t num_requests = s.order.size();
  std::vector<int64_t> walks(num_requests);  // splits of each request alone; 0 if it shares
  std::vector<uint8_t> is_cut(num_requests);
  int64_t work = 0;
  for (const Node& node : nodes) {
    const int64_t num_splits = num_parts(node.key_end - node.key_begin, s.options.split_size);
    int64_t num_rows = 0;
    for (int32_t i = node.first; i < node.last; i++) num_rows += s.packed_rows(s.order[i]);
    work += num_splits * num_parts(num_rows, s.options.classes[tile_class(num_rows, s.options.classes)]) *
            s.options.num_kv_heads;
    if (node.last - node.first == 1 && node.key_begin == 0) {
      walks[s.order[node.first]] = num_splits;
    } else {
      for (int32_t i = node.first; i < node.last; i++) is_cut[s.order[i]] = true;
    }
  }
  for (size_t b = 0; b < num_requests; b++) {
    const int64_t width = s.options.classes[tile_class(s.packed_rows(b), s.options.classes)];
    const int64_t spread = processors_for(width, s.options.num_processors);
    if (walks[b] * spread > std::max(work, spread)) is_cut[b] = true;
  }
  return is_cut;
}

// Where rows, tokens and partial results lie; returns where the rows of each sorted request begin.
std::vector<int32_t> place_rows(const Sorted& s, CudaPlan& plan) {
  const int64_t num_tokens = s.step.query_starts.back(), num_heads = s.options.num_heads;
  plan.rows.clear(), plan.positions.assign(num_tokens, 0), plan.slots.assign(2 * num_tokens, 0), plan.num_slots = 0;
  std::vector<int32_t> row_starts{0};
  for (const int32_t b : s.order) {
    const int32_t q_len = s.step.q_len(b);
    for (int32_t j = 0; j < q_len; j++) {
      const int32_t token = s.step.query_starts[b] + j;
      plan.rows.push_back(token);
      plan.positions[token] = s.step.context_lens[b] - q_len + j;
      plan.slots[2 * token] = (int32_t)(plan.num_slots + j * num_heads);
      plan.slots[2 * token + 1] = (int32_t)(q_len * num_heads);
    }
    row_starts.push_back((int32_t)plan.rows.size());
    if (plan.is_cut[b]) plan.num_slots += q_len * num_heads * num_parts(s.step.context_lens[b], s.options.split_size);
  }
  return row_starts;
}

// Every node, cut into tiles of packed rows and (if its requests are cut) splits, for every KV head.
void list_items(const std::vector<Node>& nodes, const Sorted& s, Ints row_starts, CudaPlan& plan) {
  const int32_t group = (int32_t)s.group;
  for (const Node& node : nodes) {
    const int32_t request = s.order[node.first];
    const int32_t row_begin = row_starts[node.first] * group, row_end = row_starts[node.last] * group;
    const int32_t own_class = tile_class(row_end - row_begin, s.options.classes);
    const bool is_cut = plan.is_cut[request];
    const bool is_leaf = node.last - node.first == 1 && node.key_end == s.step.context_lens[request];
    for (int32_t row = row_begin; row < row_end; row += s.options.classes[own_class]) {
      const int32_t num_rows = std::min(s.options.classes[own_class], row_end - row);
      int32_t end = node.key_end;
      if (is_leaf) {  // rows of a chunk see no further than the last of them
        end = std::min(end, plan.positions[plan.rows[(row + num_rows - 1) / group]] + 1);
      }
      list_tile(s.options, {request, 0, node.key_begin, 0, row, num_rows, !is_cut, own_class}, end, is_cut, plan.items);
    }
  }
}

}  // namespace

CudaPlan plan_cuda_work(const Step& step, const CudaOptions& options) {
  const size_t num_requests = step.context_lens.size();
  Sorted s{step, options, options.num_heads / options.num_kv_heads, {}, {}};
  CudaPlan plan{};
  std::vector<Node> nodes;
  std::vector<int32_t> row_starts;
  for (int way = options.shares ? 0 : 1; way < 3; way++) {  // share and cut, cut, neither
    s.order.resize(num_requests);
    std::iota(s.order.begin(), s.order.end(), 0);
    s.shared.assign(num_requests, 0);
    if (way == 0 && num_requests > 1) {
      sort_sharers(s);
      drop_poor_sharing(s);
    }
    std::vector<int32_t> ends;
    for (const int32_t b : s.order) ends.push_back(step.context_lens[b]);
    nodes = forest(s.shared, ends);
    plan.is_cut = way < 2 ? choose_cut(nodes, s) : std::vector<uint8_t>(num_requests);
    row_starts = place_rows(s, plan);
    if (plan.num_slots <= options.most_slots) break;
  }
  list_items(nodes, s, row_starts, plan);
  return plan;
}

void write_items_and_tables(int32_t* host, int64_t begin, std::span<const CudaItem> items, const BlockTables& tables,
                            Ints num_blocks) {
  std::vector<int32_t> places;
  int64_t place = begin + 8 * (int64_t)items.size();
  for (size_t b = 0; b < num_blocks.size(); b++) {
    places.push_back((int32_t)place);
    std::copy_n(tables.row(b), num_blocks[b], host + place);
    place += num_blocks[b];
  }
  for (size_t n = 0; n < items.size(); n++) {
    CudaItem item = items[n];
    item.table = places[item.table];
    *(CudaItem*)(host + begin + 8 * n) = item;
  }
}

}  // namespace phloem::kernels
