#include "laying.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace phloem::fsm {

namespace {

Built unpacked(Ints packed, Bytes data) {
  int64_t at = PACKED_HEAD;
  auto take = [&](int64_t count) {
    at += count;
    return packed.subspan(at - count, count);
  };
  Built built;
  built.data = data;
  built.kinds = take(packed[P_NODES]);
  built.args = take(packed[P_NODES]);
  built.nexts = take(packed[P_NODES]);
  built.begins = {0};
  for (int32_t length : take(packed[P_LITERALS])) built.begins.push_back(built.begins.back() + length);
  built.heads.resize(packed[P_LITERALS]);
  built.options = take(packed[P_OPTIONS]);
  built.loops = take(3 * int64_t{packed[P_LOOPS]});
  built.entries = take(packed[P_RULES]);
  built.firsts = take(packed[P_RULES] + 1);
  built.order = take(packed[P_RULES]);
  built.text_costs = take(packed[P_TEXTS]);
  const Ints sets = take(packed[P_SETS] * static_cast<int64_t>(sizeof(BuiltSet) / 4));
  built.sets = {reinterpret_cast<const BuiltSet*>(sets.data()), static_cast<size_t>(packed[P_SETS])};
  built.required = take(packed[P_MEMBERS]);
  built.relations = take(packed[P_RELATIONS]);
  return built;
}

// Where each node goes, a literal to the first byte of it that is not read by a trie; one of which nothing is left goes
// where it leads to. The last number is that of all nodes.
std::vector<int32_t> place_nodes(const Built& built) {
  std::vector<int32_t> last;
  int64_t literal = 0, num_nodes = 0;
  for (size_t node = 0; node < built.kinds.size(); ++node) {
    int64_t length = 1;
    if (built.kinds[node] == K_BYTE) {
      length = built.begins[literal + 1] - built.begins[literal] - built.heads[literal];
      ++literal;
    }
    num_nodes += length;
    last.push_back(length ? static_cast<int32_t>(num_nodes - 1) : last[built.nexts[node]]);
  }
  last.push_back(static_cast<int32_t>(num_nodes));
  return last;
}

// An array with all parts of a network, empty but for its head.
std::vector<int32_t> head_of(const Built& built, const SetSizes& sizes, int64_t num_nodes) {
  auto rows = [](int64_t count, size_t bytes) { return count * static_cast<int64_t>(bytes / 4); };
  const int64_t num_loops = static_cast<int64_t>(built.loops.size()) / 3;
  const std::array<int64_t, N_END> lens = {
      num_nodes, num_nodes, num_nodes, num_nodes, static_cast<int64_t>(built.options.size()),
      rows(std::max<int64_t>(num_loops, 1), sizeof(Loop)), static_cast<int64_t>(built.entries.size()),
      rows(static_cast<int64_t>(built.sets.size()), sizeof(Set)),
      rows(static_cast<int64_t>(built.required.size()), sizeof(Member)), rows(sizes.num_nodes, sizeof(KeyNode)),
      rows(sizes.num_edges, sizeof(Edge)), sizes.num_words + static_cast<int64_t>(built.relations.size())};
  std::vector<int32_t> found(NETWORK_HEAD);
  int64_t begin = NETWORK_HEAD;
  for (int index = 0; index < N_END; ++index) {
    found[index] = static_cast<int32_t>(begin);
    begin += lens[index];
  }
  found[N_END] = static_cast<int32_t>(begin);
  found[N_NUM_SETS] = static_cast<int32_t>(built.sets.size());
  found[N_MAX_WORDS] = static_cast<int32_t>(sizes.max_words);
  found.resize(begin);
  return found;
}

template <class T>
std::span<T> part(std::vector<int32_t>& data, Head field) {
  const size_t size = data[field + 1] - data[field];
  return {reinterpret_cast<T*>(data.data() + data[field]), size * 4 / sizeof(T)};
}

Laid parts_of(std::vector<int32_t>& data) {
  return {.kinds = part<int32_t>(data, N_KIND), .args = part<int32_t>(data, N_ARG),
          .nexts = part<int32_t>(data, N_NEXT), .costs = part<int32_t>(data, N_COST),
          .options = part<int32_t>(data, N_OPTIONS),
          .loops = part<Loop>(data, N_LOOPS), .entries = part<int32_t>(data, N_ENTRIES),
          .sets = part<Set>(data, N_SETS),
          .members = part<Member>(data, N_MEMBERS), .tries = part<KeyNode>(data, N_TRIES),
          .edges = part<Edge>(data, N_EDGES), .lists = part<int32_t>(data, N_LISTS)};
}

// Fills in kinds, args and nexts: a node for each byte in the place of one for a whole literal. Of a literal the last
// byte comes first, as everything is built from its end. The args of CALL become entry nodes.
void spell_out(const Built& built, const std::vector<int32_t>& last, const Laid& laid) {
  int64_t literal = 0;
  int32_t node = 0;
  for (size_t index = 0; index < built.kinds.size(); ++index) {
    const int32_t kind = built.kinds[index], arg = built.args[index], next = built.nexts[index];
    if (kind == K_BYTE) {
      int32_t following = last[next];
      for (int64_t at = built.begins[literal + 1]; at-- > built.begins[literal] + built.heads[literal];) {
        laid.args[node] = built.data[at];
        laid.nexts[node] = following;
        following = node++;
      }
      ++literal;
    } else {
      laid.kinds[node] = kind;
      laid.args[node] = kind == K_CALL ? laid.entries[arg] : arg;
      laid.nexts[node++] = kind == K_SPLIT ? next : last[next];
    }
  }
}

}  // namespace

std::vector<int32_t> lay_out(Ints packed, Bytes data) {
  check_packed(packed, data);
  Built built = unpacked(packed, data);
  check_built(built);
  const SetSizes sizes = measure_sets(built);
  const std::vector<int32_t> last = place_nodes(built);
  std::vector<int32_t> found = head_of(built, sizes, last.back());
  const Laid laid = parts_of(found);
  auto placed = [&](int32_t node) { return last[node]; };
  std::transform(built.options.begin(), built.options.end(), laid.options.begin(), placed);
  std::transform(built.entries.begin(), built.entries.end(), laid.entries.begin(), placed);
  for (size_t loop = 0; 3 * loop < built.loops.size(); ++loop) {
    laid.loops[loop] = {last[built.loops[3 * loop]], built.loops[3 * loop + 1], built.loops[3 * loop + 2], 0};
  }
  std::vector<int32_t> firsts(built.firsts.size());
  std::transform(built.firsts.begin(), built.firsts.end(), firsts.begin(), placed);  // a RETURN, as long as before
  spell_out(built, last, laid);
  fill_sets(built, laid);
  place_sets(laid);
  settle_costs(laid, built.text_costs, built.order, firsts);
  settle_sets(laid);
  found[N_START] = laid.entries[0];
  found[N_SHORTEST] = laid.costs[laid.entries[0]];
  return found;
}

}  // namespace phloem::fsm
