// Whether the lengths and indices of what `lay_out` is given are in range.
#include "checks.h"
#include "laying.h"
#include "stacks.h"

namespace phloem::fsm {

namespace {

constexpr const char* PACKED = "packed";
constexpr int64_t MAX_PACKED_NODES = 1 << (63 - NODE_SHIFT);

void require(bool is_right, const char* why) { check(is_right, PACKED, why); }

bool is_below(int64_t index, int64_t size) { return 0 <= index && index < size; }

void check_nodes(const Built& built) {
  const int64_t num_nodes = static_cast<int64_t>(built.kinds.size());
  const int64_t num_options = static_cast<int64_t>(built.options.size());
  int64_t literal = 0;
  for (int64_t node = 0; node < num_nodes; ++node) {
    const int64_t arg = built.args[node], next = built.nexts[node];
    bool is_right = true;
    switch (built.kinds[node]) {
      case K_SPLIT:
        require(0 <= arg && 0 <= next && arg + next <= num_options, "has a split without its options");
        continue;
      case K_BYTE: {
        require(literal < static_cast<int64_t>(built.heads.size()), "has fewer literals than nodes of literals");
        is_right = built.begins[literal] < built.begins[literal + 1] || next < node;  // an empty one goes where it leads
        ++literal;
        break;
      }
      case K_BYTES: is_right = arg >= 0; break;
      case K_TEXT: is_right = is_below(arg, static_cast<int64_t>(built.text_costs.size())); break;
      case K_CALL: is_right = is_below(arg, static_cast<int64_t>(built.entries.size())); break;
      case K_LOOP: is_right = is_below(arg, static_cast<int64_t>(built.loops.size()) / 3); break;
      case K_SET:
      case K_KEY: is_right = is_below(arg, static_cast<int64_t>(built.sets.size())); break;
      case K_RETURN: break;
      default: is_right = false;
    }
    require(is_right && is_below(next, num_nodes), "has a node that leads out of range");
  }
  require(literal == static_cast<int64_t>(built.heads.size()), "has more literals than nodes of literals");
}

void check_rules(const Built& built) {
  const int64_t num_nodes = static_cast<int64_t>(built.kinds.size());
  check_values(PACKED, built.options, 0, num_nodes);
  for (size_t loop = 0; loop < built.loops.size(); loop += 3) {
    require(is_below(built.loops[loop], num_nodes) && built.loops[loop + 1] >= 0, "has a loop out of range");
  }
  require(!built.entries.empty(), "has no rule");
  check_values(PACKED, built.entries, 0, num_nodes);
  check_offsets(PACKED, built.firsts, num_nodes);
  require(built.firsts.back() == num_nodes, "has nodes of no rule");
  for (int32_t first : built.firsts.first(built.entries.size())) {
    require(first < num_nodes && built.kinds[first] == K_RETURN, "has a rule that does not end");
  }
  check_values(PACKED, built.order, 0, static_cast<int64_t>(built.entries.size()));
  check_values(PACKED, built.text_costs, 0, NEVER + 1);
}

void check_texts(const Built& built, const BuiltSet& set) {
  const int64_t end = int64_t{set.literal} + set.num_texts;
  require(set.literal >= 0 && end <= static_cast<int64_t>(built.heads.size()), "has a set without its literals");
  for (int64_t literal = set.literal; literal + 1 < end; ++literal) {
    const Bytes text = built.text(literal), next = built.text(literal + 1);
    require(std::lexicographical_compare(text.begin(), text.end(), next.begin(), next.end()),
            "has a set whose texts are not sorted");
  }
}

void check_relations(const Built& built) {
  if (built.relations.empty()) return;
  Ints left = built.relations;
  for (const BuiltSet& set : built.sets) {
    for (int32_t number = 0; number < set.num_members; ++number) {
      require(left.size() >= 2 && left[0] >= 0 && left[1] >= 0, "has a member without its relations");
      const int64_t count = int64_t{left[0]} + left[1];
      require(count <= static_cast<int64_t>(left.size()) - 2, "has a member without its relations");
      check_values(PACKED, left.subspan(2, count), 0, set.num_members);
      left = left.subspan(2 + count);
    }
  }
}

void check_sets(const Built& built) {
  int64_t num_members = 0;
  for (int64_t row = 0; row < static_cast<int64_t>(built.sets.size()); ++row) {
    const BuiltSet& set = built.sets[row];
    require(0 <= set.num_texts && set.num_texts <= set.num_mixed && set.num_mixed <= set.num_members && 0 <= set.num_others && 0 <= set.minimum,
            "has a set with numbers out of range");
    const int64_t num_options = int64_t{3} + set.num_others + set.num_members;
    require(set.option >= 0 && set.option + num_options <= static_cast<int64_t>(built.options.size()),
            "has a set without its nodes");
    const int32_t node = built.options[set.option], key = built.options[set.option + 1];
    require(built.kinds[node] == K_SET && built.args[node] == row && built.kinds[key] == K_KEY && built.args[key] == row,
            "has a set at a wrong node");
    num_members += set.num_members;
    check_texts(built, set);
  }
  require(num_members == static_cast<int64_t>(built.required.size()), "has members of no set");
  check_values(PACKED, built.required, 0, 2);
  check_relations(built);
}

}  // namespace

void check_packed(Ints packed, Bytes data) {
  require(packed.size() >= PACKED_HEAD, "is shorter than its head");
  const Ints head = packed.first(PACKED_HEAD);
  check_values(PACKED, head, 0, static_cast<int64_t>(packed.size()) + 1);
  auto count = [&](PackedHead field) { return int64_t{head[field]}; };
  require(count(P_NODES) + static_cast<int64_t>(data.size()) <= MAX_PACKED_NODES, "has too many nodes");
  const int64_t size = PACKED_HEAD + 3 * count(P_NODES) + count(P_LITERALS) + count(P_OPTIONS) + 3 * count(P_LOOPS) +
                       3 * count(P_RULES) + 1 + count(P_TEXTS) + count(P_MEMBERS) + count(P_RELATIONS) +
                       count(P_SETS) * static_cast<int64_t>(sizeof(BuiltSet) / 4);
  check_size(PACKED, packed.size(), size);
  int64_t left = static_cast<int64_t>(data.size());
  for (int32_t length : packed.subspan(PACKED_HEAD + 3 * count(P_NODES), count(P_LITERALS))) {
    require(0 <= length && length <= left, "has literals beyond their bytes");
    left -= length;
  }
}

void check_built(const Built& built) {
  check_nodes(built);
  check_rules(built);
  check_sets(built);
}

}  // namespace phloem::fsm
