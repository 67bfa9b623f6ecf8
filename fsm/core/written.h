// The effect of a token on the keys of the open objects.
//
// The *mode* tells where a reader of JSON stands: it decides whether a brace begins an object or is a character of a
// string. While keys are remembered every state has one mode, whatever was read before it, since what may follow is the
// same: of two modes that differ by more than an escape only one can be completed, the number of quotes being even. So
// the mode is stored in the record of the state, when it is first reached with keys, not in texts or cursors.
#pragma once
#include "automaton.h"

namespace phloem::fsm {

enum Mode : int32_t { UNKNOWN, OUTSIDE, IN_STRING, ESCAPE };
enum class KeyEvent : int32_t { NOTHING, OPENS, CLOSES, KEY_ENDS, ITEM_ENDS, LIST_OPENS, VALUE_ENDS };

constexpr uint8_t QUOTE = 0x22, BACKSLASH = 0x5C, COMMA = 0x2C;
constexpr uint8_t LEFT_BRACE = 0x7B, RIGHT_BRACE = 0x7D, LEFT_BRACKET = 0x5B, RIGHT_BRACKET = 0x5D;

struct KeyStep {
  struct Event {
    KeyEvent kind;
    // of KEY_ENDS and ITEM_ENDS: where the text begins in the bytes (-1: before them), and ends; last, of all others
    // but OPENS: where they are
    int32_t first, last;
  };
  int64_t state;       // 0: refused
  int64_t begin = -1;  // where the text of the key in which they end begins, or -1
  std::vector<Event> events;
};

// The state after some bytes, and what happens on the way: OPENS and CLOSES for braces and brackets, and the ends of
// keys and items that have to be remembered. The brackets and commas of a list whose items must differ are AN_EDGE:
// LIST_OPENS instead of OPENS, and VALUE_ENDS at a comma and before CLOSES. has_keys: whether anything is remembered
// before the bytes. If not, nothing else is reported before the first key ends, or such a list opens.
KeyStep follow_keys(Automaton& automaton, int64_t state, Bytes data, bool has_keys);

// The state after a token, 0: refused; -1 where something happens: with keys also where an object begins or ends.
int64_t advance_keys(Automaton& automaton, int64_t state, int64_t token, bool has_keys);

// Where a reader of JSON stands in a state, if that has been noted; and to note it.
Mode mode_of(const Automaton& automaton, int64_t state);
void note_mode(Automaton& automaton, int64_t state, Mode mode);

// What can be written besides some keys.
struct KeysLeft {
  bool is_alive;            // whether anything can
  std::vector<Bytes> cuts;  // the shortest beginnings of keys after which nothing can; none if nothing can at all
};

// texts: what is left of the keys from a state on, with their quotes; sorted, none empty. with_cuts: they are asked for.
KeysLeft keys_left(Automaton& automaton, int64_t state, std::span<const Bytes> texts, bool with_cuts);

// Clears the bits of all tokens that begin with some bytes (at least one).
void clear_below(const TokenTrie& trie, Bytes path, int32_t* bits);

// Whether a state is inside a key, or a string, that has to be remembered.
bool is_in_key(const Automaton& automaton, int64_t state);

// Whether with a byte a key or a string ends that has to be remembered; target: the state after it.
bool ends_key(const Automaton& automaton, int64_t state, uint8_t byte, int64_t target);

}  // namespace phloem::fsm
