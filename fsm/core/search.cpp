#include "search.h"

#include <bit>
#include <utility>

namespace phloem::fsm {

namespace {

constexpr int64_t LEAST_HALVED = 1 << 20;     // a bound on memory, in bytes, below which nothing is left to the text
constexpr size_t MAX_QUEUE = 1 << 17;         // states of one completion; after them one byte counts as one token
constexpr int64_t LEAST_WORK = 1 << 11;       // in one search, however many there are
constexpr int64_t MAX_PART_WORK = 1 << 16;    // in a search for a part, so that any search can take twice as much
constexpr int64_t STATE_WORK = 64, STEP_WORK = 32;  // for the bytes that lead on from a configuration; for a step

}  // namespace

int64_t Search::num_bytes() const {
  const size_t by_state = least_.size() * sizeof(int32_t) + ways_.size() * sizeof(int16_t);
  return static_cast<int64_t>(by_state + queue_.capacity() * sizeof(Found) + parts_.size() * sizeof(int32_t));
}

// Makes room for states that were found since. Searches leave half of the automaton's memory to the text itself.
void Search::fit() {
  if (num_states_ != automaton_.states.size()) {
    num_states_ = automaton_.states.size();
    if (2 * automaton_.budget.held() > std::max(automaton_.budget.max_bytes(), LEAST_HALVED)) stop();
  }
  if (static_cast<int64_t>(least_.size()) >= automaton_.states.size()) return;
  ways_.resize(automaton_.states.capacity());  // first, for the length of the other is what is looked at
  least_.resize(automaton_.states.capacity());
}

int64_t Search::least_tokens(int64_t state) {
  std::vector<int64_t> asked = {state};  // states whose bounds are needed before that of the one before
  for (;;) {
    asking_ = asked.size() > 1 ? asked.back() : -1;
    try {
      const int64_t found = find_least(asked.back());
      asked.pop_back();
      if (asked.empty()) return found;
    } catch (const NeedBound& need) {
      asked.push_back(need.state);
    }
  }
}

int64_t Search::find_least(int64_t start) {
  fit();
  if (least_[start] > 0) return least_[start] - 1;
  if (phase_ == IDLE || started_ != start) {
    end();
    if (start != asking_) {
      const int64_t bound = bound_at_cut(start);
      if (bound > 0) {
        set_least(start, bound);
        ways_[start] = CUT;
        return bound - 1;
      }
    }
    begin(start);
  }
  try {
    search();
  } catch (const Exhausted&) {
    if (phase_ != FOLLOWING) {
      end();
      phase_ = FOLLOWING;
      started_ = start;
      followed_ = 0;
    }
    follow(start);
  }
  end();
  return least_[start] - 1;
}

void Search::begin(int64_t start) {
  queue_.assign(1, {automaton_.states[start].cost, static_cast<int32_t>(start)});
  set_least(start, -1);
  phase_ = FINDING;
  started_ = start;
  done_ = 0;
  num_forgotten_ = automaton_.rows.num_forgotten();
  const int64_t least_work = std::max(LEAST_WORK, 2 * part_work_);
  given_ = start == asking_ ? MAX_PART_WORK : std::max(std::min(call_left_, total_left_), least_work);
  search_left_ = given_;
}

// Ends the search, and forgets what it has found and not settled.
void Search::end() {
  if (phase_ == FINDING || phase_ == SETTLING) {
    unmark(phase_ == FINDING ? 0 : done_, queue_.size());
    const int64_t used = given_ - std::max<int64_t>(search_left_, 0);
    call_left_ -= used;
    total_left_ = std::max<int64_t>(total_left_ - used, 0);
    if (started_ == asking_) part_work_ = std::max(part_work_, used);
  }
  phase_ = IDLE;
}

void Search::unmark(size_t begin, size_t end) {
  for (size_t index = begin; index < end; ++index) least_[queue_[index].state] = 0;
}

// Finds the graph and settles its states; throws Exhausted.
void Search::search() {
  if (phase_ == FOLLOWING) throw Exhausted();
  if (phase_ == FINDING) {
    find_states();
    std::sort(queue_.begin(), queue_.end());
    phase_ = SETTLING;
    done_ = 0;
  }
  settle_states();
}

// Fills the queue with every state on a shortest way, and its cost.
void Search::find_states() {
  uint8_t flags[256];
  for (; done_ < queue_.size(); ++done_, ++progress_) {
    const int64_t state = queue_[done_].state;
    const State& here = automaton_.states[state];
    if (here.accepts) continue;
    int only = here.byte;
    if (only < 0) {
      only = nearing_bytes(automaton_, state, flags);
      ways_[state] = static_cast<int16_t>(only);
      search_left_ -= STATE_WORK * here.size;
    }
    if (only != ALL) {
      find_target(state, only);
      continue;
    }
    for (int byte = 0; byte < 256; ++byte) {
      if (flags[byte]) find_target(state, byte);
    }
  }
}

void Search::find_target(int64_t state, int64_t byte) {
  search_left_ -= STEP_WORK;
  if (search_left_ < 0) throw Exhausted();
  const int64_t target = automaton_.step(state, byte);
  fit();
  const int32_t cost = automaton_.states[target].cost;
  if (target == 0 || least_[target] != 0 || cost >= automaton_.states[state].cost) return;
  const int64_t bound = bound_at_cut(target);
  if (bound > 0) {
    set_least(target, bound);
    ways_[target] = CUT;
    return;
  }
  if (queue_.size() >= MAX_QUEUE) throw Exhausted();
  queue_.push_back({cost, static_cast<int32_t>(target)});  // first: what is marked is in the queue, to be unmarked
  set_least(target, -1);
}

void Search::settle_states() {
  for (; done_ < queue_.size(); ++done_, ++progress_) {
    if (search_left_ < 0) throw Exhausted();
    const int64_t state = queue_[done_].state;
    set_least(state, automaton_.states[state].accepts ? 1 : settled(state));
  }
}

// The state after a byte if that is known, followed and nearer to the end, else 0. Known is what was found since the
// search began; if rows have given way since, it is looked up.
int64_t Search::nearer(int64_t state, int64_t byte) {
  const State& here = automaton_.states[state];
  if (is_cut_off(state)) return 0;
  const int32_t cost = here.cost;
  int64_t target = -1;
  if (here.byte >= 0) {
    target = here.byte == byte ? here.next : 0;
  } else if (ways_[state] != ALL && ways_[state] != byte) {
    return 0;
  } else {
    if (here.row >= 0) target = automaton_.rows[here.row].targets[byte];
    if (target < 0 && (here.row == NEVER_A_ROW || automaton_.rows.num_forgotten() != num_forgotten_)) {
      target = automaton_.step(state, byte);
      fit();
    }
  }
  return target <= 0 || automaton_.states[target].cost >= cost ? 0 : target;
}

// 1 + least(state), once it is known for all states nearer to the end.
int64_t Search::settled(int64_t state) {
  const TokenTrie& trie = automaton_.vocabulary.whole;
  int64_t path[MAX_TOKEN_LEN + 1];
  path[0] = state;
  int64_t best = automaton_.states[state].cost;  // as many bytes, each of them a token
  int only = automaton_.states[state].byte;
  if (only < 0) only = ways_[state];
  for (int byte = only < ALL ? only : 0; byte < (only < ALL ? only + 1 : 256); ++byte) {
    int64_t node = byte < 0 ? -1 : trie.roots[byte];
    if (node < 0 || nearer(state, byte) == 0) continue;
    for (const int64_t end = trie.ends[node]; node < end;) {
      const int depth = trie.depths[node];
      const int64_t above = path[depth - 1];
      search_left_ -= automaton_.states[above].row == NEVER_A_ROW ? STEP_WORK : 1;
      const int64_t target = nearer(above, trie.bytes[node]);
      if (target == 0) {
        node = trie.ends[node];
        continue;
      }
      path[depth] = target;
      if (trie.tokens[node] >= 0 && least_[target] > 0) best = std::min<int64_t>(best, least_[target]);
      ++node;
    }
  }
  return best + 1;
}

// Settles the states on one shortest completion.
void Search::follow(int64_t start) {
  int64_t state = start;
  size_t count = 0;
  if (followed_ > 0) {
    state = std::exchange(followed_, 0);
    count = done_;
    if (count > 0) set_least(start, automaton_.states[start].cost + 1);
  }
  try {
    while (least_[state] <= 0 && follow_on(start, state, count)) {
    }
  } catch (const NeedBound&) {
    unmark(0, count);
    throw;
  } catch (...) {  // meanwhile a state after it may be asked for: its bytes are a bound as well
    set_least(start, 0);
    set_least(state, 0);
    followed_ = state;
    done_ = count;
    throw;
  }
  count_tokens(state, count);
}

// Goes on to the state after the next byte; false if the completion ends here.
bool Search::follow_on(int64_t start, int64_t& state, size_t& count) {
  const int64_t bound = state != start ? bound_at_cut(state) : 0;
  if (bound > 0) {
    set_least(state, bound);
    ways_[state] = CUT;
    return false;
  }
  const int32_t cost = automaton_.states[state].cost;
  set_least(state, cost + 1);  // unless something better is found: as many bytes
  if (automaton_.states[state].accepts || count >= MAX_QUEUE) return false;
  int byte = automaton_.states[state].byte;
  uint8_t flags[256];
  if (byte < 0) byte = first_nearing_byte(automaton_, state, flags);
  ways_[state] = static_cast<int16_t>(byte);
  const int64_t target = automaton_.step(state, byte);
  fit();
  queue_.resize(std::max(queue_.size(), count + 1));
  queue_[count++] = {byte, static_cast<int32_t>(state)};
  ++progress_;
  if (target == 0 || automaton_.states[target].cost >= cost) return false;
  state = target;
  return true;
}

// Settles the first `count` states of the queue, which lead one to the next and the last to `end`.
void Search::count_tokens(int64_t end, size_t count) {
  const TokenTrie& trie = automaton_.vocabulary.whole;
  for (size_t first = count; first-- > 0;) {
    const int64_t state = queue_[first].state;
    int64_t best = least_[state] - 1;
    int64_t node = trie.roots[queue_[first].cost];
    for (size_t index = first + 1; node >= 0; ++index) {
      const int64_t after = index < count ? queue_[index].state : end;
      if (trie.tokens[node] >= 0) best = std::min<int64_t>(best, least_[after]);
      if (index == count) break;
      const int64_t last = trie.ends[node];
      ++node;
      while (node < last && trie.bytes[node] != queue_[index].cost) node = trie.ends[node];
      if (node >= last) node = -1;
    }
    set_least(state, best + 1);
  }
}

}  // namespace phloem::fsm
