// What some bytes do to the lists whose items must differ, and where a value can go on without end.
//
// Outside of such lists (UNKNOWN) nothing is known of the text but the states, which say where one opens; it need not
// even be JSON. Inside, a reader of JSON goes along, as in written.h, and is told of every bracket outside of strings,
// and of the commas behind the items of such a list.
#pragma once
#include "written.h"

namespace phloem::fsm {

enum class ItemEvent : int32_t { NOTHING, LIST_OPENS, OPENS, CLOSES, ITEM_ENDS, LIST_ENDS };
enum ItemEnd : uint8_t { NO_END, ENDS_LAST, ENDS_ONE, ENDS_MORE };
enum Role : uint8_t { OPENS_LIST = 1, ENDS_ITEM = 2 };  // bits of the roles of byte sets (`ByteSet.role`)

struct ItemScan {
  struct Event {
    ItemEvent kind;
    int32_t position;  // of the byte
    int32_t state;     // before it
  };
  int64_t state;  // 0: refused
  Mode mode;
  std::vector<Event> events;
};

// The state after some bytes, and what happens on the way. roles: uint8[num_sets], of the network's byte sets; mode:
// where a reader of JSON stands; UNKNOWN: not in a list whose items must differ.
ItemScan scan_items(Automaton& automaton, Bytes roles, int64_t state, Bytes data, Mode mode);

// For each of some tokens that may follow which items it ends: NO_END, ENDS_LAST (the last one of a list, and no list
// opens behind it), ENDS_ONE (another one), ENDS_MORE (or it is not plain).
std::vector<uint8_t> ending_tokens(Automaton& automaton, Bytes roles, int64_t state, Mode mode, Ints tokens);

// How many further items a shortest completion writes in lists that must have several.
int64_t items_to_go(Automaton& automaton, Bytes roles, int64_t state);

// The state without its configurations at the end of an item, not accepting; 0 if none is left.
int64_t without_ends(Automaton& automaton, Bytes roles, int64_t state);

}  // namespace phloem::fsm
