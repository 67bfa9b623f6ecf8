// Bindings for text/: alphabets, tables over characters, and their layout.
#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "bind.h"
#include "bound_text.h"
#include "checks.h"
#include "other_strings.h"
#include "unlocked.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using IntTable = Array2<int32_t>;
using FlagArray = Array<bool>;

AlphabetView alphabet_of(const IntArray& starts, const IntArray& classes) {
  return {span_of(starts), span_of(classes)};
}

// What follows checks what it is made from: see checks.h.

DfaView dfa_of(const IntTable& table, const FlagArray& accepting) {
  const DfaView dfa{view_of(table), span_of(accepting)};
  check_dfa(dfa);
  return dfa;
}

Pairing pairing_of(const IntTable& left, const IntTable& right, const IntArray& left_class,
                   const IntArray& right_class, std::array<int32_t, 2> starts) {
  const Pairing both{view_of(left), view_of(right), span_of(left_class), span_of(right_class)};
  check_table(both.left);
  check_table(both.right);
  check_size("right_class", both.right_classes.size(), static_cast<int64_t>(both.left_classes.size()));
  check_values("left_class", both.left_classes, 0, both.left.num_columns);
  check_values("right_class", both.right_classes, 0, both.right.num_columns);
  check_index("left_start", starts[0], both.left.num_rows);
  check_index("right_start", starts[1], both.right.num_rows);
  return both;
}

// Checked once, when it is made: it is large, and needed for every alphabet.
void make_wide(BoundWideKinds* made, const IntTable& nodes, const Array<uint8_t>& kinds, const Array<uint8_t>& below) {
  const WideKinds wide{view_of(nodes), span_of(kinds), span_of(below)};
  check_wide(wide);
  new (made) BoundWideKinds{{}, wide};
  keep(made->kept, nodes);
  keep(made->kept, kinds);
  keep(made->kept, below);
}

void bind_alphabets(nb::module_& module) {
  module.attr("UNREACHABLE") = UNREACHABLE;
  module.def("spell", [](IntArray starts, IntArray classes, int32_t num_classes, IntTable of_one_class) {
    check_number("num_classes", num_classes, 1, MOST_CLASSES);
    check_alphabet(alphabet_of(starts, classes), num_classes);
    if (of_one_class.shape(0)) check_template(view_of(of_one_class), MOST_CLASSES);
    return array_of(spell(alphabet_of(starts, classes), num_classes, view_of(of_one_class)));
  });
  module.def("with_escapes", [](IntTable nodes, int32_t quote) {
    check_number("quote", quote, 0, MOST_CLASSES);
    check_template(view_of(nodes), MOST_CLASSES);
    return array_of(with_escapes(view_of(nodes), quote));
  });
  module.def("classes_of_sets", [](IntArray firsts, IntArray lasts, IntArray set_ends) {
    check_size("lasts", lasts.shape(0), static_cast<int64_t>(firsts.shape(0)));
    check_values("firsts", span_of(firsts), 0, NUM_CODE_POINTS);
    check_values("lasts", span_of(lasts), 0, NUM_CODE_POINTS);
    check_offsets("set_ends", span_of(set_ends), static_cast<int64_t>(firsts.shape(0)));
    SplitSets found = classes_of_sets(span_of(firsts), span_of(lasts), span_of(set_ends));
    Partition& partition = found.partition;
    return nb::make_tuple(array_of(partition.starts), array_of(partition.classes),
                          partition.num_classes, array_of(found.members),
                          array_of(found.member_ends));
  });
  module.def("common_classes", [](IntArray starts, IntArray classes, IntArray other_starts, IntArray other_classes) {
    check_alphabet(alphabet_of(starts, classes), MOST_CLASSES);
    check_alphabet(alphabet_of(other_starts, other_classes), MOST_CLASSES);
    Refined found = common_classes(alphabet_of(starts, classes), alphabet_of(other_starts, other_classes));
    Partition& partition = found.partition;
    return nb::make_tuple(array_of(partition.starts), array_of(partition.classes),
                          partition.num_classes, array_of(found.mine), array_of(found.theirs));
  });
  module.def("cut_out", [](IntArray points) {
    check_points(span_of(points));
    Partition found = cut_out(span_of(points));
    return nb::make_tuple(array_of(found.starts), array_of(found.classes));
  });
  module.def("completions", [](IntTable nodes, int32_t num_classes) {
    check_number("num_classes", num_classes, 1, MOST_CLASSES);
    check_template(view_of(nodes), num_classes);
    Completions found = completions(view_of(nodes), num_classes);
    auto reach = shaped<bool>(found.reach, {nodes.shape(0), static_cast<size_t>(num_classes)});
    return nb::make_tuple(reach, array_of(found.byte_costs));
  });
}

