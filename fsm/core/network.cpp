#include "network.h"

#include "laying.h"

namespace phloem::fsm {

Network network_of(const int32_t* data, const uint64_t* byte_sets, int64_t num_byte_sets,
                   std::span<const TextTable> texts) {
  auto at = [&](Head field) { return data + data[field]; };
  Network found{.kinds = at(N_KIND), .args = at(N_ARG), .nexts = at(N_NEXT), .costs = at(N_COST),
                .options = at(N_OPTIONS), .loops = reinterpret_cast<const Loop*>(at(N_LOOPS)),
                .sets = reinterpret_cast<const Set*>(at(N_SETS)),
                .members = reinterpret_cast<const Member*>(at(N_MEMBERS)),
                .tries = reinterpret_cast<const KeyNode*>(at(N_TRIES)),
                .edges = reinterpret_cast<const Edge*>(at(N_EDGES)), .lists = at(N_LISTS), .byte_sets = byte_sets,
                .texts = texts.data(), .start = data[N_START],
                .num_nodes = data[N_ARG] - data[N_KIND],
                .num_sets = static_cast<int32_t>((data[N_MEMBERS] - data[N_SETS]) * 4 / sizeof(Set)),
                .num_members = (data[N_TRIES] - data[N_MEMBERS]) * 4 / static_cast<int64_t>(sizeof(Member)),
                .num_byte_sets = num_byte_sets, .has_counts = false};
  const Loop* end = reinterpret_cast<const Loop*>(at(N_ENTRIES));
  for (const Loop* loop = found.loops; loop < end; ++loop) found.has_counts |= loop->maximum != 0;
  for (const TextTable& text : texts) found.has_counts |= text.num_nodes > 0 && text.max_length >= 0;
  return found;
}

}  // namespace phloem::fsm
