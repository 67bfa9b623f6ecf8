// Bindings: the construction of patterns, numbers, literals and vocabularies.
#include "arrays.h"
#include "bind.h"
#include "bound.h"
#include "checks.h"
#include "decimals.h"
#include "literal_trie.h"
#include "subsets.h"
#include "trie.h"
#include "unlocked.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using ByteArray = Array<uint8_t>;
using WordArray = Array<int64_t>;

constexpr int64_t MAX_DIGITS = 1 << 24;
constexpr int64_t MAX_UNITS = 1 << 28;
constexpr int MAX_INT64_PLACES = 18;  // decimal places: powers of ten that fit into 64 bits

Result<int64_t> rows_of(const std::vector<int64_t>& values, size_t num_columns) {
  const size_t num_rows = values.size() / num_columns;
  return shaped<int64_t>(values, {num_rows, num_columns});
}

void bind_patterns(nb::module_& module) {
  nb::enum_<Subsets>(module, "Subsets")
      .value("DONE", Subsets::DONE)
      .value("TOO_MANY_STATES", Subsets::TOO_MANY_STATES)
      .value("TOO_MUCH_WORK", Subsets::TOO_MUCH_WORK);
  module.def("subset_construction", [](IntArray kinds, IntArray args, IntArray next_nodes, IntArray others,
                                       Array<bool> universal, Array2<bool> has_class, int64_t max_states,
                                       int64_t max_work) {
    const Graph graph{span_of(kinds), span_of(args), span_of(next_nodes), span_of(others), span_of(universal),
                      has_class.data(), static_cast<int64_t>(has_class.shape(1))};
    check_graph(graph, static_cast<int64_t>(has_class.shape(0)));
    Determinised found{Table(0, 1), {}, Subsets::DONE};
    {
      Unlocked unlocked;
      found = subset_construction(graph, max_states, max_work);
    }
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting), found.status);
  });
}

void bind_decimals(nb::module_& module) {
  module.def("comparison", [](ByteArray whole, ByteArray fraction, int side, ByteArray wanted, bool with_point,
                              int32_t sign_class, int32_t point_class, int32_t zero_class) {
    check_number("zero_class", zero_class, 0, MOST_CLASSES);
    check_index("sign_class", sign_class, zero_class + 10);
    check_index("point_class", point_class, zero_class + 10);
    check(whole.shape(0) > 0, "whole", "has no digit");
    check_number("the digits", whole.shape(0) + fraction.shape(0), 1, MAX_DIGITS);
    check_size("wanted", wanted.shape(0), 3);
    Comparison found = comparison({span_of(whole), span_of(fraction), side}, span_of(wanted), with_point,
                                  {sign_class, point_class, zero_class});
    return nb::make_tuple(array_of(found.table), flags_of(found.accepting));
  });
  module.def("tried", [](int64_t numerator, int places, int decimals, int64_t num_units) {
    check_number("numerator", numerator, 1, std::numeric_limits<int64_t>::max());
    check_number("places", places, 0, MAX_INT64_PLACES);
    check_number("decimals", decimals, 0, places);
    int64_t most = std::numeric_limits<int64_t>::max();  // so that units times a power of ten do not overflow
    for (int place = decimals; place < places; ++place) most /= 10;
    check_number("num_units", num_units, 0, std::min(most, MAX_UNITS));
    return array_of(tried(numerator, places, decimals, num_units));
  });
  module.def("grouped", [](IntArray numbers) {
    check(numbers.shape(0) % 10 == 0, "numbers", "has part of a row of ten");
    Kinds found = grouped(span_of(numbers));
    return nb::make_tuple(array_of(found.rows), array_of(found.kinds));
  });
}

void bind_tries(nb::module_& module) {
  module.def("literal_trie", [](nb::bytes data, WordArray lens, int64_t end, int64_t first_node, int64_t first_option) {
    const Bytes bytes{static_cast<const uint8_t*>(data.data()), data.size()};
    check_lens("lens", span_of(lens), data.size());
    LiteralTrie found;
    {
      Unlocked unlocked;
      found = literal_trie(bytes, span_of(lens), end, first_node, first_option);
    }
    return nb::make_tuple(rows_of(std::move(found.nodes), 3), rows_of(std::move(found.spans), 2),
                          array_of(found.options), array_of(found.entries));
  });
  nb::class_<TokenTrie> trie(module, "TokenTrie");
  trie.def("__init__", [](TokenTrie* made, ByteArray joined, WordArray offsets, IntArray ids, IntArray next_same,
                          const BoundWideKinds& bound) {
    check_size("offsets", offsets.shape(0), static_cast<int64_t>(ids.shape(0)) + 1);
    check_offsets("offsets", span_of(offsets), static_cast<int64_t>(joined.shape(0)));
    for (size_t token = 0; token < ids.shape(0); ++token) {
      check_number("the length of a token", offsets.data()[token + 1] - offsets.data()[token], 1, MAX_TOKEN_LEN);
    }
    const int64_t num_tokens = static_cast<int64_t>(next_same.shape(0));
    check_values("ids", span_of(ids), 0, num_tokens);
    check_values("next_same", span_of(next_same), -1, num_tokens);
    for (int64_t token = 0; token < num_tokens; ++token) {  // so following it ends
      check(next_same.data()[token] < 0 || next_same.data()[token] > token, "next_same", "does not rise");
    }
    new (made) TokenTrie(build_trie(span_of(joined), span_of(offsets), span_of(ids), span_of(next_same), bound.wide));
  });
  auto array = [&](const char* name, auto field) {
    trie.def_prop_ro(name, [field](const TokenTrie& one) { return array_of(one.*field); });
  };
  array("node_bytes", &TokenTrie::bytes);
  array("node_ends", &TokenTrie::ends);
  array("node_tokens", &TokenTrie::tokens);
  array("root_nodes", &TokenTrie::roots);
  module.def("plain_lens", [](ByteArray bytes, IntArray offsets, uint64_t plain0, uint64_t plain1, int32_t limit) {
    check(offsets.shape(0) > 0, "offsets", "is empty");
    check_offsets("offsets", span_of(offsets), static_cast<int64_t>(bytes.shape(0)));
    return array_of(plain_lens(span_of(bytes), span_of(offsets), {plain0, plain1}, limit));
  });
  module.def("token_ends", [](const TokenTrie& trie, nb::bytes text, size_t begin, ByteArray follow) {
    const Bytes data{static_cast<const uint8_t*>(text.data()), text.size()};
    if (begin >= data.size()) throw nb::index_error("the position is not in the text");
    check_size("follow", follow.shape(0), 256);
    const TokenEnds found = token_ends(trie, data, begin, span_of(follow));
    nb::list listed;
    for (int32_t end : found.ends) listed.append(end);
    return nb::make_tuple(listed, found.is_open);
  });
}

}  // namespace

void bind_sources(nb::module_& module) {
  bind_patterns(module);
  bind_decimals(module);
  bind_tries(module);
}

}  // namespace phloem::fsm
