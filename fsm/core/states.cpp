#include "states.h"

#include "texts.h"

namespace phloem::fsm {

namespace {

constexpr size_t COVER_FROM = 4;  // configurations; most states have fewer, and need not be looked through

uint64_t hash_of(std::span<const int64_t> keys, bool accepts) {
  uint64_t value = keys.size() * 2 + accepts;
  for (int64_t key : keys) {
    value ^= static_cast<uint64_t>(key);
    value ^= value >> 32;  // the node is above all the bits that choose a slot
    value *= 0x9E3779B97F4A7C15u;
    value ^= value >> 32;
  }
  return value;
}

}  // namespace

States::States(const Network& of_network, Budget& budget)
    : network(of_network), stacks(budget), sets(of_network, stacks), states_(budget, FIRST_STATES),
      pool_(budget, FIRST_CONFIGURATIONS), slots_(budget, 2 * FIRST_STATES) {
  states_.push({.cost = NEVER, .row = NO_ROW, .byte = -1, .next = 0});
  states_.push({.accepts = 1, .cost = 0, .row = NO_ROW, .byte = -1, .next = 0});
  slots_.add(END, hash_of({}, true));
}

int64_t States::intern(std::vector<int64_t>& found, bool accepts) {
  if (found.empty() && !accepts) return 0;
  std::sort(found.begin(), found.end());
  if (found.size() > COVER_FROM && network.has_counts) drop_covered(network, stacks, found);
  const uint64_t hash = hash_of(found, accepts);
  const int32_t known = slots_.find(hash, [&](int32_t state) {
    const std::span<const int64_t> keys = of(state);
    return keys.size() == found.size() && (states_[state].accepts != 0) == accepts &&
           std::equal(keys.begin(), keys.end(), found.begin());
  });
  if (known) return known;
  // whatever may fail comes first: else there would be a state that is not found again
  slots_.reserve_one([&](int32_t one) { return hash_of(of(one), states_[one].accepts != 0); });
  states_.reserve_more(1);
  State added = described(found, accepts);
  added.offset = static_cast<int32_t>(pool_.size());
  pool_.append(found.data(), static_cast<int64_t>(found.size()));
  states_.push(added);
  const int64_t state = states_.size() - 1;
  slots_.add(static_cast<int32_t>(state), hash);
  return state;
}

State States::described(const std::vector<int64_t>& found, bool accepts) {
  State state{.size = static_cast<int32_t>(found.size()), .accepts = accepts, .cost = NEVER, .row = NO_ROW,
              .byte = static_cast<int32_t>(only_byte(found)), .next = -1, .key = NO_KEY};
  for (int64_t key : found) {
    const int64_t node = node_of(key), stack = stack_of(key);
    int64_t total = stacks[stack].cost;
    if (network.kinds[node] == K_TEXT) {
      const TextTable& text = network.text_at(node);
      total += text_cost(text, sub_of(key), stacks[stack].count) + network.costs[network.nexts[node]];
      if (found.size() == 1 && is_counted(text)) state.row = NEVER_A_ROW;
      if (text.is_key == A_KEY || text.is_key == AN_ITEM) state.key = sub_of(key) == text.start ? BEFORE_KEY : IN_KEY;
    } else if (network.kinds[node] == K_KEY) {
      total = sets.key_cost(network.set_at(node), stack, place_of(key));
      if (found.size() == 1) state.row = NEVER_A_ROW;
    } else {
      total += network.costs[node];
    }
    state.cost = static_cast<int32_t>(std::min<int64_t>(state.cost, total));
  }
  if (accepts) state.cost = 0;
  return state;
}

int64_t States::only_byte(const std::vector<int64_t>& found) const {
  if (found.size() != 1) return -1;
  const int64_t node = node_of(found[0]);
  if (network.kinds[node] == K_BYTE) return network.args[node];
  if (network.kinds[node] != K_KEY) return -1;
  return sets.only_byte(network.set_at(node), stack_of(found[0]), place_of(found[0]));
}

}  // namespace phloem::fsm
