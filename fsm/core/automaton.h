// Automaton: a network run as a byte automaton by a lazy subset construction: states and transitions are found when
// they are first needed.
//
// Every state can reach acceptance, so a byte that is not refused is never a dead end. State 0 is dead: what leads
// there is refused. Everything found stays valid when a call ends with an exception; the next call goes on from there.
//
// Thread-safe by `mutex`: a caller holds it (`Call`) as long as it keeps references into the automaton. Two bounds
// limit the work of a call, counted in configurations: the allowance of one thread, and the breath of a search.
#pragma once
#include <thread>

#include "closure.h"
#include "rows.h"

namespace phloem::fsm {

struct OutOfWork {};    // the allowance of this thread is used up
struct OutOfBreath {};  // a pause for other threads: repeat the call, which goes on where it was

constexpr int64_t ENDLESS = int64_t{1} << 60;  // as an allowance: none

// Where a state stands alike in a text, in all its readings at once.
struct TextGroup {
  int64_t index;  // of the first of these configurations
  int64_t text, sub;
  int64_t count;  // characters read, 0 if they are not counted
};

class Automaton {
 public:
  // Both must live as long.
  Automaton(const Network& network, Vocabulary& vocabulary, int64_t max_bytes);

  // ---- moving; all of this may throw TooLarge, OutOfWork and OutOfBreath

  // The state after a byte; 0: refused. Remembers the answer.
  int64_t step(int64_t state, int64_t byte);
  // The state after all bytes of a token; 0: refused, or a token without bytes.
  int64_t advance(int64_t state, int64_t token);
  int64_t advance_bytes(int64_t state, Bytes data);
  // The state in which exactly the position `node` with `stack` has been reached.
  int64_t enter(int64_t node, int64_t stack);
  // The state in which the text of the configuration with this index has ended, in all that stand alike in it.
  int64_t after_text(int64_t state, int64_t index);
  // The state without its configurations inside texts, not accepting; 0 if none is left. which: AN_ITEM, AN_EDGE, or 0: any.
  int64_t without_texts(int64_t state, int64_t which);
  // Follows the automaton while one byte only is possible, for at most as many bytes; returns the state after them.
  int64_t forced_run(int64_t state, size_t max_bytes, std::vector<uint8_t>& run);

  // ---- questions

  // Sets live[b] (uint8[256]) to 1 for every byte that may follow, to 0 for the others; their number.
  int live_bytes(int64_t state, uint8_t* live);
  // The texts in which a state stands; how many configurations are in none.
  int64_t text_groups(int64_t state, std::vector<TextGroup>& found) const;

  // ---- work

  // Sets how many new configurations this thread may look at before OutOfWork; ENDLESS: no bound. One thread at a time
  // may be bounded, and does not bound the others.
  void allow(int64_t work);
  // What is left of this thread's allowance, or ENDLESS if it has none; from now on it has none here.
  int64_t give_up();
  // Takes work from the allowance of this thread; whether some is left.
  bool charge(int64_t work);

  Scratch& scratch();  // of this call

  Vocabulary& vocabulary;
  Budget budget;
  States states;
  Rows rows;
  int64_t start;
  int64_t breath = ENDLESS;                      // what may still be looked at before OutOfBreath
  int64_t patience = ENDLESS;                    // the same before `on_long_call`
  void (*on_long_call)(void* caller) = nullptr;  // called once, in the middle of a call, with ...
  void* caller = nullptr;                        // ... this
  std::mutex mutex;

 private:
  friend class Call;
  int64_t read(int64_t state, int64_t byte);
  bool read_configuration(Closure& closure, int64_t key, int64_t byte);
  void spend(int64_t work);
  bool is_bounded() const { return bounded_ == std::this_thread::get_id(); }

  int64_t allowance_ = ENDLESS;
  std::thread::id bounded_;
  std::unique_ptr<Scratch> scratch_;
};

// A call from outside: holds the automaton, which has been locked, and gives back what it has borrowed.
class Call {
 public:
  explicit Call(Automaton& automaton) : automaton_(automaton) {}
  ~Call() {
    if (automaton_.scratch_) automaton_.vocabulary.give_back(std::move(automaton_.scratch_));
    automaton_.breath = automaton_.patience = ENDLESS;
    automaton_.on_long_call = nullptr;
    automaton_.mutex.unlock();
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  Automaton& automaton_;
};

// ---------------------------------------------------------------- rows of tokens (walk.cpp)
//
// bits: int32[num_words], a bit for each token. Returned is 1 + the greatest cost after a token that may follow, 0:
// there is none.

// Sets the bits of the tokens that may follow.
int64_t walk(Automaton& automaton, int64_t state, int32_t* bits);
// Sets the bits of those below nodes of a trie at which `state` has been reached. exits: nodes that may come next,
// grouped by their byte; starts: int32[257], where the group of each byte begins.
int64_t walk_exits(Automaton& automaton, const TokenTrie& trie, int64_t state, Ints exits, Ints starts, int32_t* bits);
// Adds the tokens that may follow a state that accepts, if this one does.
void add_eos(const Automaton& automaton, int64_t state, int32_t* bits);

}  // namespace phloem::fsm
