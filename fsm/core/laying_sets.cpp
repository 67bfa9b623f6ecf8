// The tables of `AnyOrder` (network/any_order.py): members, the tries of their texts, costs, and the initial words.
#include <algorithm>

#include "laying.h"
#include "sets.h"

namespace phloem::fsm {

namespace {

int64_t shared_beginning(Bytes one, Bytes other) {
  return std::mismatch(one.begin(), one.end(), other.begin(), other.end()).first - one.begin();
}

int32_t num_words_of(int32_t num_members) { return std::max((num_members + WORD_BITS - 1) / WORD_BITS, 1); }

// a + b; NEVER if one of them is, and less otherwise: too long to be written is not the same as impossible.
int64_t sum(int64_t one, int64_t other) {
  return one >= NEVER || other >= NEVER ? NEVER : std::min<int64_t>(one + other, NEVER - 1);
}

// Bytes for a separator and a member.
int64_t member_cost(const NetworkArrays& laid, const Set& set, const Member& member) {
  return sum(int64_t{laid.costs[set.separator]} + member.head, laid.costs[member.entry]);
}

// Adds the trie of the sorted texts of a set, in breadth-first order, after the existing nodes.
class TrieBuilder {
 public:
  TrieBuilder(const Built& built, NetworkArrays& laid) : built_(built), laid_(laid) {}

  int32_t add(int32_t literal, int32_t num_texts) {
    const int32_t root = size_++;
    laid_.tries[root] = {.first = 0, .end = num_texts};
    for (int32_t node = root; node < size_; ++node) fill(laid_.tries[node], literal);
    return root;
  }

 private:
  void fill(KeyNode& node, int32_t literal) {
    auto byte_at = [&](int32_t text) { return built_.text(literal + text)[node.depth]; };
    const size_t depth = node.depth;
    const bool is_end = node.end > node.first && built_.text(literal + node.first).size() == depth;
    node.ends = is_end;
    node.edges = num_edges_;
    for (int32_t begin = node.first + is_end, following; begin < node.end; begin = following) {
      following = begin + 1;
      while (following < node.end && byte_at(following) == byte_at(begin)) ++following;
      int32_t target = ~begin;
      if (following > begin + 1) {
        target = size_++;
        laid_.tries[target] = {.first = begin, .end = following, .depth = node.depth + 1};
      }
      laid_.edges[num_edges_++] = {byte_at(begin), target};
    }
    node.num_edges = num_edges_ - node.edges;
  }

