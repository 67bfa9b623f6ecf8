#include "rule_product.h"

#include <algorithm>

namespace phloem::fsm {

RuleProduct::RuleProduct(Leaving leaving, int64_t max_rules) : leaving_(std::move(leaving)), max_rules_(max_rules) {
  nothing_ = add_parts(W_ALTERNATION, {});
  empty_ = add_parts(W_SEQUENCE, {});
}

WrittenRules RuleProduct::run(int32_t rule) {
  try {
    const bool has_texts = request(rule, leaving_.nodes.bodies[rule], 0, ANY_LEFT) != nothing_;
    while (has_texts && !open_.empty()) {
      const auto [number, wanted] = open_.back();
      open_.pop_back();
      leaving_.check_time();
      const int32_t body = written(wanted[0], wanted[1], wanted[2]);
      found_.bodies[number] = body;
      if (static_cast<int64_t>(found_.names.size()) > max_rules_) throw TooMany{};
    }
    found_.is_done = true;
  } catch (TooMany) {
    found_.is_done = false;
  }
  return std::move(found_);
}

// A rule that writes a node from `before` on, leaving one of `leaves`.
int32_t RuleProduct::request(int32_t name, int32_t node, int32_t before, int32_t leaves) {
  Wanted wanted{node, before, leaves};
  if (!plainest(wanted)) return nothing_;
  const auto [entry, is_new] = numbers_.try_emplace(wanted);
  if (is_new) {
    const int32_t number = static_cast<int32_t>(found_.names.size());
    found_.names.push_back(name);
    found_.bodies.push_back(nothing_);
    open_.push_back({number, wanted});
    entry->second = add(W_RULE, number, 0, 0);
  }
  return entry->second;
}

// The texts of a node that break no obligation and leave one of `leaves`.
int32_t RuleProduct::written(int32_t node, int32_t before, int32_t leaves) {
  const Wanted asked{node, before, leaves};
  const auto known = expressions_.find(asked);
  if (known != expressions_.end()) return known->second;
  Wanted wanted = asked;
  int32_t found = nothing_;
  if (plainest(wanted)) found = wanted == asked ? write(wanted) : written(wanted[0], wanted[1], wanted[2]);
  return expressions_[asked] = found;
}

// Makes it the same texts, asked for with no more obligations than make a difference; false: there are none. So what is
// asked for in many ways is written once.
bool RuleProduct::plainest(Wanted& wanted) {
  auto& [node, before, leaves] = wanted;
  if (before && !leaving_.nodes.nullable[node] && leaving_.is_harmless(node, before)) before = 0;
  const int32_t possible = leaving_.left(node, before);
  const int32_t kept = leaving_.sets.both(possible, leaves);
  leaves = kept == possible ? ANY_LEFT : kept;
  return kept != 0;
}

int32_t RuleProduct::write(const Wanted& wanted) {
  const auto [node, before, leaves] = wanted;
  const int32_t* inside = leaving_.parts(node);
  switch (leaving_.nodes.kinds[node]) {
    case L_TERMINAL:
      return add(W_TERMINAL, inside[0], before, leaves);
    case L_SPACED:
      return written(leaving_.nodes.bodies[inside[0]], before, leaves);
    case L_RULE:
      return request(inside[0], leaving_.nodes.bodies[inside[0]], before, leaves);
    case L_REPEAT:
      return write_repeat(node, before, leaves);
    case L_SEQUENCE:
      return write_sequence(node, before, leaves);
    default: {
      std::vector<int32_t> options;
      for (int32_t index = inside[0], end = inside[1]; index < end; ++index) {
        const int32_t option = written(leaving_.nodes.options[index], before, leaves);
        if (option != nothing_) options.push_back(option);
      }
      return add_parts(W_ALTERNATION, options);
    }
  }
}

int32_t RuleProduct::write_sequence(int32_t node, int32_t before, int32_t leaves) {
  std::vector<int32_t> row;
  while (node != EMPTY_NODE) {
    leaving_.check_time();
    const bool is_sequence = leaving_.nodes.kinds[node] == L_SEQUENCE;
    const int32_t one = is_sequence ? leaving_.parts(node)[0] : node, rest = is_sequence ? leaving_.parts(node)[1] : EMPTY_NODE;
    if (rest == EMPTY_NODE) {
      row.push_back(written(one, before, leaves));
      return in_a_row(row);
    }
    const std::vector<Group> groups = distinguished(leaving_.left(one, before), rest, leaves);
    if (groups.size() != 1) {
      const int32_t name = static_cast<int32_t>(leaving_.nodes.bodies.size());
      std::vector<int32_t> options;
      for (const auto& [after, some] : groups) {
        const int32_t begun = written(one, before, some);
        options.push_back(add_parts(W_SEQUENCE, {begun, request(name, rest, after, leaves)}));
      }
      row.push_back(add_parts(W_ALTERNATION, options));
      return in_a_row(row);
    }
    row.push_back(written(one, before, groups[0].some));
    node = rest;
    before = groups[0].after;
  }
  row.push_back(leaving_.sets.has(leaves, before) ? empty_ : nothing_);
  return in_a_row(row);
}

int32_t RuleProduct::write_repeat(int32_t node, int32_t before, int32_t leaves) {
  const int32_t item = leaving_.parts(node)[0], minimum = leaving_.parts(node)[1], maximum = leaving_.parts(node)[2];
  std::vector<int32_t> queue{before};
  int32_t reached = leaving_.sets.of_one(before);
  for (size_t index = 0; index < queue.size(); ++index) {
    const int32_t fresh = leaving_.sets.without(leaving_.left(item, queue[index]), reached);
    reached = leaving_.sets.either(reached, fresh);
    const ObligationSets::Members& members = leaving_.sets.members(fresh);
    queue.insert(queue.end(), members.begin(), members.end());
  }
  const bool is_plain = std::ranges::all_of(queue, [&](int32_t one) { return leaving_.is_harmless(item, one); });
  if (is_plain && leaving_.sets.both(reached, leaves) == reached) {
    return add(W_REPEAT, written(item, 0, ANY_LEFT), minimum, maximum);
  }
  const int32_t rest = leaving_.repeated(item, std::max(minimum - 1, 0), maximum < 0 ? -1 : maximum - 1);
  const int32_t name = static_cast<int32_t>(leaving_.nodes.bodies.size()) + 1;
  std::vector<int32_t> options;
  if (!minimum && leaving_.sets.has(leaves, before)) options.push_back(empty_);
  for (const auto& [after, some] : distinguished(leaving_.left(item, before), rest, leaves)) {
    const int32_t begun = written(item, before, some);
    const int32_t follower = rest == EMPTY_NODE ? empty_ : request(name, rest, after, leaves);
    options.push_back(add_parts(W_SEQUENCE, {begun, follower}));
  }
  return add_parts(W_ALTERNATION, options);
}

// The obligations between a part and the rest, in groups that the rest cannot distinguish: one of each, and all of them.
// Without those after which the rest cannot be written so that it leaves one of `leaves`.
std::vector<RuleProduct::Group> RuleProduct::distinguished(int32_t possible, int32_t rest, int32_t leaves) {
  const bool shows = leaves != ANY_LEFT && leaving_.nodes.nullable[rest];
  struct Alike {
    int32_t seen;
    bool is_left;
    ObligationSets::Members members;
  };
  std::vector<Alike> groups;
  const ObligationSets::Members all = leaving_.sets.members(possible);
  for (int32_t one : all) {
    const int32_t seen = leaving_.is_harmless(rest, one) ? -1 : leaving_.seen_by(rest, one);
    const bool is_left = shows && leaving_.sets.has(leaves, one);
    const auto same = [&](const Alike& group) { return group.seen == seen && group.is_left == is_left; };
    auto group = std::ranges::find_if(groups, same);
    if (group == groups.end()) group = groups.insert(groups.end(), {seen, is_left, {}});
    group->members.push_back(one);
  }
  std::vector<Group> found;
  for (Alike& group : groups) {
    int32_t one = group.members[0];  // 0 if that is among them
    if (one && !shows && leaving_.is_harmless(rest, one)) one = 0;
    if (!leaving_.sets.both(leaving_.left(rest, one), leaves)) continue;
    found.push_back({one, groups.size() == 1 ? ANY_LEFT : leaving_.sets.number(std::move(group.members))});
  }
  return found;
}

int32_t RuleProduct::add(WrittenKind kind, int32_t one, int32_t two, int32_t three) {
  found_.rows.insert(found_.rows.end(), {kind, one, two, three});
  return static_cast<int32_t>(found_.rows.size() / 4) - 1;
}

int32_t RuleProduct::add_parts(WrittenKind kind, const std::vector<int32_t>& parts) {
  const int32_t begin = static_cast<int32_t>(found_.children.size());
  found_.children.insert(found_.children.end(), parts.begin(), parts.end());
  return add(kind, begin, begin + static_cast<int32_t>(parts.size()), 0);
}

int32_t RuleProduct::in_a_row(const std::vector<int32_t>& parts) {
  return parts.size() == 1 ? parts[0] : add_parts(W_SEQUENCE, parts);
}

}  // namespace phloem::fsm
