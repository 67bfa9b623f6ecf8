// Binds the rows of tokens, and the search for the least number of tokens.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "bound.h"
#include "mask_rows.h"
#include "search.h"
#include "text_walk.h"
#include "unlocked.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using Self = BoundAutomaton;

const TextTable& text_of(const Array<int64_t>& fields) { return *reinterpret_cast<const TextTable*>(fields.data()); }

const TokenTrie& trie_of(const Automaton& automaton, bool in_rest) {
  return in_rest ? automaton.vocabulary.rest : automaton.vocabulary.whole;
}

// A text in which a state stands, with the state after it and the cost of that.
struct TextAhead {
  TextGroup group;
  int64_t after;
  int32_t cost;
};

struct BegunRow {
  int64_t worst = 0, num_texts = 0, rest = 0;
  std::vector<TextAhead> texts;
};

BegunRow begin_row(Automaton& automaton, int64_t state, size_t max_texts, int32_t* bits) {
  BegunRow found;
  std::vector<TextGroup> groups;
  const int64_t num_others = automaton.text_groups(state, groups);
  found.num_texts = static_cast<int64_t>(groups.size());
  if (groups.empty()) {
    std::fill_n(bits, automaton.vocabulary.num_words, 0);
    found.worst = walk(automaton, state, bits);
    add_eos(automaton, state, bits);
    return found;
  }
  if (groups.size() > max_texts) return found;
  for (const TextGroup& group : groups) {
    const int64_t after = automaton.after_text(state, group.index);
    found.texts.push_back({group, after, automaton.states[after].cost});
  }
  if (num_others) found.rest = automaton.without_texts(state, 0);
  return found;
}

nb::tuple bound_begin_row(Self& self, int64_t state, size_t max_texts, Bits bits) {
  const BegunRow found =
      locked(self, [&](Automaton& automaton) { return begin_row(automaton, state, max_texts, bits.data()); });
  nb::list texts;
  for (const auto& [group, after, cost] : found.texts) {
    texts.append(nb::make_tuple(group.text, group.sub, group.count, after, cost));
  }
  return nb::make_tuple(found.worst, found.num_texts, found.rest, texts);
}

int64_t row_in_text(Automaton& automaton, int64_t state, int64_t after, int64_t rest, bool in_rest,
                    const IntArray& inside, Ints exits, Ints starts, int32_t* bits) {
  std::copy_n(inside.data(), automaton.vocabulary.num_words, bits);
  int64_t worst = 0;
  if (!starts.empty()) worst = walk_exits(automaton, trie_of(automaton, in_rest), after, exits, starts, bits);
  if (rest) worst = std::max(worst, walk(automaton, rest, bits));
  add_eos(automaton, state, bits);
  return worst;
}

std::span<const int32_t> span_of(const std::optional<IntArray>& array) {
  return array ? std::span(array->data(), array->shape(0)) : std::span<const int32_t>();
}

nb::tuple bound_walk_text(Self& self, Array<int64_t> fields, int64_t sub, int64_t count, int64_t limit, bool with_exits,
                          Bits bits) {
  TextWalk found = locked(self, [&](Automaton& automaton) {
    return walk_text(automaton.vocabulary, automaton.scratch(), text_of(fields), {sub, count}, limit, with_exits,
                     bits.data());
  });
  if (!with_exits) return nb::make_tuple(found.worst, found.in_rest, nb::none(), nb::none());
  std::vector<int32_t> starts(257);
  std::vector<int32_t> exits = group_exits(trie_of(self.automaton, found.in_rest), found.exits, starts.data());
  return nb::make_tuple(found.worst, found.in_rest, array_of(std::move(exits)), array_of(std::move(starts)));
}

