#include "closure.h"

#include "texts.h"

namespace phloem::fsm {

namespace {

constexpr size_t MAX_CLOSURE = 1 << 16;  // configurations that one byte may lead to, with those on the way to them
constexpr int64_t FIRST_TEXT_STATE = 0;  // as `sub`: "enter the text"

size_t slot_of(int64_t key) {
  const uint64_t mixed_key = static_cast<uint64_t>(key ^ (key >> 29)) * 0x9E3779B97F4A7C1u;
  return mixed_key ^ (mixed_key >> 32);
}

}  // namespace

Closure::Closure(States& states, Scratch& scratch)
    : states_(states), network_(states.network), stacks_(states.stacks), sets_(states.sets), scratch_(scratch) {
  ++scratch_.stamp;
  scratch_.work.clear();
  scratch_.found.clear();
  scratch_.calls.clear();
}

void Closure::visit(int64_t node, int64_t sub, int64_t stack) {
  if (network_.costs[node] >= NEVER) return;
  const int64_t key = configuration(node, sub, stack);
  const size_t mask = scratch_.seen.size() - 1;
  size_t slot = slot_of(key) & mask;
  for (; scratch_.seen[slot].stamp == scratch_.stamp; slot = (slot + 1) & mask) {
    if (scratch_.seen[slot].key == key) return;
  }
  if (scratch_.work.size() >= MAX_CLOSURE) {
    throw TooLarge("some byte can be read in more than " + std::to_string(MAX_CLOSURE) +
                   " ways at once; nest fewer repetitions, and let alternatives begin differently");
  }
  scratch_.seen[slot] = {key, scratch_.stamp};
  scratch_.work.push_back(key);
  if (2 * scratch_.work.size() > scratch_.seen.size()) grow();
}

void Closure::grow() {
  std::vector<Scratch::Visit>(4 * scratch_.seen.size()).swap(scratch_.seen);
  const size_t mask = scratch_.seen.size() - 1;
  for (int64_t key : scratch_.work) {
    size_t slot = slot_of(key) & mask;
    while (scratch_.seen[slot].stamp == scratch_.stamp) slot = (slot + 1) & mask;
    scratch_.seen[slot] = {key, scratch_.stamp};
  }
}

int64_t Closure::close() {
  size_t done = 0;
  do {
    for (; done < scratch_.work.size(); ++done) follow(scratch_.work[done]);
    enter_rules();
  } while (done < scratch_.work.size());
  return states_.intern(scratch_.found, accepts_);
}

void Closure::follow(int64_t key) {
  const int64_t node = node_of(key), stack = stack_of(key);
  const int32_t arg = network_.args[node], next = network_.nexts[node];
  switch (network_.kinds[node]) {
    case K_BYTE:
    case K_BYTES: return find_key(key);
    case K_TEXT: return enter_text(key);
    case K_SPLIT:
      for (int32_t option = arg; option < arg + next; ++option) visit(network_.options[option], stack);
      return;
    case K_CALL: return call(node, stack);
    case K_LOOP: return turn(node, 0, stack);
    case K_SET: {
      const Set& set = network_.sets[arg];
      return visit(set.key, sets_.open(set, stack));
    }
    case K_KEY: return enter_key(key);
    default:  // K_RETURN
      if (stack) return leave(node, stack);
      accepts_ = true;
  }
}

void Closure::enter_text(int64_t key) {
  const int64_t node = node_of(key);
  const TextTable& text = network_.text_at(node);
  int64_t sub = sub_of(key), stack = stack_of(key), count = 0, outer = stack;
  if (sub == FIRST_TEXT_STATE) {
    sub = text.start;
    if (is_counted(text)) stack = stacks_.push_count(node, 0, stack);
    key = configuration(node, sub, stack);
  }
  if (is_counted(text)) {
    count = stacks_[stack].count;
    outer = stacks_[stack].parent;
  }
  const int64_t state = sub / text.num_nodes;
  if (sub % text.num_nodes) return find_key(key);
  if (is_alive(text, state, 0, count)) find_key(key);
  if (text.accepts[state] && (!is_counted(text) || count >= text.min_length)) visit(network_.nexts[node], outer);
}

void Closure::enter_key(int64_t key) {
  const int64_t node = node_of(key), stack = stack_of(key), place = place_of(key);
  const Set& set = network_.set_at(node);
  if (place < 0) return begin_member(node, stack);
  if (sets_.goes_on(set, stack, place)) find_key(key);
  const int64_t member = sets_.member_that_ends(set, stack, place);
  if (member >= 0) enter_member(set, stack, member);
}

void Closure::call(int64_t node, int64_t stack) {
  const int64_t entry = network_.args[node], after = network_.nexts[node];
  if (network_.kinds[after] == K_RETURN) return visit(entry, stack);
  const int64_t total = int64_t{network_.costs[after]} + stacks_[stack].cost;
  scratch_.calls.push_back(configuration(entry, 0, stacks_.push(after, 0, 0, stack, total)));
}

void Closure::enter_rules() {
  std::vector<int64_t>& calls = scratch_.calls;
  std::sort(calls.begin(), calls.end());  // those of a rule then lie together
  for (size_t first = 0, after = 0; first < calls.size(); first = after) {
    const int64_t entry = node_of(calls[first]);
    while (after < calls.size() && node_of(calls[after]) == entry) ++after;
    visit(entry, join({calls.data() + first, after - first}));
  }
  calls.clear();
}

// The stack that stands for those of sorted calls of one rule: each of them at once (Tomita 1985).
//
// Where a text can be read in two ways at every depth of a recursion, there are 2^depth stacks, and yet few frames. A
// joint is a list of frames of calls, newest first: (JOINT, stack with the frame, 0) on top of the rest of the list. So
// equal lists are one stack, and a list that has grown shares what it was.
int64_t Closure::join(std::span<const int64_t> calls) {
  int64_t stack = stack_of(calls[0]);
  for (size_t index = 1; index < calls.size(); ++index) {
    if (calls[index] == calls[index - 1]) continue;
    const int64_t other = stack_of(calls[index]);
    stack = stacks_.push(JOINT, other, 0, stack, std::min(stacks_[other].cost, stacks_[stack].cost));
  }
  return stack;
}

// Goes on after what has ended at the node `end`: a rule, a turn of a loop, a member of a set, or a separator.
void Closure::leave(int64_t end, int64_t stack) {
  const Frame frame = stacks_[stack];
  if (frame.node == JOINT) {  // the calls that other joints have in common with this one are returned to once
    visit(end, frame.parent);
    const Frame& other = stacks_[frame.count];
    return visit(other.node, other.parent);
  }
  switch (network_.kinds[frame.node]) {
    case K_LOOP: return turn(frame.node, frame.count, frame.parent);
    case K_SET: return after_member(frame.node, stack);
    default: return visit(frame.node, frame.parent);
  }
}

// A loop after `count` turns: may end if that is enough, may turn again if that is allowed.
void Closure::turn(int64_t node, int64_t count, int64_t stack) {
  const Loop& loop = network_.loops[network_.args[node]];
  const int64_t after = network_.nexts[node];
  if (count >= loop.minimum) visit(after, stack);
  if (loop.maximum >= 0 && count >= loop.maximum) return;
  // without a maximum all turns beyond the minimum are alike
  const int64_t turns = loop.maximum >= 0 ? count + 1 : std::min<int64_t>(count + 1, loop.minimum);
  const int64_t left = std::max<int64_t>(loop.minimum - turns, 0) * loop.cost;
  visit(loop.entry, stacks_.push(node, turns, 0, stack, int64_t{network_.costs[after]} + stacks_[stack].cost + left));
}

// A set after a member: may end if nothing is owed, may go on if something can be written.
void Closure::after_member(int64_t node, int64_t top) {
  const Set& set = network_.set_at(node);
  if (sets_.may_end(set, top)) visit(network_.nexts[node], sets_.below(set, top));
  if (sets_.is_any_open(set, top, 0, set.num_members) || sets_.may_write_others(set, top)) {
    visit(set.separator, stacks_.push(set.key, 0, 0, top, sets_.cost_of_going_on(set, top)));
  }
}

// Where something must be written: the root of the trie, members without a text, and others.
void Closure::begin_member(int64_t node, int64_t top) {
  const Set& set = network_.set_at(node);
  if (sets_.is_any_open(set, top, 0, set.num_texts)) visit(set.key, 1, top);
  for (int64_t member = set.num_texts; member < set.num_members; ++member) {
    if (sets_.is_any_open(set, top, member, member + 1)) enter_member(set, top, member);
  }
  if (!sets_.may_write_others(set, top)) return;
  const int64_t stack = sets_.write(set, top, -1);
  for (int32_t other = set.others; other < set.others + set.num_others; ++other) visit(network_.options[other], stack);
}

void Closure::enter_member(const Set& set, int64_t top, int64_t member) {
  visit(network_.member(set, member).entry, sets_.write(set, top, member));
}

}  // namespace phloem::fsm