void bind_products(nb::module_& module) {
  nb::enum_<Alive>(module, "Alive")
      .value("BOTH", Alive::BOTH)
      .value("EITHER", Alive::EITHER)
      .value("FIRST", Alive::FIRST);
  module.def("product", [](IntTable left, IntTable right, IntArray left_class, IntArray right_class, int32_t left_start,
                           int32_t right_start, Alive alive, int64_t max_states) {
    Product found{Table(0, 1), {}};
    check(left_class.shape(0) > 0, "left_class", "is empty");
    {
      Unlocked unlocked;
      const Pairing both = pairing_of(left, right, left_class, right_class, {left_start, right_start});
      found = product(both, {left_start, right_start}, alive, max_states);
    }
    std::vector<int32_t> mine, theirs;
    for (auto [one, other] : found.pairs) mine.push_back(one), theirs.push_back(other);
    return nb::make_tuple(array_of(found.table), array_of(mine), array_of(theirs));
  });
  module.def("meet", [](IntTable left, FlagArray left_accepts, IntTable right, FlagArray right_accepts,
                        IntArray left_class, IntArray right_class, int32_t left_start, int32_t right_start,
                        int64_t max_pairs) {
    Unlocked unlocked;
    const Pairing both = pairing_of(left, right, left_class, right_class, {left_start, right_start});
    check_size("left_accepts", left_accepts.shape(0), both.left.num_rows);
    check_size("right_accepts", right_accepts.shape(0), both.right.num_rows);
    return meet(both, span_of(left_accepts), span_of(right_accepts), {left_start, right_start}, max_pairs);
  });
}

void bind_tables(nb::module_& module) {
  module.def("takes", [](IntArray starts, IntArray classes, IntTable table, FlagArray accepting, int32_t start,
                         IntArray points, Array<int64_t> lens) {
    const AlphabetView alphabet = alphabet_of(starts, classes);
    check_alphabet(alphabet, static_cast<int64_t>(table.shape(1)));
    check_index("start", start, static_cast<int64_t>(table.shape(0)));
    check_values("points", span_of(points), 0, NUM_CODE_POINTS);
    check_lens("lens", span_of(lens), points.shape(0));
    return flags_of(takes(alphabet, dfa_of(table, accepting), start, span_of(points), span_of(lens)));
  });
  module.def("distances",
             [](IntTable table, FlagArray accepting) { return array_of(distances(dfa_of(table, accepting))); });
  module.def("trimmed", [](IntTable table, FlagArray accepting, int32_t start) {
    const DfaView dfa = dfa_of(table, accepting);
    check_index("start", start, dfa.table.num_rows);
    Trimmed found = trimmed(dfa, start);
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting),
                          array_of(found.distance), found.start);
  });
  module.def("joined_classes", [](IntTable table) {
    check_table(view_of(table));
    Joined found = joined_classes(view_of(table));
    return nb::make_tuple(array_of(found.numbers), array_of(found.table));
  });
  module.def("alike_states", [](IntTable table, FlagArray accepting) {
    Alike found;
    {
      Unlocked unlocked;
      found = alike_states(dfa_of(table, accepting));
    }
    return nb::make_tuple(array_of(found.blocks), array_of(found.members));
  });
  module.def("least_lengths", [](IntTable table, FlagArray accepting, int64_t limit) {
    LeastLengths found = least_lengths(dfa_of(table, accepting), limit);
    return nb::make_tuple(array_of(found.least), found.tail);
  });
  module.def("minimal_acyclic", [](IntArray symbols, Array<int64_t> offsets, int32_t num_classes, int64_t max_cells) {
    check_number("num_classes", num_classes, 1, MOST_CLASSES);
    check_values("symbols", span_of(symbols), 1, num_classes);
    check_offsets("offsets", span_of(offsets), static_cast<int64_t>(symbols.shape(0)));
    Acyclic found{Table(0, 1), {}, 0};
    {
      Unlocked unlocked;
      found = minimal_acyclic(span_of(symbols), span_of(offsets), num_classes, max_cells);
    }
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting), found.start);
  });
}

