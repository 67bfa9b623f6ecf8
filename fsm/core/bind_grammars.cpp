// Bindings: rules with obligations in their names.
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "bind.h"
#include "checks.h"
#include "rule_product.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using IntTable = Array2<int32_t>;

constexpr int64_t MAX_RULES = 1 << 20;

std::vector<int32_t> vector_of(const IntArray& array) { return {array.data(), array.data() + array.shape(0)}; }

// Nodes come after those inside of them, and that of a rule that is a terminal after what is ignored after its body.
void check_node(const LexedNodes& nodes, int32_t node) {
  const int32_t* inside = &nodes.parts[3 * node];
  const int32_t num_rules = static_cast<int32_t>(nodes.bodies.size());
  check_index("first", nodes.firsts[node], std::numeric_limits<int32_t>::max());
  switch (nodes.kinds[node]) {
    case L_SEQUENCE:
      if (node == EMPTY_NODE) return;
      check_index("part", inside[0], node);
      return check_index("rest", inside[1], node);
    case L_ALTERNATION:
      check_index("begin", inside[0], static_cast<int64_t>(nodes.options.size()) + 1);
      check_number("end", inside[1], inside[0], static_cast<int64_t>(nodes.options.size()));
      for (int32_t index = inside[0]; index < inside[1]; ++index) check_index("option", nodes.options[index], node);
      return;
    case L_REPEAT:
      check_index("item", inside[0], node);
      check_index("minimum", inside[1], std::numeric_limits<int32_t>::max());
      return check_number("maximum", inside[2], -1, std::numeric_limits<int32_t>::max());
    case L_RULE:
      return check_index("rule", inside[0], num_rules);
    case L_SPACED:
      check_index("rule", inside[0], num_rules);
      return check_index("body", nodes.bodies[inside[0]], node);
    default:
      check_number("kind", nodes.kinds[node], 0, L_SPACED);
  }
}

LexedNodes nodes_of(const IntArray& kinds, const IntTable& parts, const IntArray& options, const IntArray& firsts,
                    const Array<bool>& nullable, const IntArray& bodies) {
  const int64_t num_nodes = static_cast<int64_t>(kinds.shape(0));
  check(num_nodes > 0 && kinds.data()[0] == L_SEQUENCE, "kinds", "does not begin with the empty text");
  check(static_cast<int64_t>(parts.shape(0)) == num_nodes && parts.shape(1) == 3, "parts", "is int32[num_nodes, 3]");
  check_size("firsts", firsts.shape(0), num_nodes);
  check_size("nullable", nullable.shape(0), num_nodes);
  check_values("bodies", span_of(bodies), 0, num_nodes);
  LexedNodes nodes{vector_of(kinds), {parts.data(), parts.data() + 3 * num_nodes}, vector_of(options),
                   vector_of(firsts), {nullable.data(), nullable.data() + num_nodes}, vector_of(bodies)};
  for (int64_t node = 0; node < num_nodes; ++node) check_node(nodes, static_cast<int32_t>(node));
  return nodes;
}

nb::object rule_product(IntArray kinds, IntTable parts, IntArray options, IntArray firsts, Array<bool> nullable,
                        IntArray bodies, int32_t start, nb::callable left_by, nb::callable is_harmless,
                        nb::callable seen_by, nb::callable check_time, int64_t max_rules, int64_t max_news) {
  LexedNodes nodes = nodes_of(kinds, parts, options, firsts, nullable, bodies);
  check_index("start", start, static_cast<int64_t>(bodies.shape(0)));
  check_number("max_rules", max_rules, 0, MAX_RULES);
  Terminals terminals{
      [&](int32_t node, int32_t before) { return nb::cast<std::vector<int32_t>>(left_by(node, before)); },
      [&](int32_t first, int32_t before) { return nb::cast<bool>(is_harmless(first, before)); },
      [&](int32_t first, int32_t before) { return nb::cast<int32_t>(seen_by(first, before)); },
      [&] { check_time(); },
  };
  RuleProduct product(Leaving(std::move(nodes), std::move(terminals), max_news), max_rules);
  WrittenRules found = product.run(start);
  if (!found.is_done) return nb::none();
  nb::list sets;
  for (int32_t set = 0; set < product.sets().num_sets(); ++set) sets.append(nb::cast(product.sets().members(set)));
  const size_t num_rows = found.rows.size() / 4;
  return nb::make_tuple(shaped<int32_t>(found.rows, {num_rows, 4}), array_of(found.children),
                        array_of(found.names), array_of(found.bodies), sets);
}

}  // namespace

void bind_grammars(nb::module_& module) { module.def("rule_product", rule_product); }

}  // namespace phloem::fsm
