#include "items.h"

#include "nearing.h"

namespace phloem::fsm {

namespace {

// Whether a byte is read in some reading as one with a role.
bool has_role(const Automaton& automaton, Bytes roles, int64_t state, uint8_t byte, Role role) {
  const Network& network = automaton.states.network;
  for (int64_t key : automaton.states.of(state)) {
    const int32_t arg = network.args[node_of(key)];
    if (network.kinds[node_of(key)] == K_BYTES && (roles[arg] & role) && network.has_byte(arg, byte)) return true;
  }
  return false;
}

struct Reading {
  ItemEvent event;
  Mode mode;
};

// What a byte does outside of strings.
ItemEvent event_of(const Automaton& automaton, Bytes roles, int64_t state, uint8_t byte) {
  auto has = [&](Role role) { return has_role(automaton, roles, state, byte, role); };
  switch (byte) {
    case LEFT_BRACKET: return has(OPENS_LIST) ? ItemEvent::LIST_OPENS : ItemEvent::OPENS;
    case LEFT_BRACE: return ItemEvent::OPENS;
    case RIGHT_BRACKET: return has(ENDS_ITEM) ? ItemEvent::LIST_ENDS : ItemEvent::CLOSES;
    case RIGHT_BRACE: return ItemEvent::CLOSES;
    case COMMA: return has(ENDS_ITEM) ? ItemEvent::ITEM_ENDS : ItemEvent::NOTHING;
    default: return ItemEvent::NOTHING;
  }
}

// What a byte does, and the mode behind it.
Reading read(const Automaton& automaton, Bytes roles, int64_t state, uint8_t byte, Mode mode) {
  switch (mode) {
    case UNKNOWN:
      if (byte != LEFT_BRACKET || !has_role(automaton, roles, state, byte, OPENS_LIST)) {
        return {ItemEvent::NOTHING, UNKNOWN};
      }
      return {ItemEvent::LIST_OPENS, OUTSIDE};
    case OUTSIDE: return {event_of(automaton, roles, state, byte), byte == QUOTE ? IN_STRING : OUTSIDE};
    case IN_STRING:
      return {ItemEvent::NOTHING, byte == QUOTE ? OUTSIDE : byte == BACKSLASH ? ESCAPE : IN_STRING};
    default: return {ItemEvent::NOTHING, IN_STRING};
  }
}

uint8_t item_end_of(Automaton& automaton, Bytes roles, int64_t state, Mode mode, int64_t token) {
  uint8_t found = NO_END;
  for (uint8_t byte : automaton.vocabulary.bytes_of(token)) {
    const Reading reading = read(automaton, roles, state, byte, mode);
    const bool ends = reading.event == ItemEvent::ITEM_ENDS || reading.event == ItemEvent::LIST_ENDS;
    if (found && (ends || (found == ENDS_LAST && byte == LEFT_BRACKET))) return ENDS_MORE;
    if (ends) found = reading.event == ItemEvent::ITEM_ENDS ? ENDS_ONE : ENDS_LAST;
    mode = reading.mode;
    state = automaton.step(state, byte);
    if (state == 0) break;
  }
  return found;
}

}  // namespace

ItemScan scan_items(Automaton& automaton, Bytes roles, int64_t state, Bytes data, Mode mode) {
  ItemScan found{state, mode, {}};
  for (size_t position = 0; position < data.size() && found.state; ++position) {
    const Reading reading = read(automaton, roles, found.state, data[position], found.mode);
    found.mode = reading.mode;
    if (reading.event != ItemEvent::NOTHING) {
      found.events.push_back({reading.event, static_cast<int32_t>(position), static_cast<int32_t>(found.state)});
    }
    found.state = automaton.step(found.state, data[position]);
  }
  return found;
}

std::vector<uint8_t> ending_tokens(Automaton& automaton, Bytes roles, int64_t state, Mode mode, Ints tokens) {
  std::vector<uint8_t> found;
  for (int32_t token : tokens) found.push_back(item_end_of(automaton, roles, state, mode, token));
  return found;
}

int64_t items_to_go(Automaton& automaton, Bytes roles, int64_t state) {
  int64_t count = 0;
  while (!automaton.states[state].accepts) {
    const Step step = step_nearer(automaton, state);
    if (step.byte == COMMA && has_role(automaton, roles, state, COMMA, ENDS_ITEM)) ++count;
    // what is left is not known byte by byte?
    if (automaton.states[step.state].cost >= automaton.states[state].cost) break;
    state = step.state;
  }
  return count;
}

int64_t without_ends(Automaton& automaton, Bytes roles, int64_t state) {
  const Network& network = automaton.states.network;
  std::vector<int64_t> found;
  for (int64_t key : automaton.states.of(state)) {
    const int64_t node = node_of(key);
    if (network.kinds[node] != K_BYTES || !(roles[network.args[node]] & ENDS_ITEM)) found.push_back(key);
  }
  return automaton.states.intern(found, false);
}

}  // namespace phloem::fsm
