#include "network.h"

namespace phloem::fsm {

int64_t NetworkArrays::num_bytes() const {
  auto bytes = [](const auto&... arrays) {
    return ((arrays.size() * sizeof(arrays[0])) + ...);
  };
  return static_cast<int64_t>(
      bytes(kinds, args, nexts, costs, options, entries, loops, sets, members, tries, edges, lists));
}

Network network_of(const NetworkArrays& arrays, const uint64_t* byte_sets, std::span<const TextTable> texts) {
  Network found{.kinds = arrays.kinds.data(), .args = arrays.args.data(), .nexts = arrays.nexts.data(),
                .costs = arrays.costs.data(), .options = arrays.options.data(), .loops = arrays.loops.data(),
                .sets = arrays.sets.data(), .members = arrays.members.data(), .tries = arrays.tries.data(),
                .edges = arrays.edges.data(), .lists = arrays.lists.data(), .byte_sets = byte_sets,
                .texts = texts.data(), .start = arrays.entries[0],
                .num_sets = static_cast<int32_t>(arrays.sets.size()), .has_counts = false};
  for (const Loop& loop : arrays.loops) found.has_counts |= loop.maximum != 0;
  for (const TextTable& text : texts) found.has_counts |= text.num_nodes > 0 && text.max_length >= 0;
  return found;
}

}  // namespace phloem::fsm
