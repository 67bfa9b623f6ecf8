// Binds what text/ is made with: alphabets, tables over characters, and how they are laid out.
#include <algorithm>
#include <cstring>

#include "arrays.h"
#include "bind.h"
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

DfaView dfa_of(const IntTable& table, const FlagArray& accepting) { return {view_of(table), span_of(accepting)}; }

Pairing pairing_of(const IntTable& left, const IntTable& right, const IntArray& left_class,
                   const IntArray& right_class) {
  return {view_of(left), view_of(right), span_of(left_class), span_of(right_class)};
}

void bind_alphabets(nb::module_& module) {
  module.attr("UNREACHABLE") = UNREACHABLE;
  module.def("spell", [](IntArray starts, IntArray classes, int32_t num_classes, IntTable of_one_class) {
    return array_of(spell(alphabet_of(starts, classes), num_classes, view_of(of_one_class)));
  });
  module.def("with_escapes",
             [](IntTable nodes, int32_t quote) { return array_of(with_escapes(view_of(nodes), quote)); });
  module.def("classes_of_sets", [](IntArray firsts, IntArray lasts, IntArray set_ends) {
    SplitSets found = classes_of_sets(span_of(firsts), span_of(lasts), span_of(set_ends));
    Partition& partition = found.partition;
    return nb::make_tuple(array_of(std::move(partition.starts)), array_of(std::move(partition.classes)),
                          partition.num_classes, array_of(std::move(found.members)),
                          array_of(std::move(found.member_ends)));
  });
  module.def("common_classes", [](IntArray starts, IntArray classes, IntArray other_starts, IntArray other_classes) {
    Refined found = common_classes(alphabet_of(starts, classes), alphabet_of(other_starts, other_classes));
    Partition& partition = found.partition;
    return nb::make_tuple(array_of(std::move(partition.starts)), array_of(std::move(partition.classes)),
                          partition.num_classes, array_of(std::move(found.mine)), array_of(std::move(found.theirs)));
  });
  module.def("cut_out", [](IntArray points) {
    Partition found = cut_out(span_of(points));
    return nb::make_tuple(array_of(std::move(found.starts)), array_of(std::move(found.classes)));
  });
  module.def("completions", [](IntTable nodes, int32_t num_classes) {
    Completions found = completions(view_of(nodes), num_classes);
    auto reach = shaped<bool>(std::move(found.reach), {nodes.shape(0), static_cast<size_t>(num_classes)});
    return nb::make_tuple(reach, array_of(std::move(found.byte_costs)));
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
    {
      Unlocked unlocked;
      found = product(pairing_of(left, right, left_class, right_class), {left_start, right_start}, alive, max_states);
    }
    std::vector<int32_t> mine, theirs;
    for (auto [one, other] : found.pairs) mine.push_back(one), theirs.push_back(other);
    return nb::make_tuple(array_of(std::move(found.table)), array_of(std::move(mine)), array_of(std::move(theirs)));
  });
  module.def("meet", [](IntTable left, FlagArray left_accepts, IntTable right, FlagArray right_accepts,
                        IntArray left_class, IntArray right_class, int32_t left_start, int32_t right_start,
                        int64_t max_pairs) {
    Unlocked unlocked;
    return meet(pairing_of(left, right, left_class, right_class), span_of(left_accepts), span_of(right_accepts),
                {left_start, right_start}, max_pairs);
  });
}

void bind_tables(nb::module_& module) {
  module.def("takes", [](IntArray starts, IntArray classes, IntTable table, FlagArray accepting, int32_t start,
                         IntArray points, Array<int64_t> lens) {
    const AlphabetView alphabet = alphabet_of(starts, classes);
    return flags_of(takes(alphabet, dfa_of(table, accepting), start, span_of(points), span_of(lens)));
  });
  module.def("distances",
             [](IntTable table, FlagArray accepting) { return array_of(distances(dfa_of(table, accepting))); });
  module.def("trimmed", [](IntTable table, FlagArray accepting, int32_t start) {
    Trimmed found = trimmed(dfa_of(table, accepting), start);
    return nb::make_tuple(array_of(std::move(found.table)), flags_of(std::move(found.accepting)),
                          array_of(std::move(found.distance)), found.start);
  });
  module.def("joined_classes", [](IntTable table) {
    Joined found = joined_classes(view_of(table));
    return nb::make_tuple(array_of(std::move(found.numbers)), array_of(std::move(found.table)));
  });
  module.def("alike_states", [](IntTable table, FlagArray accepting) {
    Alike found;
    {
      Unlocked unlocked;
      found = alike_states(dfa_of(table, accepting));
    }
    return nb::make_tuple(array_of(std::move(found.blocks)), array_of(std::move(found.members)));
  });
  module.def("least_lengths", [](IntTable table, FlagArray accepting, int64_t limit) {
    LeastLengths found = least_lengths(dfa_of(table, accepting), limit);
    return nb::make_tuple(array_of(std::move(found.least)), found.tail);
  });
  module.def("minimal_acyclic", [](IntArray symbols, Array<int64_t> offsets, int32_t num_classes, int64_t max_cells) {
    Acyclic found{Table(0, 1), {}, 0};
    {
      Unlocked unlocked;
      found = minimal_acyclic(span_of(symbols), span_of(offsets), num_classes, max_cells);
    }
    return nb::make_tuple(array_of(std::move(found.table)), flags_of(std::move(found.accepting)), found.start);
  });
}

