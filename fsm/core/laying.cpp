#include "laying.h"

#include <algorithm>

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

// All arrays, empty.
NetworkArrays arrays_of(const Built& built, const SetSizes& sizes, int64_t num_nodes) {
  NetworkArrays found;
  for (std::vector<int32_t>* by_node : {&found.kinds, &found.args, &found.nexts, &found.costs}) by_node->resize(num_nodes);
  found.options.resize(built.options.size());
  found.entries.resize(built.entries.size());
  found.loops.resize(built.loops.size() / 3);
  found.sets.resize(built.sets.size());
  found.members.resize(built.required.size());
  found.tries.resize(sizes.num_nodes);
  found.edges.resize(sizes.num_edges);
  found.lists.resize(sizes.num_words + built.relations.size());
  found.num_texts = static_cast<int64_t>(built.text_costs.size());
  return found;
}

// Fills in kinds, args and nexts: a node for each byte in the place of one for a whole literal. Of a literal the last
// byte comes first, as everything is built from its end. The args of CALL become entry nodes.
void spell_out(const Built& built, const std::vector<int32_t>& last, NetworkArrays& laid) {
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
      if (kind == K_BYTES) laid.num_byte_sets = std::max(laid.num_byte_sets, int64_t{arg} + 1);
      laid.kinds[node] = kind;
      laid.args[node] = kind == K_CALL ? laid.entries[arg] : arg;
      laid.nexts[node++] = kind == K_SPLIT ? next : last[next];
    }
  }
}

}  // namespace

NetworkArrays lay_out(Ints packed, Bytes data) {
  check_packed(packed, data);
  Built built = unpacked(packed, data);
  check_built(built);
  const SetSizes sizes = measure_sets(built);
  const std::vector<int32_t> last = place_nodes(built);
  NetworkArrays laid = arrays_of(built, sizes, last.back());
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
  return laid;
}

}  // namespace phloem::fsm
