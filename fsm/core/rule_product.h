// The product of a grammar's rules and obligations (grammars/rule_product.py): a rule for every combination of a node,
// the obligations before it and those that it may leave that is asked for.
#pragma once
#include "leaving.h"

namespace phloem::fsm {

enum WrittenKind : int32_t { W_SEQUENCE, W_ALTERNATION, W_REPEAT, W_RULE, W_TERMINAL };

// Expressions as rows of (kind, begin, end), sequences and alternations of `children`; repeat: child, minimum, maximum;
// rule: its number; terminal: node, obligations before it and the set that it may leave. Children come first.
struct WrittenRules {
  std::vector<int32_t> rows;      // four numbers each: the kind and up to three
  std::vector<int32_t> children;
  std::vector<int32_t> names, bodies;  // of each rule: the number of the rule it comes from, its expression
  bool is_done = false;           // false: there were too many
};

class RuleProduct {
 public:
  RuleProduct(Leaving leaving, int64_t max_rules);

  // From a rule on; names of rules that do not come from a rule are the next two numbers after all rules: the rest of
  // a sequence, and of a repetition.
  WrittenRules run(int32_t rule);
  const ObligationSets& sets() const { return leaving_.sets; }

 private:
  using Wanted = std::array<int32_t, 3>;  // a node, the obligations before it, and the set that it may leave
  struct Group {
    int32_t after, some;
  };
  int32_t request(int32_t name, int32_t node, int32_t before, int32_t leaves);
  int32_t written(int32_t node, int32_t before, int32_t leaves);
  bool plainest(Wanted& wanted);
  int32_t write(const Wanted& wanted);
  int32_t write_sequence(int32_t node, int32_t before, int32_t leaves);
  int32_t write_repeat(int32_t node, int32_t before, int32_t leaves);
  std::vector<Group> distinguished(int32_t possible, int32_t rest, int32_t leaves);
  int32_t add(WrittenKind kind, int32_t one, int32_t two, int32_t three);
  int32_t add_parts(WrittenKind kind, const std::vector<int32_t>& parts);
  int32_t in_a_row(const std::vector<int32_t>& parts);

  Leaving leaving_;
  int64_t max_rules_;
  WrittenRules found_;
  std::map<Wanted, int32_t> numbers_, expressions_;
  std::vector<std::pair<int32_t, Wanted>> open_;  // rules that are not written yet
  int32_t nothing_, empty_;
};

}  // namespace phloem::fsm
