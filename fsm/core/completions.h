// A shortest completion of every state, and how many tokens spell it.
//
// Each state has one shortest completion in bytes (nearing.h), which is followed to its end. Backwards along it
//
//     tokens(accepting state) = 0
//     tokens(state)           = 1 + the least tokens(target) over the tokens that the completion begins with
//
// is the least number of tokens that spell it. What is left of a completion is one itself, so the number is a promise:
// some token leads from a state with n > 0 to a state with fewer. It is an upper bound of the least number of tokens
// that complete the text: another completion may be spelt in fewer.
//
// Of keys in any order there are 2^n sets that may be missing, each with a completion of its own. Where more than
// MANY_OWED are owed, and those that are written are not the first ones of the set, each byte counts as a token.
//
// Where an exception ends a call, the next one for the same state goes on from there.
#pragma once
#include "nearing.h"

namespace phloem::fsm {

// How far the tokens of a row have been judged (`CompletionBounds::keep_within`).
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

class CompletionBounds {
 public:
  explicit CompletionBounds(Automaton& automaton) : automaton_(automaton) {}

  // How many tokens suffice to reach acceptance. Throws as `Automaton`.
  int64_t tokens(int64_t state);
  // How many of the keys and strings that have to be remembered the completion writes. Throws as `Automaton`.
  int64_t keys(int64_t state);
  // The same without the key that the state is in. Throws as `Automaton`.
  int64_t later_keys(int64_t state);
  // What `tokens` has found of a state, or -1.
  int64_t known(int64_t state) const { return at(tokens_, state) - 1; }

  // Clears the bits of the tokens after which `limit` tokens do not suffice; all of them may follow the state.
  //
  // Those that leave more than `most_bytes` to the end are not followed: of them only those stay for which each byte may
  // be a token. With a limit below zero nothing is cleared. Returns 1 + the greatest `tokens` met, if the limit is below
  // zero; else some number that is not negative.
  int64_t keep_within(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);

  int64_t progress() const { return progress_; }  // changes whenever a call gets on
  int64_t num_bytes() const;

 private:
  struct Place {
    int32_t state;
    uint8_t byte;  // that follows
  };
  using Counts = std::vector<int32_t>;  // by state the number + 1; 0: not known yet

  static int64_t at(const Counts& counts, int64_t state) {
    return state < static_cast<int64_t>(counts.size()) ? counts[state] : 0;
  }
  void note(Counts& counts, int64_t state, int64_t number);
  void follow(int64_t start, const Counts& known);
  bool go_on();
  bool is_end(int64_t state, const Counts& known);
  bool is_many(int64_t state);
  bool is_in_order(const Set& set, int64_t top);
  int64_t tokens_from(size_t first);
  int64_t tokens_beyond(int64_t state, int64_t limit, int64_t most_bytes);
  void keep_each(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);
  void keep_by_walk(int64_t state, int32_t* bits, int64_t limit, int64_t most_bytes, Judged& judged);

  Automaton& automaton_;
  Counts tokens_, keys_;
  std::vector<Place> path_;          // of the completion that is followed
  int64_t start_ = 0, here_ = 0;     // where it begins, 0: nowhere; how far it has been followed
  const Counts* wanted_ = nullptr;   // what is to be known of it
  int64_t progress_ = 0;
};

}  // namespace phloem::fsm