void bind_rows(nb::class_<BoundAutomaton>& bound) {
  bound.def("begin_row", bound_begin_row);
  bound.def("row_in_text", [](Self& self, int64_t state, int64_t after, int64_t rest, bool in_rest, IntArray inside,
                              std::optional<IntArray> exits, std::optional<IntArray> starts, Bits bits) {
    return locked(self, [&](Automaton& automaton) {
      return row_in_text(automaton, state, after, rest, in_rest, inside, span_of(exits), span_of(starts), bits.data());
    });
  }, nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none(), nb::arg());
  bound.def("walk", [](Self& self, int64_t state, Bits bits) {
    return locked(self, [&](Automaton& automaton) { return walk(automaton, state, bits.data()); });
  });
  bound.def("walk_exits", [](Self& self, bool in_rest, int64_t state, IntArray exits, IntArray starts, Bits bits) {
    return locked(self, [&](Automaton& automaton) {
      const Ints all(exits.data(), exits.shape(0)), begins(starts.data(), starts.shape(0));
      return walk_exits(automaton, trie_of(automaton, in_rest), state, all, begins, bits.data());
    });
  });
  bound.def("targets", [](Self& self, int64_t state, IntArray bits) {
    std::vector<int32_t> found(self.automaton.vocabulary.num_tokens);
    locked(self, [&](Automaton& automaton) { token_targets(automaton, state, bits.data(), found.data()); });
    return array_of(std::move(found));
  });
  bound.def("walk_text", bound_walk_text);
  bound.def("text_targets", [](Self& self, Array<int64_t> fields, int64_t sub, int64_t count) {
    std::vector<int64_t> found(self.automaton.vocabulary.num_tokens);
    locked(self, [&](Automaton& automaton) {
      text_targets(automaton.vocabulary, automaton.scratch(), text_of(fields), {sub, count}, found.data());
    });
    return array_of(std::move(found));
  });
}

// A search as Python holds it. It takes a breath now and then: others may use the automaton then.
struct BoundSearch {
  BoundAutomaton& self;
  Search search;

  BoundSearch(BoundAutomaton& automaton, int64_t num_members, int64_t parts_work)
      : self(automaton), search(automaton.automaton, num_members, parts_work) {}

  template <class Function>
  int64_t call(Function function) {
    int64_t breath = FIRST_BREATH, progress = 0;
    locked(self, [&](Automaton&) { search.begin_call(); });
    for (;;) {
      try {
        return locked(self, [&](Automaton& automaton) {
          automaton.breath = breath;
          progress = search.progress();
          return function();
        });
      } catch (const OutOfBreath&) {  // as long again if that has brought nothing, since it may begin anew
        breath = search.progress() != progress ? FIRST_BREATH : std::min(2 * breath, ENDLESS);
        ++num_breaths;
        Unlocked unlocked;
        std::this_thread::yield();
      }
    }
  }

  int64_t num_breaths = 0;
  static constexpr int64_t FIRST_BREATH = 1 << 16;  // configurations: some milliseconds
};

void bind_search(nb::module_& module) {
  nb::class_<Judged>(module, "Judged").def(nb::init<>());
  nb::class_<BoundSearch>(module, "Search")
      .def(nb::init<BoundAutomaton&, int64_t, int64_t>(), nb::keep_alive<1, 2>())
      .def_prop_ro("num_bytes", [](BoundSearch& bound) {
        return locked(bound.self, [&](Automaton&) { return bound.search.num_bytes(); });
      })
      .def_prop_ro("is_exact", [](BoundSearch& bound) {
        return locked(bound.self, [&](Automaton&) { return bound.search.is_exact(); });
      })
      .def_ro("num_breaths", &BoundSearch::num_breaths)
      .def("known", [](BoundSearch& bound, int64_t state) {
        return locked(bound.self, [&](Automaton&) { return bound.search.known(state); });
      })
      .def("least_tokens", [](BoundSearch& bound, int64_t state) {
        return bound.call([&] { return bound.search.least_tokens(state); });
      })
      .def("keep_within", [](BoundSearch& bound, int64_t state, Bits bits, int64_t limit, int64_t most_bytes,
                             Judged& judged) {
        return bound.call([&] { return bound.search.keep_within(state, bits.data(), limit, most_bytes, judged); });
      });
}

}  // namespace

void bind_masks(nb::module_& module) {
  nb::class_<BoundAutomaton> bound = nb::borrow<nb::class_<BoundAutomaton>>(module.attr("Automaton"));
  bind_rows(bound);
  bind_search(module);
  module.def("are_alike", [](Array<int64_t> fields, int32_t left, int32_t right, int64_t num_steps, size_t max_pairs) {
    return are_alike(text_of(fields), left, right, num_steps, max_pairs);
  });
  module.def("hash_row", [](IntArray words) { return hash_row({words.data(), words.shape(0)}); });
  module.def("is_same_row", [](IntArray one, IntArray other) {
    return is_same_row({one.data(), one.shape(0)}, {other.data(), other.shape(0)});
  });
  module.def("num_tokens_in", [](IntArray words) { return num_tokens_in({words.data(), words.shape(0)}); });
}

}  // namespace phloem::fsm
