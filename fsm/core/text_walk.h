// Walks of text automata through the vocabulary: the tokens that stay inside, that is, all of whose bytes do.
#pragma once
#include "texts.h"
#include "vocabulary.h"

namespace phloem::fsm {

// Where a walk begins: a byte state of a text, after `count` characters (0 if they are not counted).
struct TextPlace {
  int64_t sub, count;
};

struct TextWalk {
  std::vector<int32_t> exits;  // nodes of the trie that follow a place where the text may end
  int64_t worst = 0;           // greatest cost met, to within 3 bytes (0 for counted texts)
  bool in_rest = false;        // whether the exits are nodes of the trie of the rest
};

// The walk inside one text automaton, whatever comes after it.
//
// Sets the bit of every token all of whose bytes belong to the text and that leaves at most `limit` bytes to its end,
// and clears all others (bits: int32[num_words]). Walking all of a vocabulary takes milliseconds, so two short cuts are
// taken, both exact: sub-trees of the trie that consist of safe characters are taken whole; and where everything but
// quote, backslash and control characters is safe, the tokens made of up to n plain characters are a row prepared with
// the vocabulary, and only the others are walked.
//
// In a counted text the short cuts are taken as far as the bounds are certainly not met on the way: from the least
// length on, and as long as the longest way to an end is left. Nearer to the greatest length the plain rows still serve
// where plain characters are merely counted: the row for exactly as many characters as may follow is exact.
TextWalk walk_text(const Vocabulary& vocabulary, Scratch& scratch, const TextTable& text, TextPlace place,
                   int64_t limit, bool with_exits, int32_t* bits);

// Whether every plain character leads from a state of the text back to it, so that only their number counts.
bool stays_on_plain(const TextTable& text, int64_t state);

// The exits grouped by their byte; fills starts (int32[257]) with where the group of each byte begins.
std::vector<int32_t> group_exits(const TokenTrie& trie, Ints exits, int32_t* starts);

// Whether two states of a text accept, refuse and go on alike for the next `num_steps` characters; false if more than
// `max_pairs` pairs would have to be compared.
bool are_alike(const TextTable& text, int32_t left, int32_t right, int64_t num_steps, size_t max_pairs);

}  // namespace phloem::fsm
