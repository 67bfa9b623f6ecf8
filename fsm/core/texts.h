// Steps of text automata: one byte, and the cost to the end, with and without bounds on the number of characters.
//
// `sub` is a byte state, state * num_nodes + node of the template; 0 is dead. `count`: characters that have been read,
// a begun one not counted; of no meaning where lengths are not counted (max_length below 0).
#pragma once
#include <algorithm>

#include "text_table.h"

namespace phloem::fsm {

inline bool is_counted(const TextTable& text) { return text.max_length >= 0; }

// The least length >= minimum of a text from the state to its end; NEVER if there is none.
int64_t least_length(const TextTable& text, int64_t state, int64_t minimum);

// Whether an end within the bounds can be reached from a state after `count` characters.
bool fits_after(const TextTable& text, int64_t state, int64_t count);

// Whether a character begun (node of the template) can be completed into a state from which the end can be reached.
bool is_alive(const TextTable& text, int64_t state, int64_t node, int64_t count);

// The byte state after one more byte; 0: refused.
int64_t text_step(const TextTable& text, int64_t sub, int64_t byte, int64_t count);

// The count after one more character: without an upper bound all counts from the minimum on are alike.
inline int64_t next_count(const TextTable& text, int64_t count) {
  return text.max_length < NEVER ? count + 1 : std::min(count + 1, text.min_length);
}

// A number of bytes that suffices to reach an end; of a text that is not counted the least. Of a counted one every
// character is taken for the widest one, so that the way with the fewest characters suffices.
int64_t text_cost(const TextTable& text, int64_t sub, int64_t count);

}  // namespace phloem::fsm
