#include "automaton.h"

#include "texts.h"

namespace phloem::fsm {

Automaton::Automaton(const Network& network, Vocabulary& of_vocabulary, int64_t max_bytes)
    : vocabulary(of_vocabulary), budget(max_bytes), states(network, budget), rows(states, budget), start(0) {}

Scratch& Automaton::scratch() {
  if (!scratch_) scratch_ = vocabulary.borrow();
  return *scratch_;
}

// ---------------------------------------------------------------- moving

int64_t Automaton::step(int64_t state, int64_t byte) {
  if (state == 0) return 0;
  const State& here = states[state];
  if (here.byte >= 0) {
    if (here.byte != byte) return 0;
    if (here.next >= 0) return here.next;
    const int64_t target = read(state, byte);
    states[state].next = static_cast<int32_t>(target);
    return target;
  }
  if (here.row == NEVER_A_ROW) return read(state, byte);
  const Row& row = here.row >= 0 ? rows[here.row] : rows.add(state);
  if (row.targets[byte] >= 0) return row.targets[byte];
  const int64_t target = read(state, byte);
  // the row is gone if states took its memory meanwhile
  if (states[state].row >= 0) rows[states[state].row].targets[byte] = static_cast<int32_t>(target);
  return target;
}

int64_t Automaton::advance(int64_t state, int64_t token) {
  const Bytes bytes = vocabulary.bytes_of(token);
  return bytes.empty() ? 0 : advance_bytes(state, bytes);
}

int64_t Automaton::advance_bytes(int64_t state, Bytes data) {
  for (uint8_t byte : data) {
    state = step(state, byte);
    if (state == 0) break;
  }
  return state;
}

// The state after a byte, from the configurations.
int64_t Automaton::read(int64_t state, int64_t byte) {
  if (allowance_ < 0 && is_bounded()) throw OutOfWork();
  if (breath < 0) throw OutOfBreath();
  Closure closure(states, scratch());
  const int32_t size = states[state].size;
  for (int32_t index = 0; index < size; ++index) read_configuration(closure, states.of(state)[index], byte);
  const int64_t target = closure.close();
  spend(1 + size + closure.num_visited());
  rows.fit();
  return target;
}

bool Automaton::read_configuration(Closure& closure, int64_t key, int64_t byte) {
  const Network& network = states.network;
  const int64_t node = node_of(key), sub = sub_of(key);
  int64_t stack = stack_of(key);
  const int32_t arg = network.args[node], next = network.nexts[node];
  switch (network.kinds[node]) {
    case K_BYTE:
      if (arg != byte) return false;
      closure.visit(next, stack);
      return true;
    case K_BYTES:
      if (!network.has_byte(arg, byte)) return false;
      closure.visit(next, stack);
      return true;
    case K_KEY: {
      const Set& set = network.sets[arg];
      const int64_t target = states.sets.key_step(set, stack, place_of(key), byte);
      if (target == UNBOUNDED) return false;
      if (target < 0) {
        closure.enter_member(set, stack, ~target);
      } else {
        closure.visit(node, target + 1, stack);
      }
      return true;
    }
    default: {
      const TextTable& text = network.texts[arg];
      const int64_t count = states.count_of(key), target = text_step(text, sub, byte, count);
      if (target == 0) return false;
      if (is_counted(text) && target % text.num_nodes == 0) {
        stack = states.stacks.push_count(node, next_count(text, count), states.stacks[stack].parent);
      }
      closure.visit(node, target, stack);
      return true;
    }
  }
}

int64_t Automaton::enter(int64_t node, int64_t stack) {
  Closure closure(states, scratch());
  closure.visit(node, stack);
  const int64_t state = closure.close();
  spend(closure.num_visited());
  return state;
}

int64_t Automaton::after_text(int64_t state, int64_t index) {
  const Network& network = states.network;
  const int64_t same = states.of(state)[index], text = network.args[node_of(same)];
  const bool counts = is_counted(network.texts[text]);
  const int64_t count = states.count_of(same);
  Closure closure(states, scratch());
  for (int64_t key : states.of(state)) {
    const int64_t node = node_of(key);
    if (network.kinds[node] != K_TEXT || network.args[node] != text || sub_of(key) != sub_of(same)) continue;
    if (counts && states.count_of(key) != count) continue;
    closure.visit(network.nexts[node], counts ? states.stacks[stack_of(key)].parent : stack_of(key));
  }
  const int64_t target = closure.close();
  spend(closure.num_visited());
  return target;
}

int64_t Automaton::without_texts(int64_t state, int64_t which) {
  const Network& network = states.network;
  std::vector<int64_t> found;
  for (int64_t key : states.of(state)) {
    const int64_t node = node_of(key);
    if (network.kinds[node] != K_TEXT || (which && network.text_at(node).is_key != which)) found.push_back(key);
  }
  return states.intern(found, false);
}

int64_t Automaton::forced_run(int64_t state, size_t max_bytes, std::vector<uint8_t>& run) {
  uint8_t* live = scratch().live;
  while (run.size() < max_bytes && !states[state].accepts) {
    int64_t byte = states[state].byte;
    if (byte < 0) {
      if (live_bytes(state, live) != 1) break;
      byte = std::find(live, live + 256, 1) - live;
    }
    const int64_t target = step(state, byte);
    if (target == 0) break;
    run.push_back(static_cast<uint8_t>(byte));
    state = target;
  }
  return state;
}

// ---------------------------------------------------------------- questions

int Automaton::live_bytes(int64_t state, uint8_t* live) {
  const Network& network = states.network;
  std::fill_n(live, 256, 0);
  for (int64_t key : states.of(state)) {
    const int64_t node = node_of(key);
    const int32_t arg = network.args[node];
    switch (network.kinds[node]) {
      case K_BYTE: live[arg] = 1; break;
      case K_BYTES:
        for (int byte = 0; byte < 256; ++byte) live[byte] |= network.has_byte(arg, byte);
        break;
      case K_KEY: states.sets.mark_live(network.sets[arg], stack_of(key), place_of(key), live); break;
      default:
        for (int byte = 0; byte < 256; ++byte) {
          if (!live[byte]) live[byte] = text_step(network.texts[arg], sub_of(key), byte, states.count_of(key)) != 0;
        }
    }
  }
  return static_cast<int>(std::count(live, live + 256, 1));
}

int64_t Automaton::text_groups(int64_t state, std::vector<TextGroup>& found) const {
  const Network& network = states.network;
  const std::span<const int64_t> keys = states.of(state);
  int64_t num_others = 0;
  for (size_t index = 0; index < keys.size(); ++index) {
    const int64_t node = node_of(keys[index]);
    if (network.kinds[node] != K_TEXT) {
      ++num_others;
      continue;
    }
    const int64_t count = is_counted(network.text_at(node)) ? states.count_of(keys[index]) : 0;
    const TextGroup group{static_cast<int64_t>(index), network.args[node], sub_of(keys[index]), count};
    const bool is_known = std::any_of(found.begin(), found.end(), [&](const TextGroup& one) {
      return one.text == group.text && one.sub == group.sub && one.count == group.count;
    });
    if (!is_known) found.push_back(group);
  }
  return num_others;
}

// ---------------------------------------------------------------- work

void Automaton::spend(int64_t work) {
  if (bounded_ != std::thread::id() && is_bounded()) allowance_ -= work;
  breath -= work;
  patience -= work;
  if (patience < 0 && on_long_call) {
    patience = ENDLESS;
    on_long_call(caller);
  }
}

void Automaton::allow(int64_t work) {
  bounded_ = work < ENDLESS ? std::this_thread::get_id() : std::thread::id();
  allowance_ = work;
}

int64_t Automaton::give_up() {
  const int64_t left = is_bounded() ? allowance_ : ENDLESS;
  bounded_ = std::thread::id();
  allowance_ = ENDLESS;
  return left;
}

bool Automaton::charge(int64_t work) {
  if (!is_bounded()) return true;
  allowance_ = std::max(allowance_ - work, -ENDLESS);
  return allowance_ >= 0;
}

}  // namespace phloem::fsm
