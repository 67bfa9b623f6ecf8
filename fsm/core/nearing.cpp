#include "nearing.h"

#include "texts.h"

namespace phloem::fsm {

namespace {

constexpr int NUM_BYTES = 256;

// The bytes in the order in which one is chosen: the space, then the small letters, of which long runs are tokens.
constexpr int byte_of(int turn) { return turn == 0 ? 0x20 : (0x60 + turn) & 0xFF; }

// Whether a byte brings the end of a text nearer that is `inside` bytes away.
bool is_nearing(const TextTable& text, int64_t sub, int byte, int64_t count, int64_t inside) {
  const int64_t after = text_step(text, sub, byte, count);
  if (after == 0) return false;
  return text_cost(text, after, after % text.num_nodes == 0 ? next_count(text, count) : count) < inside;
}

// Sets flags[b] to 1 for bytes on a shortest way to acceptance: all of them, or in keys in any order one.
void mark_nearing(Automaton& automaton, int64_t state, uint8_t (&flags)[256]) {
  const Network& network = automaton.states.network;
  const int64_t whole = automaton.states[state].cost;
  for (int64_t key : automaton.states.of(state)) {
    const int64_t node = node_of(key), stack = stack_of(key);
    const int32_t arg = network.args[node];
    const int64_t left = whole - automaton.states.stacks[stack].cost;
    switch (network.kinds[node]) {
      case K_BYTE:
        if (network.costs[node] <= left) flags[arg] = 1;
        break;
      case K_BYTES:
        if (network.costs[node] > left) break;
        for (int byte = 0; byte < 256; ++byte) flags[byte] |= network.has_byte(arg, byte);
        break;
      case K_KEY: {
        const Set& set = network.sets[arg];
        if (automaton.states.sets.key_cost(set, stack, place_of(key)) > whole) break;
        flags[automaton.states.sets.cheapest_byte(set, stack, place_of(key))] = 1;
        break;
      }
      default: {
        const TextTable& text = network.texts[arg];
        const int64_t count = automaton.states.count_of(key), inside = text_cost(text, sub_of(key), count);
        if (inside + network.costs[network.nexts[node]] > left) break;
        for (int byte = 0; byte < 256; ++byte) {
          if (!flags[byte]) flags[byte] = is_nearing(text, sub_of(key), byte, count, inside);
        }
      }
    }
  }
}

// The first byte in a text that brings its end nearer, if the state stands in nothing else; -1: another one is needed.
int nearing_byte_of_text(const Automaton& automaton, int64_t state) {
  const Network& network = automaton.states.network;
  const std::span<const int64_t> keys = automaton.states.of(state);
  if (keys.size() != 1 || network.kinds[node_of(keys[0])] != K_TEXT) return -1;
  const TextTable& text = network.text_at(node_of(keys[0]));
  const int64_t count = automaton.states.count_of(keys[0]), inside = text_cost(text, sub_of(keys[0]), count);
  for (int turn = 0; turn <= NUM_BYTES; ++turn) {
    if (is_nearing(text, sub_of(keys[0]), byte_of(turn), count, inside)) return byte_of(turn);
  }
  return -1;
}

}  // namespace

bool is_nearer(const Automaton& automaton, int64_t target, int64_t state) {
  return target > 0 && automaton.states[target].cost < automaton.states[state].cost;
}

Step step_nearer(Automaton& automaton, int64_t state) {
  int byte = automaton.states[state].byte;
  if (byte < 0) byte = nearing_byte_of_text(automaton, state);
  if (byte >= 0) return {byte, automaton.step(state, byte)};
  uint8_t flags[256] = {};
  mark_nearing(automaton, state, flags);
  Step found{0, 0};
  for (int turn = 0; turn <= NUM_BYTES; ++turn) {
    if (!flags[byte_of(turn)]) continue;
    found = {byte_of(turn), automaton.step(state, byte_of(turn))};
    if (is_nearer(automaton, found.state, state)) break;
  }
  return found;
}

}  // namespace phloem::fsm
