#include "states.h"

namespace phloem::fsm {

namespace {

constexpr size_t MAX_COMPARED = 64;  // configurations at one place that another is compared with: too many are no fault
constexpr int MAX_HEIGHT = 32;       // frames that are compared

// Whether a frame with the lesser count may stand for the other: its count is not below a minimum.
bool has_reached_minimum(const Network& network, const Frame& frame) {
  if (frame.node < 0) return frame.count >= network.text_at(~int64_t{frame.node}).min_length;
  return network.kinds[frame.node] == K_LOOP && frame.count >= network.loops[network.args[frame.node]].minimum;
}

// Whether all that may follow on top of the other stack may follow on top of this one; false if they are high.
bool covers(const Network& network, const Stacks& stacks, int64_t stack, int64_t other) {
  for (int height = 0; height < MAX_HEIGHT; ++height) {
    if (stack == other) return true;
    if (stack == 0 || other == 0) return false;
    const Frame &here = stacks[stack], &beside = stacks[other];
    if (here.node == JOINT || beside.node != here.node || beside.owed != here.owed) return false;
    if (here.count != beside.count && (here.count > beside.count || !has_reached_minimum(network, here))) return false;
    stack = here.parent;
    other = beside.parent;
  }
  return stack == other;
}

}  // namespace

void drop_covered(const Network& network, const Stacks& stacks, std::vector<int64_t>& found) {
  size_t kept = 0, begin = 0;  // found[begin:kept] are at the place of the one that is looked at
  for (size_t index = 0; index < found.size(); ++index) {
    const int64_t key = found[index];
    if (kept > begin && found[kept - 1] >> STACK_BITS != key >> STACK_BITS) begin = kept;
    const size_t first = std::max(begin, kept > MAX_COMPARED ? kept - MAX_COMPARED : 0);
    bool is_covered = false, has_holes = false;
    for (size_t other = first; other < kept && !is_covered; ++other) {
      is_covered = covers(network, stacks, stack_of(found[other]), stack_of(key));
      if (!is_covered && covers(network, stacks, stack_of(key), stack_of(found[other]))) {
        found[other] = -1;
        has_holes = true;
      }
    }
    if (has_holes) {
      kept = std::remove(found.begin() + static_cast<int64_t>(begin), found.begin() + static_cast<int64_t>(kept), -1) -
             found.begin();
    }
    if (!is_covered) found[kept++] = key;
  }
  found.resize(kept);
}

}  // namespace phloem::fsm
