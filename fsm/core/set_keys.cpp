// The texts of the members of a set, byte by byte, and what is left to write from inside one. A byte is let through if
// it leads to the text of a member that can still be written.
#include "sets.h"

namespace phloem::fsm {

int64_t Sets::key_step(const Set& set, int64_t top, int64_t place, int64_t byte) const {
  const KeyNode& here = at(set, place);
  for (const Edge* edge = network_.edges + here.edges; edge < network_.edges + here.edges + here.num_edges; ++edge) {
    if (edge->byte != byte) continue;
    const int64_t target = edge->target;
    if (target < 0) return is_any_open(set, top, ~target, ~target + 1) ? target : UNBOUNDED;
    const KeyNode& there = network_.tries[target];
    return is_any_open(set, top, there.first, there.end) ? target - set.trie : UNBOUNDED;
  }
  return UNBOUNDED;
}

void Sets::mark_live(const Set& set, int64_t top, int64_t place, uint8_t* live) const {
  const KeyNode& here = at(set, place);
  for (int32_t edge = here.edges; edge < here.edges + here.num_edges; ++edge) {
    const int32_t byte = network_.edges[edge].byte;
    if (key_step(set, top, place, byte) != UNBOUNDED) live[byte] = 1;
  }
}

int64_t Sets::only_byte(const Set& set, int64_t top, int64_t place) const {
  const KeyNode& here = at(set, place);
  int64_t found = -1;
  for (int32_t edge = here.edges; edge < here.edges + here.num_edges; ++edge) {
    const int32_t byte = network_.edges[edge].byte;
    if (key_step(set, top, place, byte) == UNBOUNDED) continue;
    if (found >= 0) return -1;
    found = byte;
  }
  return found;
}

bool Sets::goes_on(const Set& set, int64_t top, int64_t place) const {
  const KeyNode& here = at(set, place);
  return is_any_open(set, top, here.first + here.ends, here.end);
}

int64_t Sets::member_that_ends(const Set& set, int64_t top, int64_t place) const {
  const KeyNode& here = at(set, place);
  return here.ends && is_any_open(set, top, here.first, here.first + 1) ? here.first : -1;
}

int64_t Sets::key_cost(const Set& set, int64_t top, int64_t place) {
  const KeyNode& here = at(set, place);
  const int64_t read = int64_t{set.separator_cost} + here.depth;
  return int64_t{stacks_[top].cost} - read + least_extra(set, top, here.first + here.ends, here.end).bytes;
}

int64_t Sets::cheapest_byte(const Set& set, int64_t top, int64_t place) {
  const KeyNode& here = at(set, place);
  const int64_t member = least_extra(set, top, here.first + here.ends, here.end).member;
  const Edge* last = network_.edges + here.edges + here.num_edges - 1;
  for (const Edge* edge = network_.edges + here.edges; edge < last; ++edge) {
    if (edge->target < 0 ? ~edge->target == member
                         : network_.tries[edge->target].first <= member && member < network_.tries[edge->target].end) {
      return edge->byte;
    }
  }
  return last->byte;
}

// The least number of bytes by which writing one of the members first .. end - 1 exceeds what must be written, and the
// first of the members for which that is so (-1: there is none).
Sets::Extra Sets::least_extra(const Set& set, int64_t top, int64_t first, int64_t end) {
  unpack(set, top);
  for (int64_t member = first; member < end; ++member) {
    if (unpacked.is_owed(member)) return {0, member};
  }
  Extra best{NEVER, -1};
  if (unpacked.spare == 0) return best;
  const int64_t replaced = cost_of_missing(set).dearest;
  for (int64_t member = first; member < end; ++member) {
    if (unpacked.is_blocked(member)) continue;
    const Member& record = network_.member(set, member);
    int64_t extra = record.cost - std::min<int64_t>(record.cost, replaced);
    for (int32_t index = record.implied; index < record.implied + record.num_implied; ++index) {
      const int32_t implied = network_.lists[index];
      if (!unpacked.is_taken(implied)) extra += network_.member(set, implied).cost;
    }
    if (extra < best.bytes) best = {extra, member};
  }
  return best;
}

int64_t Sets::cost_of_going_on(const Set& set, int64_t top) {
  int64_t extra = least_extra(set, top, 0, set.num_members).bytes;
  if (extra > 0 && may_write_others(set, top)) {
    const int64_t others = set.others_cost;
    extra = std::min(extra, others - std::min(others, cost_of_missing(set).dearest));
  }
  return std::min<int64_t>(int64_t{stacks_[top].cost} - set.separator_cost + extra, NEVER);
}

}  // namespace phloem::fsm
