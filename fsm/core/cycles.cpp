// Left recursion: rules that begin with themselves.
#include <utility>

#include "laying.h"

namespace phloem::fsm {

namespace {

using Calls = std::vector<std::pair<int32_t, int32_t>>;  // a rule, and one that it may begin with

class FirstCalls {
 public:
  FirstCalls(const Laid& laid, Ints text_costs)
      : laid_(laid), text_costs_(text_costs), rule_of_(laid.kinds.size(), -1), is_seen_(laid.kinds.size()) {
    for (size_t rule = 0; rule < laid.entries.size(); ++rule) rule_of_[laid.entries[rule]] = static_cast<int32_t>(rule);
  }

  Calls run() {
    for (int32_t rule = 0; rule < static_cast<int32_t>(laid_.entries.size()); ++rule) {
      visit(laid_.entries[rule]);
      while (!pending_.empty()) {
        const int32_t node = pending_.back();
        pending_.pop_back();
        follow(rule, node);
      }
    }
    return std::move(calls_);
  }

 private:
  // A node that can be completed, once.
  void visit(int32_t node) {
    if (is_seen_[node] || laid_.costs[node] >= NEVER) return;
    is_seen_[node] = 1;
    pending_.push_back(node);
  }

  void follow(int32_t rule, int32_t node) {
    const int32_t arg = laid_.args[node], next = laid_.nexts[node];
    switch (laid_.kinds[node]) {
      case K_SPLIT:
        for (int32_t option = arg; option < arg + next; ++option) visit(laid_.options[option]);
        return;
      case K_CALL:
        calls_.emplace_back(rule, rule_of_[arg]);
        if (laid_.costs[arg] == 0) visit(next);
        return;
      case K_LOOP: {
        const Loop& loop = laid_.loops[arg];
        visit(loop.entry);
        if (loop.minimum == 0 || laid_.costs[loop.entry] == 0) visit(next);
        return;
      }
      case K_SET: {  // its members have a text first
        const Set& set = laid_.sets[arg];
        for (int32_t option = set.others; option < set.others + set.num_others; ++option) visit(laid_.options[option]);
        return;
      }
      case K_TEXT:
        if (text_costs_[arg] == 0) visit(next);
        return;
      default: return;
    }
  }

  const Laid& laid_;
  Ints text_costs_;
  std::vector<int32_t> rule_of_;  // by entry
  std::vector<uint8_t> is_seen_;
  std::vector<int32_t> pending_;
  Calls calls_;
};

// How many calls of each rule lead to a rule that is left when rules without such a call are taken away again and
// again.
std::vector<int32_t> onward_calls(const Calls& calls, size_t num_rules) {
  std::vector<int32_t> num_onward(num_rules), pending;
  std::vector<std::vector<int32_t>> callers(num_rules);
  for (auto [caller, called] : calls) {
    ++num_onward[caller];
    callers[called].push_back(caller);
  }
  for (size_t rule = 0; rule < num_rules; ++rule) {
    if (num_onward[rule] == 0) pending.push_back(static_cast<int32_t>(rule));
  }
  while (!pending.empty()) {
    const int32_t rule = pending.back();
    pending.pop_back();
    for (int32_t caller : callers[rule]) {
      if (--num_onward[caller] == 0) pending.push_back(caller);
    }
  }
  return num_onward;
}

}  // namespace

std::vector<int32_t> calls_in_cycles(const Laid& laid, Ints text_costs) {
  const Calls calls = FirstCalls(laid, text_costs).run();
  std::vector<int32_t> found, num_onward = onward_calls(calls, laid.entries.size());
  for (auto [caller, called] : calls) {
    if (num_onward[caller] <= 0 || num_onward[called] == 0) continue;
    found.insert(found.end(), {caller, called});
    num_onward[caller] = -1;  // one is enough
  }
  return found;
}

}  // namespace phloem::fsm