// The text of a table, its live, costs and plain (zeros), and the greatest cost of a state that can be completed.
nb::tuple lay_out_text(IntTable table, FlagArray accepting, IntTable nodes, Array2<uint64_t> reach, IntTable node_costs,
                       Array<uint8_t> is_wide, IntArray num_ascii, int32_t start) {
  const DfaView dfa = dfa_of(table, accepting);
  const int64_t num_states = dfa.table.num_rows, num_classes = dfa.table.num_columns;
  const int64_t num_nodes = static_cast<int64_t>(nodes.shape(0)), num_words = static_cast<int64_t>(reach.shape(1));
  check_template(view_of(nodes), num_classes);
  check(num_states * num_nodes <= MAX_BYTE_STATES, "a table", "has too many states");
  check(static_cast<int64_t>(reach.shape(0)) == num_nodes && num_words == (num_classes + 63) >> 6, "reach",
        "is uint64[num_nodes, words of classes]");
  check(view_of(node_costs).num_rows == num_nodes && view_of(node_costs).num_columns == num_classes, "node_costs",
        "is int32[num_nodes, num_classes]");
  check_values("node_costs", std::span(node_costs.data(), node_costs.size()), 0, UNREACHABLE + 1);
  check_size("is_wide", is_wide.shape(0), num_classes);
  check_size("num_ascii", num_ascii.shape(0), num_classes);
  check_index("start", start, num_states);
  BoundText bound{{}, {}, sizeof(TextTable)};
  auto all_kept = std::make_shared<Kept>();
  std::vector<int32_t> costs = costs_of(dfa, node_costs.data());
  int32_t max_bytes = 0;
  for (int64_t state = 1; state < num_states; ++state) {
    if (costs[state] < NEVER) max_bytes = std::max(max_bytes, costs[state]);
  }
  const size_t num_rows = table.shape(0);
  auto live = shaped<uint64_t>(bits_of_rows(table.data(), num_states, num_classes), {num_rows, reach.shape(1)});
  auto costs_array = array_of(costs);
  auto plain = array_of(std::vector<int32_t>(num_rows));
  Kept& kept = *all_kept;
  bound.text = {.table = keep(kept, table), .accepts = reinterpret_cast<const uint8_t*>(keep(kept, accepting)),
                .first_node = keep(kept, nodes), .reach = keep(kept, reach), .live = keep(kept, nb::cast<Array2<uint64_t>>(live)),
                .costs = keep(kept, nb::cast<IntArray>(costs_array)), .node_costs = keep(kept, node_costs),
                .is_wide = keep(kept, is_wide), .num_ascii = keep(kept, num_ascii), .num_classes = num_classes,
                .num_nodes = num_nodes, .num_words = num_words, .start = start * num_nodes, .num_states = num_states};
  bound.text.max_length = -1;  // not counted
  bound.text.plain = keep(kept, nb::cast<nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>>(plain));
  bound.text.nodes = nodes.data();
  bound.kept = std::move(all_kept);
  return nb::make_tuple(std::move(bound), live, costs_array, plain, max_bytes);
}

// The same text with bounds on its number of characters.
BoundText counted(const BoundText& uncounted, int64_t minimum, int64_t maximum, IntTable least, int64_t tail,
                  int64_t widest, int64_t longest_way) {
  const int64_t period = static_cast<int64_t>(least.shape(1)) - tail;
  check_number("minimum", minimum, 0, MAX_LENGTH);
  check_number("maximum", maximum, 0, MAX_LENGTH);
  check_size("least", least.shape(0), uncounted.text.num_states);
  check(0 <= tail && 0 < period, "tail", "is not below the columns of least");
  check_values("least", std::span(least.data(), least.size()), 0, NEVER + 1);
  check_number("widest", widest, 0, MAX_COUNT);
  check_number("longest_way", longest_way, 0, MAX_LENGTH);
  auto kept = std::make_shared<Kept>(1, uncounted.kept);
  BoundText found{{}, uncounted.text, sizeof(TextTable)};
  TextTable& text = found.text;
  text.min_length = minimum, text.max_length = maximum;
  text.least = keep(*kept, least);
  text.tail = tail, text.period = period, text.widest = widest, text.longest_way = longest_way;
  found.kept = std::move(kept);
  return found;
}

