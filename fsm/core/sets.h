// The sets of `AnyOrder` (network/any_order.py): which members can still be written, and the cost of the rest.
//
// A set on the stack is named by its topmost frame `top`. Its frames are unpacked (`Unpacked`) to be changed.
//
// Invariant: what must be written can be. Whatever a member implies is owed once it is written, and what excludes
// something that is owed cannot be written any more; a number of members is demanded or bounded only where no member
// implies or excludes another. So no text that is let through is a dead end.
#pragma once
#include "stacks.h"

namespace phloem::fsm {

struct Unpacked {
  struct Word {
    int32_t blocked, owed;  // the members that cannot be written, and those that must be
  };
  int32_t spare;    // further members allowed beyond those that are owed
  int32_t missing;  // members demanded beyond them
  std::vector<Word> words;

  Word& word_of(int64_t member) { return words[member / WORD_BITS]; }
  bool is_owed(int64_t member) const { return words[member / WORD_BITS].owed >> (member % WORD_BITS) & 1; }
  bool is_blocked(int64_t member) const { return words[member / WORD_BITS].blocked >> (member % WORD_BITS) & 1; }
  bool is_taken(int64_t member) const { return is_owed(member) || is_blocked(member); }
};

constexpr int32_t bit_of(int64_t member) { return int32_t{1} << (member % WORD_BITS); }

class Sets {
 public:
  Sets(const Network& network, Stacks& stacks) : network_(network), stacks_(stacks) {}

  // The frames of a set of which nothing has been written, on top of a stack.
  int64_t open(const Set& set, int64_t below);
  // Fills `unpacked`; returns the stack below the set.
  int64_t unpack(const Set& set, int64_t top);
  // The frames of what is unpacked; the cost of the topmost is that of everything to the end of the text.
  int64_t pack(const Set& set, int64_t below);
  // The set once a member, which may be, is written; `member` -1: something that is no member.
  int64_t write(const Set& set, int64_t top, int64_t member);

  int64_t below(const Set& set, int64_t top) const;     // the stack below a set
  int64_t num_owed(const Set& set, int64_t top) const;  // how many members must still be written at the least
  bool may_end(const Set& set, int64_t top) const;      // whether nothing more is demanded
  // Whether one of the members first .. end - 1 may be written.
  bool is_any_open(const Set& set, int64_t top, int64_t first, int64_t end) const;
  // Whether something that is no member may be written: not after a member that is last.
  bool may_write_others(const Set& set, int64_t top) const;
  // Bytes to the end of the text once a separator has been written, so that something must follow.
  int64_t cost_of_going_on(const Set& set, int64_t top);

  // ---- the texts of the members, byte by byte: `place` is a node of the set's trie, counted from its root

  // Where a byte leads: to a place (>= 0), to a member (~member), or nowhere (UNBOUNDED).
  int64_t key_step(const Set& set, int64_t top, int64_t place, int64_t byte) const;
  // Sets live[b] (uint8[256]) to 1 for every byte that a member's text may go on with.
  void mark_live(const Set& set, int64_t top, int64_t place, uint8_t* live) const;
  // The one byte that a member's text may go on with; -1 if there are several.
  int64_t only_byte(const Set& set, int64_t top, int64_t place) const;
  // Whether the text of a member that may be written goes on from a place.
  bool goes_on(const Set& set, int64_t top, int64_t place) const;
  // The member whose text ends at a place, if it may be written; otherwise -1.
  int64_t member_that_ends(const Set& set, int64_t top, int64_t place) const;
  // Bytes to the end of the text from a place where a member's text goes on.
  int64_t key_cost(const Set& set, int64_t top, int64_t place);
  // The byte that the text of a member goes on with, of those that `key_cost` is about the first one.
  int64_t cheapest_byte(const Set& set, int64_t top, int64_t place);

  Unpacked unpacked;

 private:
  struct Cost {
    int64_t total, dearest;
  };
  struct Extra {
    int64_t bytes, member;
  };
  const KeyNode& at(const Set& set, int64_t place) const { return network_.tries[set.trie + place]; }
  int64_t cost_of_owed(const Set& set) const;
  Cost cost_of_missing(const Set& set) const;
  int64_t spare(const Set& set, int64_t top) const;
  Extra least_extra(const Set& set, int64_t top, int64_t first, int64_t end);

  const Network& network_;
  Stacks& stacks_;
};

}  // namespace phloem::fsm
