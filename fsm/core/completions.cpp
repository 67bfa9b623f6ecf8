#include "completions.h"

#include "trie_walk.h"
#include "written.h"

namespace phloem::fsm {

namespace {

constexpr size_t MAX_PATH = 1 << 17;   // bytes of a completion; after them each byte counts as a token
constexpr int64_t MANY_OWED = 12;      // keys in any order; of more only those in the order of the set are followed
constexpr int64_t MAX_KEYS = 1 << 30;

}  // namespace

int64_t CompletionBounds::num_bytes() const {
  const size_t counts = (tokens_.capacity() + keys_.capacity()) * sizeof(int32_t);
  return static_cast<int64_t>(counts + path_.capacity() * sizeof(Place));
}

int64_t CompletionBounds::tokens(int64_t state) {
  if (const int64_t found = at(tokens_, state)) return found - 1;
  follow(state, tokens_);
  if (!at(tokens_, here_)) note(tokens_, here_, automaton_.states[here_].cost);  // 0 if it accepts
  for (size_t first = path_.size(); first-- > 0;) note(tokens_, path_[first].state, tokens_from(first));
  return at(tokens_, state) - 1;
}

int64_t CompletionBounds::keys(int64_t state) {
  if (const int64_t found = at(keys_, state)) return found - 1;
  follow(state, keys_);
  if (!at(keys_, here_)) note(keys_, here_, 0);
  int64_t count = at(keys_, here_) - 1, behind = here_;
  for (size_t index = path_.size(); index-- > 0;) {
    const auto [here, byte] = path_[index];
    count = std::min(count + ends_key(automaton_, here, byte, behind), MAX_KEYS);
    note(keys_, here, count);
    behind = here;
  }
  return at(keys_, state) - 1;
}

int64_t CompletionBounds::later_keys(int64_t state) {
  while (is_in_key(automaton_, state)) {
    const Step step = step_nearer(automaton_, state);
    if (!is_nearer(automaton_, step.state, state)) break;
    state = step.state;
  }
  return keys(state);
}

void CompletionBounds::note(Counts& counts, int64_t state, int64_t number) {
  if (state >= static_cast<int64_t>(counts.size())) counts.resize(automaton_.states.capacity());
  counts[state] = static_cast<int32_t>(number + 1);
  ++progress_;
}

// Fills the path with the completion of a state up to one at which it ends or of which `known` says the rest.
void CompletionBounds::follow(int64_t start, const Counts& known) {
  if (start_ != start || wanted_ != &known) {
    path_.clear();
    start_ = here_ = start;
    wanted_ = &known;
  }
  while (!is_end(here_, known) && go_on()) {
  }
  start_ = 0;
}

// Goes on by a byte; false where what is left is not known byte by byte.
bool CompletionBounds::go_on() {
  const Step step = step_nearer(automaton_, here_);
  if (!is_nearer(automaton_, step.state, here_)) return false;
  path_.push_back({static_cast<int32_t>(here_), static_cast<uint8_t>(step.byte)});
  here_ = step.state;
  ++progress_;
  return true;
}

bool CompletionBounds::is_end(int64_t state, const Counts& known) {
  if (automaton_.states[state].accepts || at(known, state)) return true;
  return &known == &tokens_ && (path_.size() >= MAX_PATH || is_many(state));
}

// Whether a key in any order begins at a state, and more are owed than are followed.
bool CompletionBounds::is_many(int64_t state) {
  const Network& network = automaton_.states.network;
  if (network.num_sets == 0 || automaton_.states[state].byte >= 0) return false;
  for (int64_t key : automaton_.states.of(state)) {
    if (network.kinds[node_of(key)] != K_KEY || place_of(key) != 0) continue;
    const Set& set = network.set_at(node_of(key));
    if (automaton_.states.sets.num_owed(set, stack_of(key)) > MANY_OWED && !is_in_order(set, stack_of(key))) return true;
  }
  return false;
}

// Whether no member is written after one that is owed and precedes it in the set.
bool CompletionBounds::is_in_order(const Set& set, int64_t top) {
  Sets& sets = automaton_.states.sets;
  sets.unpack(set, top);
  bool is_any_owed = false;
  for (int32_t member = 0; member < set.num_members; ++member) {
    is_any_owed |= sets.unpacked.is_owed(member);
    const bool is_required = automaton_.states.network.member(set, member).is_required;
    if (is_any_owed && is_required && !sets.unpacked.is_owed(member)) return false;
  }
  return true;
}

// The least number of tokens that spell the completion from a place of the path on, once it is known for all places
// after it. The path grows as far as a token reaches beyond its end.
int64_t CompletionBounds::tokens_from(size_t first) {
  const TokenTrie& trie = automaton_.vocabulary.whole;
  int64_t best = automaton_.states[path_[first].state].cost;  // as many bytes, each of them a token
  int64_t node = trie.roots[path_[first].byte];
  for (size_t index = first + 1; node >= 0; ++index) {
    const int64_t after = at(tokens_, index < path_.size() ? path_[index].state : here_);
    if (trie.tokens[node] >= 0 && after) best = std::min(best, after);
    if (trie.ends[node] == node + 1) break;
    if (index == path_.size() && (automaton_.states[here_].accepts || is_many(here_) || !go_on())) break;
    node = child_of(trie, node, path_[index].byte);
  }
  return best;
}

}  // namespace phloem::fsm
