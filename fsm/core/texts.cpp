#include "texts.h"

namespace phloem::fsm {

namespace {

bool plain_is_alive(const TextTable& text, int64_t state, int64_t node) {
  const uint64_t *reach = text.reach + node * text.num_words, *live = text.live + state * text.num_words;
  uint64_t both = 0;
  for (int64_t word = 0; word < text.num_words; ++word) both |= reach[word] & live[word];
  return both != 0;
}

int64_t plain_cost(const TextTable& text, int64_t state, int64_t node) {
  if (node == 0) return text.costs[state];
  int64_t best = NEVER;
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    const int32_t target = text.table[state * text.num_classes + class_id];
    const int32_t cost = text.node_costs[node * text.num_classes + class_id];
    if (target && cost < UNREACHABLE) best = std::min<int64_t>(best, int64_t{text.costs[target]} + cost);
  }
  return best;
}

}  // namespace

int64_t least_length(const TextTable& text, int64_t state, int64_t minimum) {
  minimum = std::max<int64_t>(minimum, 0);
  const int64_t shift = std::max<int64_t>(minimum - text.tail, 0) / text.period * text.period;
  const int64_t found = text.least[state * (text.tail + text.period) + minimum - shift];
  return found < NEVER ? found + shift : NEVER;
}

bool fits_after(const TextTable& text, int64_t state, int64_t count) {
  if (state == 0) return false;
  const int64_t most = std::min<int64_t>(text.max_length - count, NEVER - 1);
  return least_length(text, state, text.min_length - count) <= most;
}

bool is_alive(const TextTable& text, int64_t state, int64_t node, int64_t count) {
  if (!is_counted(text)) return plain_is_alive(text, state, node);
  const uint64_t* reach = text.reach + node * text.num_words;
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    const bool can_follow = reach[class_id >> 6] >> (class_id & 63) & 1;
    if (can_follow && fits_after(text, text.table[state * text.num_classes + class_id], count + 1)) return true;
  }
  return false;
}

int64_t text_step(const TextTable& text, int64_t sub, int64_t byte, int64_t count) {
  const int64_t state = sub / text.num_nodes, node = sub % text.num_nodes;
  const int64_t spelt = text.node(node)[byte];
  if (spelt == 0) return 0;
  if (spelt > 0) return is_alive(text, state, spelt, count) ? state * text.num_nodes + spelt : 0;
  const int64_t target = text.table[state * text.num_classes - spelt];
  return !is_counted(text) || fits_after(text, target, count + 1) ? target * text.num_nodes : 0;
}

int64_t text_cost(const TextTable& text, int64_t sub, int64_t count) {
  const int64_t state = sub / text.num_nodes, node = sub % text.num_nodes;
  if (!is_counted(text)) return plain_cost(text, state, node);
  const int64_t left = text.min_length - count;
  if (node == 0) return std::min<int64_t>(text.widest * least_length(text, state, left), NEVER);
  int64_t best = NEVER;
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    const int64_t target = text.table[state * text.num_classes + class_id];
    const int32_t cost = text.node_costs[node * text.num_classes + class_id];
    if (cost < UNREACHABLE && fits_after(text, target, count + 1)) {
      best = std::min(best, text.widest * least_length(text, target, left - 1) + cost);
    }
  }
  return best;
}

}  // namespace phloem::fsm