// live, costs, plain (zeros) and fields of a `TextTable`, and the greatest cost of a state that can be completed.
nb::tuple lay_out_text(IntTable table, FlagArray accepting, IntTable nodes, Array2<uint64_t> reach, IntTable node_costs,
                       Array<uint8_t> is_wide, IntArray num_ascii, int32_t start) {
  const size_t num_states = table.shape(0), num_classes = table.shape(1), num_words = reach.shape(1);
  std::vector<int32_t> costs = costs_of(dfa_of(table, accepting), node_costs.data());
  int32_t max_bytes = 0;
  for (size_t state = 1; state < num_states; ++state) {
    if (costs[state] < NEVER) max_bytes = std::max(max_bytes, costs[state]);
  }
  auto live = shaped<uint64_t>(bits_of_rows(table.data(), num_states, num_classes), {num_states, num_words});
  auto costs_array = array_of(std::move(costs));
  auto plain = array_of(std::vector<int32_t>(num_states));
  TextTable text{.table = table.data(), .accepts = reinterpret_cast<const uint8_t*>(accepting.data()),
                 .first_node = nodes.data(), .reach = reach.data(), .live = live.data(), .costs = costs_array.data(),
                 .node_costs = node_costs.data(), .is_wide = is_wide.data(), .num_ascii = num_ascii.data(),
                 .num_classes = static_cast<int64_t>(num_classes), .num_nodes = static_cast<int64_t>(nodes.shape(0)),
                 .num_words = static_cast<int64_t>(num_words),
                 .start = start * static_cast<int64_t>(nodes.shape(0)), .num_states = static_cast<int64_t>(num_states)};
  text.max_length = -1;  // not counted
  text.plain = plain.data();
  text.nodes = nodes.data();
  std::vector<int64_t> fields(sizeof text / 8);
  std::memcpy(fields.data(), &text, sizeof text);
  return nb::make_tuple(live, costs_array, plain, array_of(std::move(fields)), max_bytes);
}

void bind_text_tables(nb::module_& module) {
  module.def("bits_of_rows", [](Array2<bool> flags) {
    const size_t num_rows = flags.shape(0), num_flags = flags.shape(1);
    return shaped<uint64_t>(bits_of_rows(flags.data(), num_rows, num_flags), {num_rows, (num_flags + 63) >> 6});
  });
  module.def("lay_out_text", lay_out_text);
  module.def("character_kinds", [](IntTable nodes, Array2<bool> reach, IntTable wide_nodes, Array<uint8_t> kinds,
                                   Array<uint8_t> below) {
    const WideKinds wide{view_of(wide_nodes), span_of(kinds), span_of(below)};
    CharacterKinds found = character_kinds(view_of(nodes), reach.data(), static_cast<int64_t>(reach.shape(1)), wide);
    return nb::make_tuple(array_of(std::move(found.is_wide)), array_of(std::move(found.num_ascii)));
  });
  module.def("copies_of", [](Array<int64_t> fields) {
    const TextTable& text = *reinterpret_cast<const TextTable*>(fields.data());
    TextArrays found = copies_of(text);
    const size_t num_nodes = text.num_nodes, num_classes = text.num_classes;
    return nb::make_tuple(array_of(std::move(found.table)), flags_of(std::move(found.accepting)),
                          array_of(std::move(found.costs)), array_of(std::move(found.nodes)),
                          shaped<bool>(std::move(found.reach), {num_nodes, num_classes}));
  });
  module.def("trie_except", [](Array<int64_t> symbols, Array<int64_t> lens, int64_t num_classes) {
    OtherTexts found = trie_except(span_of(symbols), span_of(lens), num_classes);
    return nb::make_tuple(array_of(std::move(found.table)), flags_of(std::move(found.accepting)),
                          array_of(std::move(found.distance)));
  });
  module.def("base_of_strings", [](IntTable nodes, IntTable byte_costs, Array<uint8_t> is_wide, IntArray num_ascii) {
    return array_of(base_of_strings(view_of(nodes), view_of(byte_costs), span_of(is_wide), span_of(num_ascii)));
  });
  module.def("strings_except", [](nb::bytes texts, IntArray base) {
    const Bytes data{static_cast<const uint8_t*>(texts.data()), texts.size()};
    return array_of(strings_except(data, span_of(base)));
  });
}

}  // namespace

void bind_text(nb::module_& module) {
  bind_alphabets(module);
  bind_products(module);
  bind_tables(module);
  bind_text_tables(module);
}

}  // namespace phloem::fsm
