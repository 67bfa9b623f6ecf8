#include "sets.h"

#include <bit>

namespace phloem::fsm {

int64_t Sets::open(const Set& set, int64_t below) {
  unpacked.spare = set.spare;
  unpacked.missing = set.missing;
  unpacked.words.resize(set.num_words);
  for (int32_t word = 0; word < set.num_words; ++word) {
    unpacked.words[word] = {network_.lists[set.words + 2 * word], network_.lists[set.words + 2 * word + 1]};
  }
  return pack(set, below);
}

int64_t Sets::unpack(const Set& set, int64_t top) {
  unpacked.words.resize(set.num_words);
  for (int32_t word = set.num_words - 1; word >= 0; --word) {
    unpacked.words[word] = {stacks_[top].count, stacks_[top].owed};
    top = stacks_[top].parent;
  }
  unpacked.spare = UNBOUNDED;
  unpacked.missing = 0;
  if (!set.is_counted) return top;
  unpacked.spare = stacks_[top].count;
  unpacked.missing = stacks_[top].owed;
  return stacks_[top].parent;
}

int64_t Sets::pack(const Set& set, int64_t below) {
  int64_t total = int64_t{stacks_[below].cost} + network_.costs[network_.nexts[set.node]];
  total += cost_of_owed(set) + cost_of_missing(set).total;
  int64_t stack = below;
  if (set.is_counted) stack = stacks_.push(set.node, unpacked.spare, unpacked.missing, stack, 0);
  for (const Unpacked::Word& word : unpacked.words) {
    stack = stacks_.push(set.node, word.blocked, word.owed, stack, std::min<int64_t>(total, NEVER));
  }
  return stack;
}

// Bytes for the members that must be written, each with a separator.
int64_t Sets::cost_of_owed(const Set& set) const {
  int64_t total = 0;
  for (int32_t word = 0; word < set.num_words; ++word) {
    for (uint32_t owed = unpacked.words[word].owed; owed; owed &= owed - 1) {
      total += network_.member(set, word * WORD_BITS + std::countr_zero(owed)).cost;
    }
  }
  return total;
}

// Bytes for the cheapest members beyond the owed ones, and for the dearest of these (0: no number is missing).
Sets::Cost Sets::cost_of_missing(const Set& set) const {
  int64_t missing = unpacked.missing;
  if (missing == 0) return {0, 0};
  const int64_t others = set.others_cost;
  int64_t total = 0;
  for (int32_t rank = 0; rank < set.num_members; ++rank) {
    const int32_t member = network_.member(set, rank).cheap;
    if (unpacked.is_taken(member)) continue;
    const int64_t dearest = std::min<int64_t>(network_.member(set, member).cost, others);
    total += dearest;
    if (--missing == 0) return {total, dearest};
  }
  return {std::min<int64_t>(total + missing * others, NEVER), others};
}

int64_t Sets::below(const Set& set, int64_t top) const {
  for (int32_t turn = 0; turn < set.num_words + set.is_counted; ++turn) top = stacks_[top].parent;
  return top;
}

int64_t Sets::num_owed(const Set& set, int64_t top) const {
  int64_t count = 0;
  for (int32_t word = 0; word < set.num_words; ++word) {
    count += std::popcount(static_cast<uint32_t>(stacks_[top].owed));
    top = stacks_[top].parent;
  }
  return set.is_counted ? count + stacks_[top].owed : count;
}

// How many members may be written that are not owed.
int64_t Sets::spare(const Set& set, int64_t top) const {
  if (!set.is_counted) return UNBOUNDED;
  for (int32_t word = 0; word < set.num_words; ++word) top = stacks_[top].parent;
  return stacks_[top].count;
}

bool Sets::is_any_open(const Set& set, int64_t top, int64_t first, int64_t end) const {
  const bool has_spare = spare(set, top) > 0;
  for (int64_t word = set.num_words - 1; word >= 0 && (word + 1) * WORD_BITS > first; --word) {
    const int64_t begin = word * WORD_BITS;
    if (begin < end) {
      const int64_t wanted = (int64_t{1} << std::min<int64_t>(end - begin, WORD_BITS)) -
                             (int64_t{1} << std::max<int64_t>(first - begin, 0));
      const int64_t may = has_spare ? ~int64_t{stacks_[top].count} : int64_t{stacks_[top].owed};
      if (may & wanted) return true;
    }
    top = stacks_[top].parent;
  }
  return false;
}

bool Sets::may_write_others(const Set& set, int64_t top) const {
  if (set.num_others == 0 || spare(set, top) <= 0) return false;
  for (int32_t word = set.num_words - 1; word >= 0; --word) {
    const int32_t begin = std::max(set.num_mixed - word * WORD_BITS, 0);
    if (begin < WORD_BITS) {
      const int64_t written = int64_t{stacks_[top].count} & ~int64_t{network_.lists[set.words + 2 * word]};
      if (written >> begin) return false;
    }
    top = stacks_[top].parent;
  }
  return true;
}

bool Sets::may_end(const Set& set, int64_t top) const {
  for (int32_t turn = 0; turn < set.num_words + set.is_counted; ++turn) {
    if (stacks_[top].owed) return false;
    top = stacks_[top].parent;
  }
  return true;
}

int64_t Sets::write(const Set& set, int64_t top, int64_t member) {
  const int64_t rest = unpack(set, top);
  if (member >= 0 && unpacked.is_owed(member)) {
    unpacked.word_of(member).owed ^= bit_of(member);
  } else {
    if (unpacked.spare != UNBOUNDED) --unpacked.spare;
    unpacked.missing = std::max(unpacked.missing - 1, 0);
  }
  if (member < 0) return pack(set, rest);
  unpacked.word_of(member).blocked |= bit_of(member);
  const Member& record = network_.member(set, member);
  for (int32_t one : std::span(network_.lists + record.implied, record.num_implied)) {
    if (!unpacked.is_blocked(one)) unpacked.word_of(one).owed |= bit_of(one);
  }
  for (int32_t one : std::span(network_.lists + record.excluded, record.num_excluded)) {
    unpacked.word_of(one).blocked |= bit_of(one);
  }
  return pack(set, rest);
}

}  // namespace phloem::fsm