  const Built& built_;
  NetworkArrays& laid_;
  int32_t size_ = 0, num_edges_ = 0;
};

// Marks what a member that must be written excludes, and what can never be completed, as not to be written.
void settle_words(NetworkArrays& laid, const Set& set) {
  for (int32_t number = 0; number < set.num_members; ++number) {
    const Member& member = laid.members[set.members + number];
    int32_t* word = &laid.lists[set.words + 2 * (number / WORD_BITS)];
    bool is_dead = member.cost >= NEVER;
    for (int32_t at = member.implied; at < member.implied + member.num_implied; ++at) {
      is_dead = is_dead || laid.members[set.members + laid.lists[at]].cost >= NEVER;
    }
    if (is_dead) word[0] |= bit_of(number);
    if (!member.is_required) continue;
    word[1] |= bit_of(number);
    for (int32_t at = member.excluded; at < member.excluded + member.num_excluded; ++at) {
      const int32_t other = laid.lists[at];
      laid.lists[set.words + 2 * (other / WORD_BITS)] |= bit_of(other);
    }
  }
}

// Ranks the members by cost, which is needed only where a number of them must be written.
void rank_members(NetworkArrays& laid, const Set& set) {
  Member* members = laid.members.data() + set.members;
  for (int32_t number = 0; number < set.num_members; ++number) {
    int32_t place = number;
    for (; set.missing > 0 && place > 0 && members[members[place - 1].cheap].cost > members[number].cost; --place) {
      members[place].cheap = members[place - 1].cheap;
    }
    members[place].cheap = number;
  }
}

// Drops others that cannot be completed, and finds the cost of the cheapest.
void settle_others(NetworkArrays& laid, Set& set) {
  int32_t num_alive = 0;
  set.others_cost = NEVER;
  for (int32_t at = set.others; at < set.others + set.num_others; ++at) {
    const int32_t entry = laid.options[at];
    if (laid.costs[entry] >= NEVER) continue;
    const int64_t cost = sum(set.separator_cost, laid.costs[entry]);
    set.others_cost = static_cast<int32_t>(std::min<int64_t>(set.others_cost, cost));
    laid.options[set.others + num_alive++] = entry;
  }
  set.num_others = num_alive;
}

}  // namespace

SetSizes measure_sets(Built& built) {
  SetSizes sizes;
  for (const BuiltSet& set : built.sets) {
    int64_t before = 0, nodes = 1;
    const int32_t end = set.literal + set.num_texts;
    for (int32_t literal = set.literal; literal < end; ++literal) {
      const Bytes text = built.text(literal);
      const int64_t after = literal + 1 < end ? shared_beginning(text, built.text(literal + 1)) : 0;
      nodes += std::max<int64_t>(after - before, 0);
      built.heads[literal] = std::min<int64_t>(std::max(after, before) + 1, static_cast<int64_t>(text.size()));
      before = after;
    }
    sizes.num_nodes += nodes;
    sizes.num_edges += nodes - 1 + set.num_texts;
    sizes.num_words += 2 * num_words_of(set.num_members);
  }
  return sizes;
}

void fill_sets(const Built& built, NetworkArrays& laid) {
  int32_t first = 0, word = 0;
  const int32_t* relation = built.relations.data();
  TrieBuilder tries(built, laid);
  for (size_t row = 0; row < built.sets.size(); ++row) {
    const BuiltSet& set = built.sets[row];
    int32_t num_required = 0;
    for (int32_t number = 0; number < set.num_members; ++number) {
      Member& member = laid.members[first + number];
      member.head = number < set.num_texts ? static_cast<int32_t>(built.heads[set.literal + number]) : 0;
      member.is_required = built.required[first + number];
      num_required += member.is_required;
      if (built.relations.empty()) continue;
      member.num_implied = *relation++;
      member.num_excluded = *relation++;
      member.implied = word;
      member.excluded = word + member.num_implied;
      for (int32_t count = member.num_implied + member.num_excluded; count; --count) laid.lists[word++] = *relation++;
    }
    const int32_t spare = set.maximum < 0 ? UNBOUNDED : set.maximum - num_required;
    const int32_t missing = std::max(set.minimum - num_required, 0);
    laid.sets[row] = {.node = set.option, .members = first, .num_members = set.num_members, .num_texts = set.num_texts,
                      .num_words = num_words_of(set.num_members), .is_counted = missing > 0 || spare != UNBOUNDED,
                      .spare = spare, .missing = missing, .words = word, .trie = tries.add(set.literal, set.num_texts),
                      .others = set.option + 3, .num_others = set.num_others, .others_cost = NEVER,
                      .num_mixed = set.num_mixed};
    word += 2 * num_words_of(set.num_members);
    first += set.num_members;
  }
}

void place_sets(NetworkArrays& laid) {
  for (Set& set : laid.sets) {
    const int32_t* option = &laid.options[set.node];
    set.node = option[0];
    set.key = option[1];
    set.separator = option[2];
    const int32_t entries = set.others + set.num_others;
    for (int32_t number = 0; number < set.num_members; ++number) {
      laid.members[set.members + number].entry = laid.options[entries + number];
    }
  }
}

// That is what all required members need, or else the cheapest member; and the cheapest ones beyond, as far as a number
// is demanded.
int64_t least_cost(const NetworkArrays& laid, const Set& set) {
  const std::span members = std::span(laid.members).subspan(set.members, set.num_members);
  const int64_t separator = laid.costs[set.separator];
  int64_t missing = set.missing, total = 0, num_required = 0;
  for (const Member& member : members) {
    if (!member.is_required) continue;
    total = sum(total, member_cost(laid, set, member));
    ++num_required;
  }
  if (num_required + missing == 0) missing = 1;
  if (set.spare < missing) return NEVER;
  int64_t others = NEVER;
  for (int32_t at = set.others; at < set.others + set.num_others; ++at) {
    others = std::min(others, sum(separator, laid.costs[laid.options[at]]));
  }
  int64_t last = -1, last_number = -1;  // the picks go up by (cost, member)
  for (; missing > 0 && total < NEVER; --missing) {
    int64_t best = others, best_number = -1;
    for (int64_t number = 0; number < set.num_members; ++number) {
      const Member& member = members[number];
      if (member.is_required) continue;
      int64_t cost = member_cost(laid, set, member);
      for (int32_t at = member.implied; at < member.implied + member.num_implied; ++at) {
        cost = sum(cost, member_cost(laid, set, members[laid.lists[at]]));
      }
      if (cost < best && (cost > last || (cost == last && number > last_number))) {
        best = cost;
        best_number = number;
      }
    }
    total = sum(total, best);
    last = best;
    last_number = best_number;
  }
  return total < NEVER ? total - separator : NEVER;
}

void settle_sets(NetworkArrays& laid) {
  for (Set& set : laid.sets) {
    set.separator_cost = laid.costs[set.separator];
    for (Member& member : std::span(laid.members).subspan(set.members, set.num_members)) {
      member.cost = static_cast<int32_t>(member_cost(laid, set, member));
    }
    rank_members(laid, set);
    settle_words(laid, set);
    settle_others(laid, set);
  }
}

}  // namespace phloem::fsm
