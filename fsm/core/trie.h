// Making the trie of a vocabulary, and questions about tokens.
#pragma once
#include "vocabulary.h"

namespace phloem::fsm {

using Offsets = std::span<const int64_t>;

// joined: the bytes of sorted, distinct tokens of 1 to 255 bytes; offsets: int64[num_tokens + 1], where each begins;
// ids: int32[num_tokens], below the size of next_same.
TokenTrie build_trie(Bytes joined, Offsets offsets, Ints ids, Ints next_same, const WideKinds& wide);

// The number of characters of each token that is plain, else 0: int32[num_tokens].
//
// Plain: printable ASCII of the given two words of bits, and everything beyond ASCII but the separators U+2028 and
// U+2029; well-formed, except that the last character may be unfinished, if it cannot become a separator; at most
// `limit` characters. bytes: all tokens one after the other; offsets: int32[num_tokens + 1].
std::vector<int32_t> plain_lens(Bytes bytes, Ints offsets, std::array<uint64_t, 2> plain, int32_t limit);

// Where the tokens end that stand in a text at `begin`; and whether some token reaches beyond the text into a byte
// whose flag in follow (uint8[256]) is set.
struct TokenEnds {
  std::vector<int32_t> ends;
  bool is_open = false;
};
TokenEnds token_ends(const TokenTrie& trie, Bytes text, size_t begin, Bytes follow);

}  // namespace phloem::fsm
