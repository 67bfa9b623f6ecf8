// Bindings: rows of token masks, and shortest completions.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "bound.h"
#include "completions.h"
#include "mask_rows.h"
#include "text_walk.h"
#include "unlocked.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using Self = BoundAutomaton;

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

// What a row is written or compared to is as long as all rows are.
void check_bits(const Self& self, const Bits& bits) { check_row(self.automaton.vocabulary, "bits", bits.shape(0)); }

void check_exits(const TokenTrie& trie, Ints exits, Ints starts) {
  check_size("starts", starts.size(), 257);
  check_offsets("starts", starts, static_cast<int64_t>(exits.size()));
  check_values("exits", exits, 0, trie.size());
}

void check_place(const TextTable& text, int64_t sub, int64_t count) {
  check_index("state of the text", sub, text.num_states * text.num_nodes);
  check_number("count", count, 0, MAX_COUNT);
}

nb::tuple bound_begin_row(Self& self, int64_t state, size_t max_texts, Bits bits) {
  check_bits(self, bits);
  const BegunRow found =
      locked_at(self, state, [&](Automaton& automaton) { return begin_row(automaton, state, max_texts, bits.data()); });
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

int64_t bound_row_in_text(Self& self, int64_t state, int64_t after, int64_t rest, bool in_rest, IntArray inside,
                          std::optional<IntArray> exits, std::optional<IntArray> starts, Bits bits) {
  check_bits(self, bits);
  check_row(self.automaton.vocabulary, "inside", inside.shape(0));
  if (starts) check_exits(trie_of(self.automaton, in_rest), span_of(exits), span_of(starts));
  return locked_at(self, state, [&](Automaton& automaton) {
    check_index("state", after, automaton.states.size());
    check_index("state", rest, automaton.states.size());
    return row_in_text(automaton, state, after, rest, in_rest, inside, span_of(exits), span_of(starts), bits.data());
  });
}

int64_t bound_walk_exits(Self& self, bool in_rest, int64_t state, IntArray exits, IntArray starts, Bits bits) {
  check_bits(self, bits);
  const Ints all = span_of(exits), begins = span_of(starts);
  check_exits(trie_of(self.automaton, in_rest), all, begins);
  return locked_at(self, state, [&](Automaton& automaton) {
    return walk_exits(automaton, trie_of(automaton, in_rest), state, all, begins, bits.data());
  });
}

nb::tuple bound_walk_text(Self& self, const BoundText& bound, int64_t sub, int64_t count, int64_t limit,
                          bool with_exits, Bits bits) {
  check_bits(self, bits);
  check_place(bound.text, sub, count);
  TextWalk found = locked(self, [&](Automaton& automaton) {
    return walk_text(automaton.vocabulary, automaton.scratch(), bound.text, {sub, count}, limit, with_exits, bits.data());
  });
  if (!with_exits) return nb::make_tuple(found.worst, found.in_rest, nb::none(), nb::none());
  std::vector<int32_t> starts(257);
  std::vector<int32_t> exits = group_exits(trie_of(self.automaton, found.in_rest), found.exits, starts.data());
  return nb::make_tuple(found.worst, found.in_rest, array_of(exits), array_of(starts));
}

void bind_rows(nb::class_<BoundAutomaton>& bound) {
  const nb::arg given;
  const auto written = nb::arg().noconvert();  // a copy would be written to in vain
  bound.def("begin_row", bound_begin_row, given, given, written);
  bound.def("row_in_text", bound_row_in_text, given, given, given, given, given, nb::arg().none(), nb::arg().none(),
            written);
  bound.def("walk", [](Self& self, int64_t state, Bits bits) {
    check_bits(self, bits);
    return locked_at(self, state, [&](Automaton& automaton) { return walk(automaton, state, bits.data()); });
  }, given, written);
  bound.def("walk_exits", bound_walk_exits, given, given, given, given, written);
  bound.def("targets", [](Self& self, int64_t state, IntArray bits) {
    check_row(self.automaton.vocabulary, "bits", bits.shape(0));
    std::vector<int32_t> found(self.automaton.vocabulary.num_tokens);
    locked_at(self, state, [&](Automaton& automaton) {
      for (size_t token = 0; token < found.size(); ++token) {
        if (has_bit(bits.data(), token)) found[token] = static_cast<int32_t>(automaton.advance(state, token));
      }
    });
    return array_of(found);
  });
  bound.def("walk_text", bound_walk_text, given, given, given, given, given, written);
}

// Completions as a Python object. A long call pauses ("takes a breath") every few milliseconds, so that other threads
// can use the automaton.
struct BoundCompletions {
  BoundAutomaton& self;
  CompletionBounds completions;

  explicit BoundCompletions(BoundAutomaton& automaton) : self(automaton), completions(automaton.automaton) {}

  // Calls function() for a state, again after each breath. All that calls share is read and written inside `locked`.
  template <class Function>
  int64_t call(int64_t state, Function function) {
    check(state != 0, "state", "is the dead one");
    locked_at(self, state, [](Automaton&) {});
    for (int64_t breath = FIRST_BREATH;;) {
      const std::optional<int64_t> found = locked(self, [&](Automaton& automaton) -> std::optional<int64_t> {
        automaton.breath = breath;
        const int64_t before = completions.progress();
        try {
          return function();
        } catch (const OutOfBreath&) {  // as long again if that has brought nothing, since it may begin anew
          breath = completions.progress() != before ? FIRST_BREATH : std::min(2 * breath, ENDLESS);
          ++num_breaths;
          return std::nullopt;
        }
      });
      if (found) return *found;
      Unlocked unlocked;
      std::this_thread::yield();
    }
  }

  int64_t num_breaths = 0;  // guarded by the lock of the automaton
  static constexpr int64_t FIRST_BREATH = 1 << 16;  // configurations: some milliseconds
};

void bind_completions(nb::module_& module) {
  using Bound = BoundCompletions;
  nb::class_<Judged>(module, "Judged").def(nb::init<>());
  nb::class_<Bound>(module, "CompletionBounds")
      .def(nb::init<BoundAutomaton&>(), nb::keep_alive<1, 2>())
      .def_prop_ro("num_bytes", [](Bound& bound) {
        return locked(bound.self, [&](Automaton&) { return bound.completions.num_bytes(); });
      })
      .def_prop_ro("num_breaths", [](Bound& bound) {
        return locked(bound.self, [&](Automaton&) { return bound.num_breaths; });
      })
      .def("known", [](Bound& bound, int64_t state) {
        return locked_at(bound.self, state, [&](Automaton&) { return bound.completions.known(state); });
      })
      .def("tokens", [](Bound& bound, int64_t state) {
        return bound.call(state, [&] { return bound.completions.tokens(state); });
      })
      .def("keys", [](Bound& bound, int64_t state) {
        return bound.call(state, [&] { return bound.completions.keys(state); });
      })
      .def("later_keys", [](Bound& bound, int64_t state) {
        return bound.call(state, [&] { return bound.completions.later_keys(state); });
      })
      .def("keep_within", [](Bound& bound, int64_t state, Bits bits, int64_t limit, int64_t most_bytes,
                             Judged& judged) {
        check_bits(bound.self, bits);
        check(judged.begin(&bound.self.automaton, state), "judged", "was begun for another state");
        return bound.call(state, [&] {
          return bound.completions.keep_within(state, bits.data(), limit, most_bytes, judged);
        });
      }, nb::arg(), nb::arg().noconvert(), nb::arg(), nb::arg(), nb::arg());
}

}  // namespace

void bind_masks(nb::module_& module) {
  nb::class_<BoundAutomaton> bound = nb::borrow<nb::class_<BoundAutomaton>>(module.attr("Automaton"));
  bind_rows(bound);
  bind_completions(module);
  module.def("are_alike", [](const BoundText& bound, int32_t left, int32_t right, int64_t num_steps, size_t max_pairs) {
    check_index("state", left, bound.text.num_states);
    check_index("state", right, bound.text.num_states);
    return are_alike(bound.text, left, right, num_steps, max_pairs);
  });
  module.def("hash_row", [](IntArray words) { return hash_row({words.data(), words.shape(0)}); });
  module.def("is_same_row", [](IntArray one, IntArray other) {
    return is_same_row({one.data(), one.shape(0)}, {other.data(), other.shape(0)});
  });
}

}  // namespace phloem::fsm
