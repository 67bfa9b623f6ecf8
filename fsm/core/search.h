// The least number of tokens that complete a text.
//
// The bytes that bring the end nearer (the *nearing* ones: cost(state after) < cost(state)) make a graph without
// cycles, small even where a state is wide: out of a JSON string only the quote leads. Over it
//
//     least(accepting state) = 0
//     least(state)           = 1 + the minimum of least(target) over the tokens all of whose bytes are nearing
//
// which is the exact minimum over all shortest completions, and an upper bound of the minimum over all. States are
// found forwards and settled backwards, in the order of their cost. A settled state keeps its number.
//
// Two kinds of places would make that graph large, and there only one of the nearing bytes is followed: keys in any
// order are written in the order of the set, and of a text that needs many characters of any kind the first ones are
// all the same. That is an upper bound as well; and as the byte depends on the state alone, so does the number, in any
// order of calls. Where many keys must be written the graph ends, and set_bound.cpp says how many tokens suffice
// from there.
//
// Where the graph is large all the same, a single shortest completion is followed, and its tokens are counted. What one
// call may look at is bounded, so that no row and no minimum takes long, however much text is left to write.
//
// A search that an exception ends goes on where it stopped when it is asked for the same state again.
#pragma once
#include "nearing.h"

namespace phloem::fsm {

// How far the tokens of a row have been judged (`Search::keep_within`).
struct Judged {
  int64_t node = 0, word = 0;  // the next node of the trie, or the next word of the row
  int64_t worst = 0;           // 1 + the greatest number met
  int64_t states[MAX_TOKEN_LEN + 1];  // by depth of the trie
  const Automaton* automaton = nullptr;  // whose row it is, once it has begun ...
  int64_t state = 0;                     // ... and of which state

  // Whether it may judge the row of a state: it is new, or was begun for the same.
  bool begin(const Automaton* of, int64_t of_state) {
    if (!automaton) automaton = of, state = of_state;
    return automaton == of && state == of_state;
  }
};

class Search {
 public:
  // parts_work: members that may be looked at in search of parts.
  Search(Automaton& automaton, int64_t parts_work)
      : automaton_(automaton), parts_(automaton.states.network.num_members), parts_left_(parts_work) {}

  // A number of tokens that surely suffices to reach acceptance. Throws as `Automaton`.
  int64_t least_tokens(int64_t state);

  // Clears the bits of the tokens after which `limit` tokens do not suffice; all of them may follow the state.
  //
  // Those that leave more than `most_bytes` to the end are not searched from: of them only those stay for which each
  // byte may be a token. With a limit below zero nothing is cleared. Returns 1 + the greatest `least_tokens` met, if
  // the limit is below zero; else some number that is not negative.
  int64_t keep_within(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);

  // What a call may look at; before each call that does not go on where another one has stopped.
  void begin_call() {
    call_left_ = MAX_WORK;
    num_states_ = automaton_.states.size();
  }
  // Whether searches are still made: what was found is then true of all states alike.
  bool is_exact() const { return total_left_ > 0; }
  void stop() { total_left_ = parts_left_ = 0; }
  // Changes whenever a search gets on.
  int64_t progress() const { return progress_; }
  int64_t num_bytes() const;
  // The number that is known of a state, or -1.
  int64_t known(int64_t state) const {
    return state < static_cast<int64_t>(least_.size()) && least_[state] > 0 ? least_[state] - 1 : -1;
  }

  static constexpr int64_t MAX_WORK = 1 << 20;           // nodes of the trie looked at in one call, about 10 ms
  static constexpr int64_t TOTAL_WORK = 64 * MAX_WORK;   // in all searches of one automaton

 private:
  enum Phase { IDLE, FINDING, SETTLING, FOLLOWING };
  struct Found {
    int32_t cost;  // or the byte that follows
    int32_t state;
    bool operator<(const Found& other) const { return cost != other.cost ? cost < other.cost : state < other.state; }
  };
  struct NeedBound {
    int64_t state;  // whose bound has to be found first
  };
  struct Exhausted {};  // the graph is large

  int64_t find_least(int64_t start);
  void begin(int64_t start);
  void end();
  void search();
  void find_states();
  void find_target(int64_t state, int64_t byte);
  void settle_states();
  int64_t settled(int64_t state);
  int64_t nearer(int64_t state, int64_t byte);
  void follow(int64_t start);
  bool follow_on(int64_t start, int64_t& state, size_t& count);
  void count_tokens(int64_t end, size_t count);
  void unmark(size_t begin, size_t end);
  void fit();
  int64_t least_beyond(int64_t state, int64_t limit, int64_t most_bytes);
  void keep_each(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);
  void keep_by_walk(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);

  // ---- set_bound.cpp

  int64_t bound_at_cut(int64_t state);
  bool can_be_cut(const Set& set) const;
  bool is_cut(const Set& set, int64_t top) const;
  std::pair<int64_t, int64_t> rest_of(const Set& set, int64_t top);
  int64_t sum_of_parts(const Set& set, int64_t top);
  void find_part(const Set& set, int64_t top, int64_t member, int64_t last);
  void strike(const Set& set, int64_t member);
  int64_t state_of_unpacked(const Set& set, int64_t below);

  void set_least(int64_t state, int64_t value) { least_[state] = static_cast<int32_t>(value); }
  bool is_cut_off(int64_t state) const { return ways_[state] == CUT; }

  static constexpr int16_t CUT = -1;  // as the way of a state: nothing leads nearer, here a search ends

  Automaton& automaton_;
  std::vector<int32_t> least_;  // by state the number + 1; 0: not known yet; -1: found by this search
  std::vector<int16_t> ways_;   // by state the byte that is followed, or ALL, or CUT
  std::vector<int32_t> parts_;  // by member of a set; 0: not known yet
  int64_t parts_left_;
  std::vector<Found> queue_;    // the states found, of which `done_` are done; or those of one completion
  size_t done_ = 0;
  Phase phase_ = IDLE;
  int64_t started_ = 0, followed_ = 0;  // the state searched from; where `follow` goes on, or 0
  int64_t asking_ = -1;                 // the state that was asked for by NeedBound, or -1
  int64_t given_ = 0, search_left_ = 0, call_left_ = 0, total_left_ = TOTAL_WORK;
  int64_t part_work_ = 0;               // the most that a search for a part has taken
  int64_t num_forgotten_ = 0;           // rows that had been forgotten when the search began
  int64_t progress_ = 0;
  int64_t num_states_ = 0;  // of the automaton when its memory was last looked at
};

}  // namespace phloem::fsm
