#include "trie.h"

#include <algorithm>

namespace phloem::fsm {

namespace {

constexpr int32_t SUMMARISE_FROM = 3;  // nodes of a sub-tree; smaller ones are as quickly walked as skipped
constexpr int MALFORMED = -1;

// UTF-8 by bytes: 0 at a boundary, 1 to 3 bytes to come, 4 to 7 after E0, ED, F0, F4.
int utf8_step(int state, uint8_t byte) {
  if (state == 0) {
    if (byte < 0x80) return 0;
    if (byte < 0xC2 || byte > 0xF4) return MALFORMED;
    if (byte < 0xE0) return 1;
    if (byte < 0xF0) return byte == 0xE0 ? 4 : byte == 0xED ? 5 : 2;
    return byte == 0xF0 ? 6 : byte == 0xF4 ? 7 : 3;
  }
  const uint8_t low = state == 4 ? 0xA0 : state == 6 ? 0x90 : 0x80;
  const uint8_t high = state == 5 ? 0x9F : state == 7 ? 0x8F : 0xBF;
  if (byte < low || byte > high) return MALFORMED;
  return state >= 6 ? 2 : state >= 4 ? 1 : state - 1;
}

int32_t plain_len(Bytes token, std::array<uint64_t, 2> plain, int32_t limit) {
  int state = 0;
  int32_t count = 0;
  for (size_t at = 0; at < token.size(); ++at) {
    const uint8_t byte = token[at];
    if (state == 0) {
      ++count;
      if (byte < 0x80 && !(plain[byte >> 6] >> (byte & 63) & 1)) return 0;
    } else if ((byte == 0xA8 || byte == 0xA9) && at >= 2 && token[at - 2] == 0xE2 && token[at - 1] == 0x80) {
      return 0;
    }
    state = utf8_step(state, byte);
    if (state == MALFORMED || count > limit) return 0;
  }
  const size_t size = token.size();
  if (state == 0) return count;
  const bool is_begun = size > 1 && token[size - 1] == 0x80 && token[size - 2] == 0xE2;
  return is_begun || token[size - 1] == 0xE2 ? 0 : count;
}

// What a sub-tree contains: the two words of ASCII bytes, and the low bits of the third word; below 0 there: malformed.
struct Contents {
  uint64_t low = 0, high = 0;
  int32_t extra = 0;
  uint8_t height = 0, before = 0;
  bool begins = false, is_skippable = false;
};

// Where a walk down the trie stands, by depth: the node of the kinds' template (malformed: -1), and characters begun.
struct Place {
  int32_t node = 0, num_characters = 0;
};

Contents contents_of(const TokenTrie& trie, int32_t node, Place parent, int32_t spelt, const WideKinds& wide) {
  Contents found;
  const uint8_t byte = trie.bytes[node];
  found.begins = parent.node == 0;
  found.before = static_cast<uint8_t>(std::min(parent.num_characters, 255));
  found.is_skippable = found.begins && trie.ends[node] - node >= SUMMARISE_FROM;
  if (spelt == 0) {
    found.extra = -1;
  } else if (spelt < 0 && byte >= 0x80) {
    found.extra = wide.kinds[-spelt];
  } else if (byte < 64) {
    found.low = uint64_t{1} << byte;
  } else if (byte < 128) {
    found.high = uint64_t{1} << (byte - 64);
  } else if (trie.ends[node] == node + 1) {  // cut: any one kind that it may become
    found.extra = wide.below[spelt] & -wide.below[spelt];
  }
  if (trie.tokens[node] >= 0 && spelt > 0) found.extra |= HAS_CUT;
  return found;
}

// Fills in the nodes.
void flatten(TokenTrie& found, Bytes joined, Offsets offsets, Ints ids) {
  std::vector<int32_t> open(512);
  Bytes before;
  for (size_t index = 0; index < ids.size(); ++index) {
    const Bytes token = joined.subspan(offsets[index], offsets[index + 1] - offsets[index]);
    const size_t shared = std::mismatch(token.begin(), token.end(), before.begin(), before.end()).first - token.begin();
    for (size_t depth = shared; depth < before.size(); ++depth) {
      found.ends[open[depth]] = static_cast<int32_t>(found.bytes.size());
    }
    for (size_t depth = shared; depth < token.size(); ++depth) {
      open[depth] = static_cast<int32_t>(found.bytes.size());
      found.bytes.push_back(token[depth]);
      found.depths.push_back(static_cast<uint8_t>(depth + 1));
      found.ends.push_back(0);
      found.tokens.push_back(-1);
    }
    found.tokens.back() = ids[index];
    before = token;
  }
  for (size_t depth = 0; depth < before.size(); ++depth) {
    found.ends[open[depth]] = static_cast<int32_t>(found.bytes.size());
  }
}

// Fills in all that is found of sub-trees, and the tokens in their order.
void summarise(TokenTrie& trie, const WideKinds& wide) {
  const int32_t num_nodes = static_cast<int32_t>(trie.size());
  trie.summary_of.assign(num_nodes, -1);
  std::vector<Contents> contents;
  contents.reserve(num_nodes);
  std::vector<Place> places(512);
  for (int32_t node = 0; node < num_nodes; ++node) {
    const Place parent = places[trie.depths[node] - 1];
    const int32_t spelt = parent.node >= 0 ? wide.nodes[parent.node][trie.bytes[node]] : 0;
    contents.push_back(contents_of(trie, node, parent, spelt, wide));
    const int32_t num_characters = parent.num_characters + contents.back().begins;
    places[trie.depths[node]] = {spelt > 0 ? spelt : spelt < 0 ? 0 : -1, num_characters};
    trie.firsts.push_back(static_cast<int32_t>(trie.ordered.size()));
    for (int32_t token = trie.tokens[node]; token >= 0; token = trie.next_same[token]) {
      trie.ordered.push_back(token);
      trie.lens.push_back(static_cast<uint8_t>(std::min(num_characters, 255)));
    }
  }
  trie.firsts.push_back(static_cast<int32_t>(trie.ordered.size()));
  for (int32_t node = num_nodes - 1; node >= 0; --node) {  // so that children come before their parents
    Contents& here = contents[node];
    int height = 0;
    for (int32_t child = node + 1; child < trie.ends[node]; child = trie.ends[child]) {
      here.low |= contents[child].low;
      here.high |= contents[child].high;
      here.extra |= contents[child].extra;  // -1 stays -1
      height = std::max<int>(height, contents[child].height);
    }
    here.height = static_cast<uint8_t>(std::min(height + here.begins, 255));
    if (!here.is_skippable || here.extra < 0) continue;
    trie.summary_of[node] = static_cast<int32_t>(trie.summaries.size() / 3);
    const uint64_t last = static_cast<uint64_t>(here.extra) | uint64_t{here.height} << HEIGHT_SHIFT |
                          uint64_t{here.before} << BEFORE_SHIFT;
    trie.summaries.insert(trie.summaries.end(), {here.low, here.high, last});
  }
}

}  // namespace

TokenTrie build_trie(Bytes joined, Offsets offsets, Ints ids, Ints next_same, const WideKinds& wide) {
  TokenTrie found;
  flatten(found, joined, offsets, ids);
  found.next_same.assign(next_same.begin(), next_same.end());
  found.roots.assign(256, -1);
  for (int32_t node = 0; node < static_cast<int32_t>(found.size()); node = found.ends[node]) {
    found.roots[found.bytes[node]] = node;
  }
  summarise(found, wide);
  return found;
}

std::vector<int32_t> plain_lens(Bytes bytes, Ints offsets, std::array<uint64_t, 2> plain, int32_t limit) {
  std::vector<int32_t> found(offsets.size() - 1);
  for (size_t token = 0; token < found.size(); ++token) {
    found[token] = plain_len(bytes.subspan(offsets[token], offsets[token + 1] - offsets[token]), plain, limit);
  }
  return found;
}

TokenEnds token_ends(const TokenTrie& trie, Bytes text, size_t begin, Bytes follow) {
  TokenEnds found;
  int32_t node = trie.roots[text[begin]];
  for (size_t position = begin + 1; node >= 0; ++position) {
    if (trie.tokens[node] >= 0) found.ends.push_back(static_cast<int32_t>(position));
    const int32_t after = trie.ends[node];
    int32_t child = node + 1;
    for (node = -1; child < after && node < 0; child = trie.ends[child]) {
      if (position < text.size()) {
        if (trie.bytes[child] == text[position]) node = child;
      } else if (follow[trie.bytes[child]]) {
        found.is_open = true;
        return found;
      }
    }
  }
  return found;
}

}  // namespace phloem::fsm
