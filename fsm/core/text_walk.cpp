#include "text_walk.h"

#include <bit>

#include "safe.h"

namespace phloem::fsm {

namespace {

constexpr int32_t FIND_SAFE_FROM = 16;  // nodes of a sub-tree for which it pays to find out

class Walk {
 public:
  Walk(const Vocabulary& vocabulary, Scratch& scratch, const TextTable& text, int64_t limit, bool with_exits,
       int32_t* bits)
      : vocabulary_(vocabulary), scratch_(scratch), text_(text), limit_(limit), with_exits_(with_exits), bits_(bits),
        counts_(is_counted(text)) {
    if (!counts_) return;
    least_ = limit >= NEVER ? text.min_length : int64_t{NEVER};
    most_ = text.max_length - text.longest_way;
  }

  TextWalk run(TextPlace place) {
    std::fill_n(scratch_.safe_of, Scratch::SAFE_SLOTS, -1);
    std::fill_n(bits_, vocabulary_.num_words, 0);
    scratch_.places[0] = {place.sub / text_.num_nodes, place.sub % text_.num_nodes, place.count};
    if (scratch_.places[0].node == 0 && place.count >= least_) begin_with_a_row(scratch_.places[0]);
    const TokenTrie& trie = found_.in_rest ? vocabulary_.rest : vocabulary_.whole;
    for (int64_t node = 0; node < trie.size();) node = enter(trie, node);
    return std::move(found_);
  }

 private:
  // Begins with a plain row; or, where nearly everything goes on, with all tokens, of which the refused are cleared.
  void begin_with_a_row(Scratch::Place place) {
    const SafeCharacters& safe = find(place.state);
    int64_t row = is_plain(safe) ? std::min<int64_t>(safe.steps, NUM_PLAIN_ROWS) : 0;
    if (row && counts_ && place.count + NUM_PLAIN_ROWS > most_) {
      const int64_t left = text_.max_length - place.count - least_length(text_, place.state, 0);
      row = stays_on_plain(text_, place.state) ? std::min(row, left) : 0;
    }
    if (row > 0) {
      std::copy_n(vocabulary_.plain_rows + row * vocabulary_.num_words, vocabulary_.num_words, bits_);
      found_.in_rest = true;
      found_.worst = safe.worst;
    } else if (!counts_ && !(safe.unsafe_wide & PLAIN_WIDE) && safe.steps >= 4 &&
               std::popcount(safe.ascii[0]) + std::popcount(safe.ascii[1]) > 60) {
      is_full_ = true;
      std::copy_n(vocabulary_.all_tokens, vocabulary_.num_words, bits_);
    }
  }

  const SafeCharacters& find(int64_t state) {
    const int64_t slot = state & (Scratch::SAFE_SLOTS - 1);
    scratch_.safe_of[slot] = state;
    return scratch_.safe[slot] = find_safe(text_, state, limit_, with_exits_);
  }

  // Looks at a node of the trie; the node that is next.
  int64_t enter(const TokenTrie& trie, int64_t node) {
    const int depth = trie.depths[node];
    Scratch::Place place = scratch_.places[depth - 1];
    if (place.node == 0 && trie.summary_of[node] >= 0 && place.count >= least_ && take_whole(trie, node, place)) {
      return trie.ends[node];
    }
    if (!read(trie.bytes[node], place)) {
      if (is_full_) clear_tokens(trie, node, trie.ends[node], bits_);
      return trie.ends[node];
    }
    scratch_.places[depth] = place;
    if (trie.tokens[node] >= 0) take(trie, node, place);
    const bool may_end = place.node == 0 && text_.accepts[place.state] && (!counts_ || place.count >= text_.min_length);
    if (with_exits_ && may_end) {
      for (int32_t child = static_cast<int32_t>(node) + 1; child < trie.ends[node]; child = trie.ends[child]) {
        found_.exits.push_back(child);
      }
    }
    return node + 1;
  }

  // Takes the sub-tree below a node without looking into it, if it consists of safe characters.
  bool take_whole(const TokenTrie& trie, int64_t node, Scratch::Place place) {
    const int64_t slot = place.state & (Scratch::SAFE_SLOTS - 1);
    const int64_t end = trie.ends[node];
    if (scratch_.safe_of[slot] != place.state) {
      if (end - node < FIND_SAFE_FROM) return false;
      find(place.state);
    }
    const SafeCharacters& safe = scratch_.safe[slot];
    const uint64_t* summary = trie.summaries.data() + 3 * int64_t{trie.summary_of[node]};
    if ((summary[0] & ~safe.ascii[0]) || (summary[1] & ~safe.ascii[1]) || (summary[2] & safe.unsafe_wide)) return false;
    const int64_t height = summary[2] >> HEIGHT_SHIFT & 255;
    if (place.count + height > most_) return false;
    if (height <= safe.steps) {
      if (!is_full_) set_tokens(trie, node, end, bits_);
    } else if (safe.is_exact && !(summary[2] & HAS_CUT)) {
      const int64_t before = summary[2] >> BEFORE_SHIFT & 255;
      set_short_tokens(trie, node, end, before + safe.steps, bits_);
    } else {
      return false;
    }
    found_.worst = std::max(found_.worst, safe.worst);
    return true;
  }

