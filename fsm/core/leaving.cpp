#include "leaving.h"

#include <algorithm>
#include <iterator>

namespace phloem::fsm {

namespace {

// What becomes of an answer, where it is not followed by a node.
constexpr int32_t AS_IT_IS = -1, COUNTED = -2;

}  // namespace

int32_t ObligationSets::number(Members members) {
  const auto [entry, is_new] = numbers_.try_emplace(std::move(members), static_cast<int32_t>(members_.size()));
  if (is_new) members_.push_back(&entry->first);
  return entry->second;
}

int32_t ObligationSets::both(int32_t one, int32_t other) {
  if (one == other || other == ANY_LEFT) return one;
  Members found;
  std::ranges::set_intersection(members(one), members(other), std::back_inserter(found));
  return number(std::move(found));
}

int32_t ObligationSets::either(int32_t one, int32_t other) {
  if (one == other || !other) return one;
  Members found;
  std::ranges::set_union(members(one), members(other), std::back_inserter(found));
  return number(std::move(found));
}

int32_t ObligationSets::without(int32_t one, int32_t other) {
  if (!other) return one;
  Members found;
  std::ranges::set_difference(members(one), members(other), std::back_inserter(found));
  return number(std::move(found));
}

bool ObligationSets::has(int32_t set, int32_t obligations) const {
  return set == ANY_LEFT || std::ranges::binary_search(members(set), obligations);
}

// The set of obligations that a node can leave.
int32_t Leaving::left(int32_t node, int32_t before) {
  const auto [entry, is_new] = settled_.try_emplace(packed(node, before));
  if (!is_new) return entry->second;
  int32_t found = 0;
  const uint64_t asked = packed(node, before);
  if (resolved(node, before)) {
    if (is_terminal(node)) {
      found = left_by(node, before);
    } else {
      if (known_.try_emplace(packed(node, before)).second) {
        pending_.push_back({node, before});
        settle();
      }
      found = known_[packed(node, before)];
    }
  }
  return settled_[asked] = found;
}

int32_t Leaving::left_by(int32_t node, int32_t before) {
  const auto entry = left_by_.find(packed(node, before));
  if (entry != left_by_.end()) return entry->second;
  ObligationSets::Members members = terminals.left_by(node, before);
  std::ranges::sort(members);
  members.erase(std::unique(members.begin(), members.end()), members.end());
  return left_by_[packed(node, before)] = sets.number(std::move(members));
}

// Leaves out terminals in front that leave one thing only; false: nothing is left.
bool Leaving::resolved(int32_t& node, int32_t& before) {
  while (nodes.kinds[node] == L_SEQUENCE && node != EMPTY_NODE && is_terminal(parts(node)[0])) {
    const int32_t after = left_by(parts(node)[0], before);
    if (!after) return false;
    if (sets.members(after).size() > 1) break;
    before = sets.members(after)[0];
    node = parts(node)[1];
  }
  return true;
}

// Looks into what is pending, and carries every answer to those that wait for it, until there is no new one.
void Leaving::settle() {
  while (!pending_.empty() || !news_.empty()) {
    if (news_.empty()) {
      check_time();
      const Key key = pending_.back();
      pending_.pop_back();
      look_into(key);
      continue;
    }
    const auto [user, given] = news_.back();
    news_.pop_back();
    if (++num_news_ > max_news_) throw TooMany{};
    check_time();
    if (user.then >= 0) {
      const ObligationSets::Members members = sets.members(given);
      for (int32_t one : members) ask(user.then, one, {user.key, AS_IT_IS});
      continue;
    }
    const uint64_t key = packed(user.key.first, user.key.second);
    const int32_t all = user.then == COUNTED ? counted(user.key) : given;
    const int32_t fresh = sets.without(all, known_[key]);
    if (!fresh) continue;
    known_[key] = sets.either(known_[key], fresh);
    const auto waiting = users_.find(key);
    if (waiting == users_.end()) continue;
    for (const User& other : waiting->second) news_.push_back({other, fresh});
  }
}

// Has a user told what a node leaves, now and whenever more is known.
void Leaving::ask(int32_t node, int32_t before, const User& user) {
  if (!resolved(node, before)) return;
  if (is_terminal(node)) {
    news_.push_back({user, left_by(node, before)});
    return;
  }
  const auto [entry, is_new] = known_.try_emplace(packed(node, before));
  if (is_new) pending_.push_back({node, before});
  users_[packed(node, before)].push_back(user);
  if (entry->second) news_.push_back({user, entry->second});
}

// Asks those inside of a node.
void Leaving::look_into(Key key) {
  const auto [node, before] = key;
  const int32_t* inside = parts(node);
  switch (nodes.kinds[node]) {
    case L_RULE:
      return ask(nodes.bodies[inside[0]], before, {key, AS_IT_IS});
    case L_ALTERNATION:
      for (int32_t index = inside[0]; index < inside[1]; ++index) ask(nodes.options[index], before, {key, AS_IT_IS});
      return;
    case L_SEQUENCE:
      if (node != EMPTY_NODE) return ask(inside[0], before, {key, inside[1]});
      return news_.push_back({{key, AS_IT_IS}, sets.of_one(before)});
    default:
      if (inside[1] || inside[2] >= 0) return news_.push_back({{key, COUNTED}, 0});
      users_[packed(node, before)].push_back({key, inside[0]});  // each answer is what the next turn begins with
      return news_.push_back({{key, AS_IT_IS}, sets.of_one(before)});
  }
}

// What a repetition leaves, from what is known of its item; asks what it does not know yet.
int32_t Leaving::counted(Key key) {
  const int32_t item = parts(key.first)[0], minimum = parts(key.first)[1], maximum = parts(key.first)[2];
  int32_t here = sets.of_one(key.second), found = 0;
  std::unordered_map<int32_t, int32_t> seen;
  for (int32_t turns = 0;; ++turns) {
    if (const auto before = seen.find(here); before != seen.end() && turns < minimum) {
      const int32_t period = turns - before->second;  // it goes round: whole rounds need not be walked
      turns += (minimum - turns) / period * period;
    }
    if (turns >= minimum) {
      if (!sets.without(here, found)) return found;
      found = sets.either(found, here);
    }
    if (turns == maximum) return found;
    seen[here] = turns;
    int32_t after = 0;
    const ObligationSets::Members members = sets.members(here);
    for (int32_t one : members) {
      int32_t node = item;
      if (!resolved(node, one)) continue;
      if (is_terminal(node)) {
        after = sets.either(after, left_by(node, one));
        continue;
      }
      const std::vector<User>& waiting = users_[packed(node, one)];
      const bool is_asked = std::ranges::any_of(
          waiting, [&](const User& user) { return user.key == key && user.then == COUNTED; });
      if (!is_asked) ask(node, one, {key, COUNTED});
      after = sets.either(after, known_[packed(node, one)]);
    }
    here = after;
  }
}

int32_t Leaving::repeated(int32_t item, int32_t minimum, int32_t maximum) {
  if (!maximum) return EMPTY_NODE;
  const auto [entry, is_new] = repeats_.try_emplace({item, minimum, maximum});
  if (is_new) {
    entry->second = static_cast<int32_t>(nodes.kinds.size());
    nodes.kinds.push_back(L_REPEAT);
    nodes.parts.insert(nodes.parts.end(), {item, minimum, maximum});
    nodes.firsts.push_back(nodes.firsts[item]);
    nodes.nullable.push_back(!minimum || nodes.nullable[item]);
  }
  return entry->second;
}

// Whether obligations change nothing for whatever a node begins with, nor outlive it.
bool Leaving::is_harmless(int32_t node, int32_t before) {
  if (!before) return true;
  const uint64_t key = packed(nodes.firsts[node], before);
  const auto known = harmless_.find(key);
  if (known != harmless_.end()) return known->second;
  const bool found = terminals.is_harmless(nodes.firsts[node], before);
  harmless_[key] = found;
  return found;
}

// What a node can tell of obligations.
int32_t Leaving::seen_by(int32_t node, int32_t before) {
  const uint64_t key = packed(nodes.firsts[node], before);
  const auto known = seen_.find(key);
  if (known != seen_.end()) return known->second;
  return seen_[key] = terminals.seen_by(nodes.firsts[node], before);
}

}  // namespace phloem::fsm
