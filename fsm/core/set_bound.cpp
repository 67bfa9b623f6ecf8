// How many tokens suffice where many keys must be written in any order (part of `Search`).
//
// There are 2^n sets of n keys that may be missing, too many to search from each. But what a key costs does not depend
// on the others, if a token may end after the quote that opens each of them:
//
//     {"  id":7,"  name":"","  note":""}        the set is "cut" where the quote of a key has been read
//       └ part ─┘└─ part ──┘└── rest ──┘
//
//     bound(set) = the parts of its keys but the last few  +  bound(set of the last few)
//
// A part is found once for each key: the least number of tokens from a set of this key and another one to the set of
// the other one, on a stack of its own. It is an upper bound where some token goes on beyond the quote. The last keys
// are searched to the end of the text: FEW of them, or only one where the end is far away. To find a part all keys are
// looked at, and a stack of all of them is kept; so with thousands of keys (`parts_work`) those that follow count a token
// for each byte.
//
// From each set some token leads nearer by one: writing the first key takes what its part says, and leaves a set whose
// bound is less by that. All of this holds for sets whose keys are told apart after their first byte, of which no
// number is demanded beyond the required ones, and whose keys imply no others; and where no other set begins at the
// same place.
#include "search.h"

namespace phloem::fsm {

namespace {

constexpr int64_t FEW = 4;
constexpr int64_t FAR = 256;          // bytes to the end of the text
constexpr int64_t MANY_OWED = 12;     // where the sets cannot be cut: beyond that each byte counts as a token
constexpr int64_t APART = -7;         // the count of the frame at the bottom of a stack on which a part is found

}  // namespace

// 1 + a number of tokens that suffices if a search ends at the state, 0 if it does not.
int64_t Search::bound_at_cut(int64_t state) {
  const Network& network = automaton_.states.network;
  int64_t key = -1, num_keys = 0;
  for (int64_t one : automaton_.states.of(state)) {
    if (network.kinds[node_of(one)] != K_KEY) continue;
    key = one;
    ++num_keys;
  }
  if (key < 0) return 0;
  const Set& set = network.set_at(node_of(key));
  const int64_t top = stack_of(key), place = place_of(key), cost = automaton_.states[state].cost;
  if (automaton_.states.sets.key_cost(set, top, place) > cost) return 0;  // something else is nearer to the end
  if (num_keys == 1 && can_be_cut(set)) {
    return place == 1 && is_cut(set, top) ? std::min(sum_of_parts(set, top), cost + 1) : 0;
  }
  return place == 0 && automaton_.states.sets.num_owed(set, top) > MANY_OWED ? cost + 1 : 0;
}

// Whether the keys of a set may be counted one by one, whatever has been written of it.
bool Search::can_be_cut(const Set& set) const {
  const Network& network = automaton_.states.network;
  if (set.missing || set.num_texts < set.num_members) return false;
  const KeyNode& root = network.tries[set.trie];
  if (root.num_edges != 1 || network.edges[root.edges].target != set.trie + 1) return false;
  return std::all_of(&network.member(set, 0), &network.member(set, set.num_members),
                     [](const Member& member) { return member.num_implied == 0; });
}

// Whether so many keys are owed that not all of them are the last few.
bool Search::is_cut(const Set& set, int64_t top) const {
  const int64_t count = automaton_.states.sets.num_owed(set, top);
  return count > FEW || (count > 1 && automaton_.states.stacks[top].cost > FAR);
}

// The first of the last few members owed, and the last one; leaves the set unpacked.
std::pair<int64_t, int64_t> Search::rest_of(const Set& set, int64_t top) {
  Sets& sets = automaton_.states.sets;
  const Network& network = automaton_.states.network;
  sets.unpack(set, top);
  int64_t cost = automaton_.states.stacks[top].cost;
  for (int32_t member = 0; member < set.num_members; ++member) {
    if (sets.unpacked.is_owed(member)) cost -= network.member(set, member).cost;
  }
  int64_t first = -1, last = -1, num_taken = 0;
  for (int64_t member = set.num_members - 1; member >= 0 && num_taken < FEW; --member) {
    if (!sets.unpacked.is_owed(member)) continue;
    cost += network.member(set, member).cost;
    if (num_taken > 0 && cost > FAR) break;
    first = member;
    if (num_taken++ == 0) last = member;
  }
  return {first, last};
}

// 1 + the bound of a set that is cut.
int64_t Search::sum_of_parts(const Set& set, int64_t top) {
  Sets& sets = automaton_.states.sets;
  const auto [first, last] = rest_of(set, top);
  int64_t total = 0;
  for (int64_t member = 0; member < first; ++member) {
    if (!sets.unpacked.is_owed(member)) continue;
    if (parts_[set.members + member] == 0) {
      find_part(set, top, member, last);
      sets.unpack(set, top);
    }
    total += parts_[set.members + member];
  }
  const int64_t below = sets.unpack(set, top);
  for (int64_t member = 0; member < first; ++member) {
    if (sets.unpacked.is_owed(member)) strike(set, member);
  }
  const int64_t rest = state_of_unpacked(set, below);
  if (least_[rest] <= 0) throw NeedBound{rest};
  return total + least_[rest];
}

// Finds the part of a member.
void Search::find_part(const Set& set, int64_t top, int64_t member, int64_t last) {
  Sets& sets = automaton_.states.sets;
  int32_t& part = parts_[set.members + member];
  const int32_t cost = automaton_.states.network.member(set, member).cost;
  if (parts_left_ < set.num_members) {
    part = cost;
    return;
  }
  parts_left_ -= set.num_members;
  const int64_t below = automaton_.states.stacks.push(set.node, APART, 0, 0, 0);
  sets.unpack(set, top);
  for (int64_t other = 0; other < set.num_members; ++other) {
    if (other != member && other != last) strike(set, other);
  }
  const int64_t pair = state_of_unpacked(set, below);
  sets.unpack(set, top);
  for (int64_t other = 0; other < set.num_members; ++other) {
    if (other != last) strike(set, other);
  }
  const int64_t end = state_of_unpacked(set, below);
  if (least_[pair] <= 0) {
    set_least(end, 1);
    ways_[end] = CUT;
    throw NeedBound{pair};
  }
  part = std::min(least_[pair] - 1, cost);
}

// As if a member of the set that is unpacked had been written.
void Search::strike(const Set& set, int64_t member) {
  Unpacked& unpacked = automaton_.states.sets.unpacked;
  const Network& network = automaton_.states.network;
  unpacked.word_of(member).blocked |= bit_of(member);
  unpacked.word_of(member).owed &= ~bit_of(member);
  const Member& record = network.member(set, member);
  for (int32_t index = record.excluded; index < record.excluded + record.num_excluded; ++index) {
    unpacked.word_of(network.lists[index]).blocked |= bit_of(network.lists[index]);
  }
}

// The state after the quote that opens a key of the set that is unpacked.
int64_t Search::state_of_unpacked(const Set& set, int64_t below) {
  const Network& network = automaton_.states.network;
  const int64_t stack = automaton_.states.sets.pack(set, below);
  const int64_t state = automaton_.enter(set.key, stack);
  const int64_t target = automaton_.step(state, network.edges[network.tries[set.trie].edges].byte);
  fit();
  return target;
}

}  // namespace phloem::fsm
