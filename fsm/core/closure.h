// Epsilon closure: all configurations that a network reaches without reading a byte; together they are one state.
#pragma once
#include "states.h"
#include "vocabulary.h"

namespace phloem::fsm {

// One closure: begun anew by its constructor, it visits configurations, then `close` follows them.
class Closure {
 public:
  Closure(States& states, Scratch& scratch);

  // Adds a configuration unless it was met. Throws TooLarge.
  void visit(int64_t node, int64_t sub, int64_t stack);
  void visit(int64_t node, int64_t stack) { visit(node, 0, stack); }
  // Adds what follows the head of a member, on top of the set with it.
  void enter_member(const Set& set, int64_t top, int64_t member);

  // The state of all that was visited and what it leads to without reading.
  //
  // Rules are entered when nothing else is left to do, each for all that have called it till then, on a joint stack:
  // else a chain of rules that call the next one in two places would be followed in 2^length ways.
  int64_t close();

  int64_t num_visited() const { return static_cast<int64_t>(scratch_.work.size()); }

 private:
  void follow(int64_t key);
  void enter_text(int64_t key);
  void enter_key(int64_t key);
  void call(int64_t node, int64_t stack);
  void enter_rules();
  int64_t join(std::span<const int64_t> calls);
  void leave(int64_t end, int64_t stack);
  void turn(int64_t node, int64_t count, int64_t stack);
  void after_member(int64_t node, int64_t top);
  void begin_member(int64_t node, int64_t top);
  void grow();
  void find_key(int64_t key) { scratch_.found.push_back(key); }

  States& states_;
  const Network& network_;
  Stacks& stacks_;
  Sets& sets_;
  Scratch& scratch_;
  bool accepts_ = false;
};

}  // namespace phloem::fsm
