// The bytes that bring the end of a text nearer, that is, on a shortest way to acceptance.
//
// Of a text that needs many characters of any kind only one is followed; else the first ones would be found in all
// ways, and all of them mean the same.
#pragma once
#include "automaton.h"

namespace phloem::fsm {

constexpr int ALL = 256;  // as the way of a state: whatever leads nearer to the end

// Sets flags[b] (uint8[256]) to 1 for bytes on a shortest way to acceptance, to 0 for all others. Returns the one that
// is to be followed, or ALL.
int nearing_bytes(Automaton& automaton, int64_t state, uint8_t* flags);

// The one that is to be followed if there is to be only one: from the space on, if there is a choice. flags: scratch.
int first_nearing_byte(Automaton& automaton, int64_t state, uint8_t* flags);

}  // namespace phloem::fsm
