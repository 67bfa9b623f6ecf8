// The loop of look-ups (`runtime/lookup/lookup.py`): takes in tokens, scores what was expected of them, says what comes
// next.
//
// Positions are kept as where a run goes on: heads[hash of two tokens] is the position after their latest occurrence,
// links[that] the position after the one before (the hash chains of LZ77), 0 is none:
//
//     text     ...  a  b  c  ...  a  b  x  ...  a  b |       expected: x, of the later of the two runs that agree
//                         ^             ^
//             links ------'<------------'-- heads[a b]
//
// Tokens are compared by what they fold to: a word is the same word after a quote and after a space. What is expected
// is the token itself.
#pragma once
#include <cstdint>

namespace phloem::runtime {

// What `layout.py` lays out.
constexpr int NUM_GROUNDS = 10;

struct Counts {
  double right[NUM_GROUNDS], expected[NUM_GROUNDS];  // they fade, a little with each token
};

struct Text {
  int32_t* tables;       // text [capacity], links [capacity + 1], heads and singles [hash_mask + 1]; null: none yet
  const int32_t* folds;  // what each token is compared as
  Counts* common;        // of all texts
  int64_t capacity, hash_mask;
  int64_t num_tokens;  // of the text
  int64_t num_seen;    // of the request's tokens
  int64_t at, length;  // where what is expected stands (-1: nowhere), and how many tokens before it agree
  int64_t source_end;
  Counts own;
  double luck, chances;  // tokens that were right of late, and the chances of those expected
  int32_t draft[1];      // as long as the caller made it
};

constexpr int64_t FULL = -1;

// Takes in the request's tokens up to num_tokens, and drafts what follows.
//
// The first num_silent of them are a prompt: nothing is expected of them. At most limit tokens are drafted, as long as
// all up to each are right with a chance of floor at least. Returns twice how many, and 1 more if a draft would have
// had a token right that is new; or FULL, with nothing changed, where the tables have no room for them.
int64_t follow(Text& text, const int32_t* token_ids, int64_t num_tokens, int64_t num_silent, double floor,
               int64_t limit);

// Takes note of all tokens of the text anew, in tables that hold none.
void reenter(Text& text);

}  // namespace phloem::runtime
