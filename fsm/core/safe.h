// Safe characters: those that may follow a state of a text automaton repeatedly. In the middle of a long text most
// characters lead to the same state, or stay within a few states. Sub-trees of the trie that consist of safe characters
// are then accepted as a whole.
#pragma once
#include "vocabulary.h"

namespace phloem::fsm {

constexpr int64_t MAX_SAFE_STEPS = 40;  // sub-trees deeper than that are walked into until they are shallower
constexpr int64_t ENDLESS_STEPS = 255;
constexpr uint64_t WIDE_SEPARATORS = 16, PLAIN_WIDE = 63 - WIDE_SEPARATORS;  // kinds beyond ASCII (`wide_kinds`)
// plain: the printable ASCII characters that a JSON string does not escape, from the space on, without quote, backslash
// and DEL; and everything beyond ASCII but the separators U+2028 and U+2029
constexpr uint64_t PLAIN[2] = {0xFFFFFFFB00000000u, 0x7FFFFFFFEFFFFFFFu};

constexpr bool is_plain_byte(int byte) { return PLAIN[byte >> 6] >> (byte & 63) & 1; }

// Characters of which any text of at most `steps` may follow the state, without a place that costs more than `limit`,
// or accepts if the exits are wanted.
SafeCharacters find_safe(const TextTable& text, int64_t state, int64_t limit, bool with_exits);

// Whether a plain row says which tokens of plain characters may follow.
bool is_plain(const SafeCharacters& safe);

}  // namespace phloem::fsm