  // Goes on from a place by one byte; false: refused.
  bool read(uint8_t byte, Scratch::Place& place) {
    const int64_t spelt = text_.node(place.node)[byte];
    if (spelt == 0) return false;
    if (spelt > 0) {
      place.node = spelt;
      return is_alive(text_, place.state, spelt, place.count);
    }
    place.state = text_.table[place.state * text_.num_classes - spelt];
    place.node = 0;
    if (!counts_) return place.state != 0;
    if (!fits_after(text_, place.state, place.count + 1)) return false;
    place.count = next_count(text_, place.count);
    return true;
  }

  // A token ends at a node.
  void take(const TokenTrie& trie, int64_t node, Scratch::Place place) {
    int64_t cost = 0;
    if (!counts_ || limit_ < NEVER) cost = text_cost(text_, place.state * text_.num_nodes + place.node, place.count);
    if (!counts_) found_.worst = std::max(found_.worst, cost);
    if (cost > limit_) {
      if (is_full_) clear_tokens(trie, node, node + 1, bits_);
    } else if (!is_full_) {
      set_tokens(trie, node, node + 1, bits_);
    }
  }

  const Vocabulary& vocabulary_;
  Scratch& scratch_;
  const TextTable& text_;
  int64_t limit_;
  bool with_exits_;
  int32_t* bits_;
  bool counts_;
  bool is_full_ = false;                // the bits were all set at first
  int64_t least_ = 0, most_ = NEVER;  // counts from and up to which short cuts are taken
  TextWalk found_;
};

}  // namespace

TextWalk walk_text(const Vocabulary& vocabulary, Scratch& scratch, const TextTable& text, TextPlace place,
                   int64_t limit, bool with_exits, int32_t* bits) {
  return Walk(vocabulary, scratch, text, limit, with_exits, bits).run(place);
}

bool stays_on_plain(const TextTable& text, int64_t state) {
  const int32_t* row = text.table + state * text.num_classes;
  for (int byte = 0; byte < 128; ++byte) {
    if (is_plain_byte(byte) && (text.first_node[byte] >= 0 || row[-text.first_node[byte]] != state)) return false;
  }
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    if ((text.is_wide[class_id] & PLAIN_WIDE) && row[class_id] != state) return false;
  }
  return true;
}

std::vector<int32_t> group_exits(const TokenTrie& trie, Ints exits, int32_t* starts) {
  std::fill_n(starts, 257, 0);
  for (int32_t node : exits) ++starts[trie.bytes[node] + 1];
  for (int byte = 0; byte < 256; ++byte) starts[byte + 1] += starts[byte];
  std::vector<int32_t> grouped(exits.size()), place(starts, starts + 256);
  for (int32_t node : exits) grouped[place[trie.bytes[node]]++] = node;
  return grouped;
}

bool are_alike(const TextTable& text, int32_t left, int32_t right, int64_t num_steps, size_t max_pairs) {
  constexpr size_t NUM_COMPARED = 8;  // of the last pairs: those that would be looked at twice
  std::vector<std::pair<int32_t, int32_t>> pairs = {{left, right}};
  size_t done = 0;
  for (int64_t step = 0; step <= num_steps && done < pairs.size(); ++step) {
    for (const size_t level_end = pairs.size(); done < level_end; ++done) {
      const auto [one, other] = pairs[done];
      if (text.accepts[one] != text.accepts[other]) return false;
      for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
        const std::pair<int32_t, int32_t> next = {text.table[one * text.num_classes + class_id],
                                                  text.table[other * text.num_classes + class_id]};
        if (next.first == next.second) continue;
        if (next.first == 0 || next.second == 0) return false;
        const auto last = pairs.rbegin() + static_cast<int64_t>(std::min(NUM_COMPARED, pairs.size()));
        if (std::find(pairs.rbegin(), last, next) != last) continue;
        if (pairs.size() == max_pairs) return false;
        pairs.push_back(next);
      }
    }
  }
  return true;
}

}  // namespace phloem::fsm