void bind_text_class(nb::module_& module) {
  nb::class_<BoundText>(module, "Text")
      .def_prop_ro("start", [](const BoundText& bound) { return bound.text.start; })
      .def_prop_ro("num_states", [](const BoundText& bound) { return bound.text.num_states; })
      .def_prop_ro("num_nodes", [](const BoundText& bound) { return bound.text.num_nodes; })
      .def_ro("num_bytes", &BoundText::num_bytes)
      .def("counted", counted);
}

void bind_text_tables(nb::module_& module) {
  nb::class_<BoundWideKinds>(module, "WideKinds").def("__init__", make_wide);
  module.def("bits_of_rows", [](Array2<bool> flags) {
    const size_t num_rows = flags.shape(0), num_flags = flags.shape(1);
    return shaped<uint64_t>(bits_of_rows(flags.data(), num_rows, num_flags), {num_rows, (num_flags + 63) >> 6});
  });
  module.def("lay_out_text", lay_out_text);
  module.def("character_kinds", [](IntTable nodes, Array2<bool> reach, const BoundWideKinds& bound) {
    check(reach.shape(1) > 0 && reach.shape(1) <= MOST_CLASSES, "reach", "has no class or too many");
    check_size("reach", reach.shape(0), static_cast<int64_t>(nodes.shape(0)));
    check_template(view_of(nodes), static_cast<int64_t>(reach.shape(1)));
    const int64_t num_classes = static_cast<int64_t>(reach.shape(1));
    CharacterKinds found = character_kinds(view_of(nodes), reach.data(), num_classes, bound.wide);
    return nb::make_tuple(array_of(found.is_wide), array_of(found.num_ascii));
  });
  module.def("copies_of", [](const BoundText& bound) {
    const TextTable& text = bound.text;
    TextArrays found = copies_of(text);
    const size_t num_nodes = text.num_nodes, num_classes = text.num_classes;
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting),
                          array_of(found.costs), array_of(found.nodes),
                          shaped<bool>(found.reach, {num_nodes, num_classes}));
  });
  module.def("trie_except", [](Array<int64_t> symbols, Array<int64_t> lens, int64_t num_classes) {
    check_number("num_classes", num_classes, 1, MOST_CLASSES);
    check_values("symbols", span_of(symbols), 0, num_classes - 1);
    check_lens("lens", span_of(lens), symbols.shape(0));
    OtherTexts found = trie_except(span_of(symbols), span_of(lens), num_classes);
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting),
                          array_of(found.distance));
  });
  module.def("base_of_strings", [](IntTable nodes, IntTable byte_costs, Array<uint8_t> is_wide, IntArray num_ascii) {
    check_template(view_of(nodes), OTHER_CLASS + 1 + MOST_CLASSES);
    check_size("byte_costs", byte_costs.shape(0), static_cast<int64_t>(nodes.shape(0)));
    for (size_t size : {byte_costs.shape(1), is_wide.shape(0), num_ascii.shape(0)}) {
      check(size > OTHER_CLASS, "byte_costs, is_wide or num_ascii", "has too few classes");
    }
    return array_of(base_of_strings(view_of(nodes), view_of(byte_costs), span_of(is_wide), span_of(num_ascii)));
  });
  module.def("strings_except", [](nb::bytes texts, IntArray base) {
    const Bytes data{static_cast<const uint8_t*>(texts.data()), texts.size()};
    check_strings(data, span_of(base));
    std::vector<int64_t> found = strings_except(data, span_of(base));
    const int64_t num_bytes = static_cast<int64_t>(found.size() * sizeof(int64_t));
    const int64_t shortest = found[sizeof(TextTable) / 8];
    BoundText text{{}, {}, num_bytes};
    std::memcpy(&text.text, found.data(), sizeof(TextTable));
    auto kept = std::make_shared<Kept>();
    keep(*kept, base);
    kept->push_back(std::make_shared<std::vector<int64_t>>(std::move(found)));  // which moves nothing in it
    text.kept = std::move(kept);
    return nb::make_tuple(std::move(text), shortest);
  });
}

}  // namespace

void bind_text(nb::module_& module) {
  bind_alphabets(module);
  bind_products(module);
  bind_tables(module);
  bind_text_class(module);
  bind_text_tables(module);
}

}  // namespace phloem::fsm
