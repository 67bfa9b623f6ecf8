// The costs of nodes: a least fixed point over rules. Passes go over all rules, those that are called before those that
// call them, until no rule is left that calls one whose cost has fallen since. Without recursion that is one pass.
#include <algorithm>

#include "laying.h"

namespace phloem::fsm {

namespace {

// The call graph; rules by their place in `order`.
struct Calls {
  std::vector<int32_t> sequence;              // all rules, each after those that it calls unless they call it as well
  std::vector<std::vector<int32_t>> callers;  // of each rule
};

Calls calls_of(const NetworkArrays& laid, Ints order, Ints firsts) {
  const int32_t num_rules = static_cast<int32_t>(order.size());
  std::vector<int32_t> place_of_entry(laid.kinds.size());
  for (int32_t place = 0; place < num_rules; ++place) place_of_entry[laid.entries[order[place]]] = place;
  Calls found;
  found.callers.resize(num_rules);
  for (int32_t place = 0; place < num_rules; ++place) {
    for (int32_t node = firsts[place]; node < firsts[place + 1]; ++node) {
      if (laid.kinds[node] == K_CALL) found.callers[place_of_entry[laid.args[node]]].push_back(place);
    }
  }
  std::vector<int32_t> at(firsts.begin(), firsts.end()), path;  // the node of each rule that is looked at next
  std::vector<uint8_t> is_met(num_rules);
  auto meet = [&](int32_t place) {
    if (is_met[place]) return;
    is_met[place] = 1;
    path.push_back(place);
  };
  for (int32_t root = 0; root < num_rules; ++root) {
    meet(root);
    while (!path.empty()) {
      const int32_t place = path.back(), node = at[place];
      if (node == firsts[place + 1]) {
        found.sequence.push_back(place);
        path.pop_back();
        continue;
      }
      ++at[place];
      if (laid.kinds[node] == K_CALL) meet(place_of_entry[laid.args[node]]);
    }
  }
  return found;
}

struct NodeCost {
  int64_t cost;
  int64_t last;  // the greatest of the nodes that it leads to
};

NodeCost cost_of(const NetworkArrays& laid, Ints text_costs, int64_t node) {
  const int32_t arg = laid.args[node], next = laid.nexts[node];
  NodeCost found{NEVER, node};
  int64_t own = 1, times = 1;  // of one byte
  switch (laid.kinds[node]) {
    case K_RETURN:
    case K_KEY: return {0, node};
    case K_SPLIT:
      for (int32_t option = arg; option < arg + next; ++option) {
        found.cost = std::min<int64_t>(found.cost, laid.costs[laid.options[option]]);
        found.last = std::max<int64_t>(found.last, laid.options[option]);
      }
      return found;
    case K_TEXT: own = text_costs[arg]; break;
    case K_CALL: own = laid.costs[arg]; break;
    case K_LOOP:
      found.last = std::max<int64_t>(next, laid.loops[arg].entry);
      times = laid.loops[arg].minimum;
      own = times ? laid.costs[laid.loops[arg].entry] : 0;
      break;
    case K_SET: own = least_cost(laid, laid.sets[arg]); break;
    default: break;
  }
  const int64_t rest = laid.costs[next];
  // too long to be written is not the same as impossible
  if (rest < NEVER && own < NEVER) found.cost = std::min<int64_t>(rest + own * times, NEVER - 1);
  if (laid.kinds[node] != K_LOOP) found.last = next;
  return found;
}

// Lowers the costs of the nodes from first up to end; whether one that lies before what it leads to was lowered. A node
// usually has a greater number than all that it leads to, and then one sweep is enough.
bool sweep(NetworkArrays& laid, Ints text_costs, int64_t first, int64_t end) {
  bool again = false;
  for (int64_t node = first; node < end; ++node) {
    const NodeCost found = cost_of(laid, text_costs, node);
    if (found.cost >= laid.costs[node]) continue;
    laid.costs[node] = static_cast<int32_t>(found.cost);
    again = again || found.last > node;
  }
  return again;
}

}  // namespace

void settle_costs(NetworkArrays& laid, Ints text_costs, Ints order, Ints firsts) {
  std::fill(laid.costs.begin(), laid.costs.end(), NEVER);
  const Calls calls = calls_of(laid, order, firsts);
  std::vector<int32_t> turn_of(order.size());
  int32_t turn = 0;
  for (int32_t place : calls.sequence) turn_of[place] = turn++;
  std::vector<uint8_t> is_due(order.size(), 1);
  for (bool again = true; again;) {
    again = false;
    for (int32_t place : calls.sequence) {
      if (!is_due[place]) continue;
      is_due[place] = 0;
      const int32_t entry = laid.entries[order[place]], before = laid.costs[entry];
      while (sweep(laid, text_costs, firsts[place], firsts[place + 1])) {
      }
      if (laid.costs[entry] >= before) continue;
      for (int32_t caller : calls.callers[place]) {
        is_due[caller] = 1;
        again = again || turn_of[caller] <= turn_of[place];
      }
    }
  }
  for (Loop& loop : laid.loops) loop.cost = laid.costs[loop.entry];
}

}  // namespace phloem::fsm
