#include "nearing.h"

#include "texts.h"

namespace phloem::fsm {

namespace {

constexpr int MANY_BYTES = 32;          // so many may follow where a text needs many characters of any kind
constexpr int64_t WIDE_WORK = 1 << 16;  // nodes of the trie: a text is written in all ways only so near to its end
constexpr int SPACE = 0x20;

// Whether a byte brings the end of a text nearer that is `inside` bytes away.
bool is_nearing(const TextTable& text, int64_t sub, int byte, int64_t count, int64_t inside) {
  const int64_t after = text_step(text, sub, byte, count);
  if (after == 0) return false;
  return text_cost(text, after, after % text.num_nodes == 0 ? next_count(text, count) : count) < inside;
}

// The first byte from the space on whose flag is set; the last one before it if there is none.
int first_of(const uint8_t* flags) {
  int byte = SPACE;
  while (byte < SPACE + 255 && !flags[byte & 0xFF]) ++byte;
  return byte & 0xFF;
}

}  // namespace

int nearing_bytes(Automaton& automaton, int64_t state, uint8_t* flags) {
  const Network& network = automaton.states.network;
  const int64_t levels = WIDE_WORK / automaton.vocabulary.whole.size, whole = automaton.states[state].cost;
  int way = ALL;
  bool is_far = false;
  std::fill_n(flags, 256, 0);
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
        way = static_cast<int>(automaton.states.sets.cheapest_byte(set, stack, place_of(key)));
        flags[way] = 1;
        break;
      }
      default: {
        const TextTable& text = network.texts[arg];
        const int64_t count = automaton.states.count_of(key), inside = text_cost(text, sub_of(key), count);
        if (inside + network.costs[network.nexts[node]] > left) break;
        is_far |= inside > levels;
        for (int byte = 0; byte < 256; ++byte) {
          if (!flags[byte]) flags[byte] = is_nearing(text, sub_of(key), byte, count, inside);
        }
      }
    }
  }
  if (way == ALL && is_far && std::count(flags, flags + 256, 1) > MANY_BYTES) way = first_of(flags);
  return way;
}

int first_nearing_byte(Automaton& automaton, int64_t state, uint8_t* flags) {
  const Network& network = automaton.states.network;
  const std::span<const int64_t> keys = automaton.states.of(state);
  const int64_t key = keys[0], node = node_of(key);
  if (keys.size() == 1 && network.kinds[node] == K_TEXT) {
    const TextTable& text = network.text_at(node);
    const int64_t count = automaton.states.count_of(key), inside = text_cost(text, sub_of(key), count);
    for (int byte = SPACE; byte < SPACE + 256; ++byte) {
      if (is_nearing(text, sub_of(key), byte & 0xFF, count, inside)) return byte & 0xFF;
    }
  }
  const int way = nearing_bytes(automaton, state, flags);
  return way == ALL ? first_of(flags) : way;
}

}  // namespace phloem::fsm
