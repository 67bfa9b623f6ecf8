#include "written.h"

#include "texts.h"
#include "trie_walk.h"

namespace phloem::fsm {

namespace {

// A_KEY or AN_ITEM if a quote ends one that has to be remembered, or 0; the state stands in one.
int64_t ending_key(const Automaton& automaton, int64_t state) {
  const Network& network = automaton.states.network;
  for (int64_t key : automaton.states.of(state)) {
    const int64_t node = node_of(key);
    if (network.kinds[node] != K_TEXT) continue;
    const TextTable& text = network.text_at(node);
    if (!text.is_key) continue;
    const int64_t after = text_step(text, sub_of(key), QUOTE, automaton.states.count_of(key));
    if (after && after % text.num_nodes == 0 && text.accepts[after / text.num_nodes]) return text.is_key;
  }
  return 0;
}

// Whether a byte is a bracket or a comma of a list whose items must differ, in some reading.
bool is_edge(const Automaton& automaton, int64_t state, uint8_t byte) {
  if (byte != LEFT_BRACKET && byte != RIGHT_BRACKET && byte != COMMA) return false;
  const Network& network = automaton.states.network;
  for (int64_t key : automaton.states.of(state)) {
    const int64_t node = node_of(key);
    if (network.kinds[node] != K_TEXT) continue;
    const TextTable& text = network.text_at(node);
    if (text.is_key == AN_EDGE && text_step(text, sub_of(key), byte, automaton.states.count_of(key))) return true;
  }
  return false;
}

struct Reading {
  int64_t state;
  Mode mode;
  KeyEvent event;
};

// Reads a byte: the state after it (0: refused), the mode there, which is noted, and what has happened.
Reading read(Automaton& automaton, int64_t before, uint8_t byte, Mode mode) {
  Reading found{automaton.step(before, byte), mode, KeyEvent::NOTHING};
  if (found.state == 0) return found;
  if (mode != ESCAPE && ends_key(automaton, before, byte, found.state)) {
    found.mode = IN_STRING;  // whatever was known: a string ends
    found.event = ending_key(automaton, before) == A_KEY ? KeyEvent::KEY_ENDS : KeyEvent::ITEM_ENDS;
  }
  const bool at_edge = (mode == OUTSIDE || mode == UNKNOWN) && is_edge(automaton, before, byte);
  if (at_edge) found.mode = OUTSIDE;
  switch (found.mode) {
    case OUTSIDE:
      if (byte == QUOTE) found.mode = IN_STRING;
      if (byte == LEFT_BRACE || byte == LEFT_BRACKET) found.event = at_edge ? KeyEvent::LIST_OPENS : KeyEvent::OPENS;
      if (byte == RIGHT_BRACE || byte == RIGHT_BRACKET) found.event = KeyEvent::CLOSES;
      if (at_edge && byte != LEFT_BRACKET) found.event = KeyEvent::VALUE_ENDS;  // before a bracket that closes as well
      break;
    case IN_STRING:
      if (byte == QUOTE) found.mode = OUTSIDE;
      if (byte == BACKSLASH) found.mode = ESCAPE;
      break;
    case ESCAPE: found.mode = IN_STRING; break;
    case UNKNOWN: return found;
  }
  note_mode(automaton, found.state, found.mode);
  return found;
}

// Whether a quote may end an item as one that its list has, since the text can be read as another list.
bool may_repeat(Automaton& automaton, int64_t state) {
  const int64_t others = automaton.without_texts(state, AN_ITEM);
  return others != 0 && others != state && automaton.step(others, QUOTE) != 0;
}

}  // namespace

Mode mode_of(const Automaton& automaton, int64_t state) {
  return static_cast<Mode>(automaton.states[state].key >> PLACE_BITS);
}

void note_mode(Automaton& automaton, int64_t state, Mode mode) {
  int32_t& key = automaton.states[state].key;
  key = (key & PLACE_MASK) | mode << PLACE_BITS;
}

KeyStep follow_keys(Automaton& automaton, int64_t state, Bytes data, bool has_keys) {
  KeyStep found{state};
  Mode mode = has_keys ? mode_of(automaton, state) : UNKNOWN;
  for (size_t position = 0; position < data.size(); ++position) {
    const bool was_in_key = is_in_key(automaton, found.state);
    const Reading reading = read(automaton, found.state, data[position], mode);
    found.state = reading.state;
    mode = reading.mode;
    if (found.state == 0) break;
    if (is_in_key(automaton, found.state) && !was_in_key) found.begin = static_cast<int64_t>(position) + 1;
    if (reading.event == KeyEvent::NOTHING) continue;
    const bool ends = reading.event == KeyEvent::KEY_ENDS || reading.event == KeyEvent::ITEM_ENDS;
    const int32_t place = static_cast<int32_t>(position);
    found.events.push_back({reading.event, ends ? static_cast<int32_t>(found.begin) : 0, place});
    if (reading.event == KeyEvent::VALUE_ENDS && data[position] == RIGHT_BRACKET) {
      found.events.push_back({KeyEvent::CLOSES, 0, place});
    }
  }
  return found;
}

int64_t advance_keys(Automaton& automaton, int64_t state, int64_t token, bool has_keys) {
  const Bytes bytes = automaton.vocabulary.bytes_of(token);
  if (bytes.empty()) return 0;
  Mode mode = has_keys ? mode_of(automaton, state) : UNKNOWN;
  for (uint8_t byte : bytes) {
    const Reading reading = read(automaton, state, byte, mode);
    if (reading.state == 0) return 0;
    if (reading.event != KeyEvent::NOTHING) return -1;
    state = reading.state;
    mode = reading.mode;
  }
  return state;
}

KeysLeft keys_left(Automaton& automaton, int64_t state, std::span<const Bytes> texts, bool with_cuts) {
  struct Node {
    int64_t state;  // 0: a key ends here
    size_t first, last, depth, above;
    bool is_alive = false;
  };
  KeysLeft found{false, {}};
  std::vector<Node> nodes{{state, 0, texts.size(), 0, 0}};
  for (size_t index = 0; index < nodes.size(); ++index) {
    const Node node = nodes[index];
    if (node.state == 0) continue;
    uint8_t live[256];
    int num_others = automaton.live_bytes(node.state, live);
    for (size_t first = node.first, last = first; first < node.last; first = last) {
      const uint8_t byte = texts[first][node.depth];
      while (last < node.last && texts[last][node.depth] == byte) ++last;
      if (!live[byte]) continue;
      const bool ends = texts[first].size() == node.depth + 1;
      num_others -= !ends || !may_repeat(automaton, node.state);
      nodes.push_back({ends ? 0 : automaton.step(node.state, byte), first, last, node.depth + 1, index});
    }
    nodes[index].is_alive = num_others > 0;
    found.is_alive |= num_others > 0;
    if (found.is_alive && !with_cuts) return found;
  }
  for (size_t index = nodes.size(); --index > 0;) nodes[nodes[index].above].is_alive |= nodes[index].is_alive;
  for (const Node& node : nodes) {
    if (!node.is_alive && nodes[node.above].is_alive) found.cuts.push_back(texts[node.first].first(node.depth));
  }
  return found;
}

void clear_below(const TokenTrie& trie, Bytes path, int32_t* bits) {
  int64_t node = trie.roots[path[0]];
  for (size_t index = 1; node >= 0 && index < path.size(); ++index) node = child_of(trie, node, path[index]);
  if (node >= 0) clear_tokens(trie, node, trie.ends[node], bits);
}

bool is_in_key(const Automaton& automaton, int64_t state) {
  return (automaton.states[state].key & PLACE_MASK) == IN_KEY;
}

bool ends_key(const Automaton& automaton, int64_t state, uint8_t byte, int64_t target) {
  return byte == QUOTE && is_in_key(automaton, state) && !is_in_key(automaton, target) && ending_key(automaton, state);
}

}  // namespace phloem::fsm
