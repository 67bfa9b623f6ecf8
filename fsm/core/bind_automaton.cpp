// Bindings: vocabularies, networks, and the states and steps of automata.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "bound.h"
#include "laying.h"
#include "text_walk.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using ByteArray = Array<uint8_t>;

void make_vocabulary(BoundVocabulary* made, const TokenTrie& whole, const TokenTrie& rest, ByteArray token_bytes,
                     IntArray token_offsets, Array2<int32_t> plain_rows, IntArray all_tokens, IntArray eos) {
  check_offsets("token_offsets", span_of(token_offsets), static_cast<int64_t>(token_bytes.shape(0)));
  const int64_t num_tokens = static_cast<int64_t>(whole.next_same.size());
  check_size("rest", rest.next_same.size(), num_tokens);
  check_size("token_offsets", token_offsets.shape(0), num_tokens + 1);
  check(num_tokens <= 32 * static_cast<int64_t>(all_tokens.shape(0)), "all_tokens", "is shorter than the vocabulary");
  check_size("plain_rows", plain_rows.shape(0), NUM_PLAIN_ROWS + 1);
  check_size("plain_rows", plain_rows.shape(1), static_cast<int64_t>(all_tokens.shape(0)));
  check_size("eos", eos.shape(0), static_cast<int64_t>(all_tokens.shape(0)));
  new (made) BoundVocabulary(whole, rest);
  Kept& kept = made->kept;
  Vocabulary& vocabulary = made->vocabulary;
  vocabulary.token_bytes = keep(kept, token_bytes);
  vocabulary.token_offsets = keep(kept, token_offsets);
  vocabulary.plain_rows = keep(kept, plain_rows);
  vocabulary.all_tokens = keep(kept, all_tokens);
  vocabulary.eos = keep(kept, eos);
  vocabulary.num_words = static_cast<int64_t>(all_tokens.shape(0));
  vocabulary.num_tokens = num_tokens;
}

void make_arrays(NetworkArrays* made, IntArray packed, nb::bytes literals) {
  const Bytes data = bytes_of(literals);
  Unlocked unlocked;
  new (made) NetworkArrays(lay_out(span_of(packed), data));
}

// The nodes at which the members of a set go on, and whether others may stand among them.
std::pair<std::vector<int32_t>, bool> members_of(const NetworkArrays& laid, int64_t number) {
  check_index("set", number, static_cast<int64_t>(laid.sets.size()));
  const Set& set = laid.sets[number];
  std::vector<int32_t> entries;
  for (const Member& member : std::span(laid.members).subspan(set.members, set.num_members)) {
    entries.push_back(member.entry);
  }
  return {entries, set.num_others > 0};
}

void bind_networks(nb::module_& module) {
  nb::class_<NetworkArrays> bound(module, "NetworkArrays");
  bound.def("__init__", make_arrays).def("members", members_of).def_prop_ro("num_bytes", &NetworkArrays::num_bytes);
  auto array = [&](const char* name, auto field) {
    bound.def_prop_ro(name, [field](const NetworkArrays& laid) { return array_of(laid.*field); });
  };
  array("kinds", &NetworkArrays::kinds);
  array("args", &NetworkArrays::args);
  array("nexts", &NetworkArrays::nexts);
  array("costs", &NetworkArrays::costs);
  array("options", &NetworkArrays::options);
  array("entries", &NetworkArrays::entries);
  bound.def_prop_ro("num_nodes", [](const NetworkArrays& laid) { return laid.kinds.size(); });
  bound.def_prop_ro("start", [](const NetworkArrays& laid) { return laid.entries[0]; });
  bound.def_prop_ro("shortest", [](const NetworkArrays& laid) { return laid.costs[laid.entries[0]]; });
  bound.def_prop_ro("loops", [](const NetworkArrays& laid) {
    std::vector<std::tuple<int32_t, int32_t, int32_t, int32_t>> found;
    for (const Loop& loop : laid.loops) found.emplace_back(loop.entry, loop.minimum, loop.maximum, loop.cost);
    return found;
  });
  bound.def_prop_ro("set_bytes", [](const NetworkArrays& laid) {
    std::vector<int32_t> found;
    for (const Edge& edge : laid.edges) found.push_back(edge.byte);
    return array_of(found);
  });
}

void make_automaton(BoundAutomaton* made, BoundVocabulary& vocabulary, const NetworkArrays& laid,
                    Array2<uint64_t> byte_sets, const std::vector<const BoundText*>& texts, ByteArray is_key,
                    int64_t max_bytes) {
  check_number("max_bytes", max_bytes, 0, ENDLESS);
  check_size("byte_sets", byte_sets.shape(1), 4);
  check(static_cast<int64_t>(byte_sets.shape(0)) >= laid.num_byte_sets, "byte_sets", "are too few");
  check_size("texts", texts.size(), laid.num_texts);
  check_size("is_key", is_key.shape(0), static_cast<int64_t>(texts.size()));
  check_values("is_key", span_of(is_key), 0, AN_EDGE + 1);
  Kept kept;
  std::vector<TextTable> tables;
  for (size_t index = 0; index < texts.size(); ++index) {
    check(texts[index] != nullptr, "texts", "has a None");
    kept.push_back(texts[index]->kept);
    tables.push_back(texts[index]->text);
    tables.back().is_key = is_key.data()[index];
  }
  const Network network = network_of(laid, keep(kept, byte_sets), tables);
  new (made) BoundAutomaton(std::move(kept), std::move(tables), network, vocabulary, max_bytes);
  Automaton& automaton = made->automaton;
  try {
    automaton.start = locked(automaton, [](Automaton& one) { return one.enter(one.states.network.start, 0); });
  } catch (...) {  // what was not constructed is not destroyed
    made->~BoundAutomaton();
    throw;
  }
}

std::vector<std::tuple<int64_t, int64_t, int64_t>> configurations(BoundAutomaton& self, int64_t state) {
  return locked_at(self, state, [&](Automaton& automaton) {
    std::vector<std::tuple<int64_t, int64_t, int64_t>> found;
    for (int64_t key : automaton.states.of(state)) found.emplace_back(node_of(key), sub_of(key), stack_of(key));
    return found;
  });
}

using TextTuple = std::tuple<int64_t, int64_t, int64_t, int64_t>;

std::pair<std::vector<TextTuple>, bool> texts_of(BoundAutomaton& self, int64_t state) {
  return locked_at(self, state, [&](Automaton& automaton) {
    std::vector<TextGroup> groups;
    const bool is_elsewhere = automaton.text_groups(state, groups) > 0;
    std::vector<TextTuple> found;
    for (const TextGroup& group : groups) found.emplace_back(group.index, group.text, group.sub, group.count);
    return std::pair(found, is_elsewhere);
  });
}

bool state_stays_on_plain(const Automaton& automaton, int64_t state) {
  for (int64_t key : automaton.states.of(state)) {
    const int64_t node = node_of(key);
    if (automaton.states.network.kinds[node] != K_TEXT) return false;
    const TextTable& text = automaton.states.network.text_at(node);
    const int64_t sub = sub_of(key);
    if (is_counted(text) || sub % text.num_nodes || !stays_on_plain(text, sub / text.num_nodes)) return false;
  }
  return automaton.states[state].size > 0;
}

void bind_questions(nb::class_<BoundAutomaton>& bound) {
  using Self = BoundAutomaton;
  auto field = [&](const char* name, auto get) {
    bound.def(name, [get](Self& self, int64_t state) {
      return locked_at(self, state, [&](Automaton& automaton) { return get(automaton.states[state]); });
    });
  };
  field("is_accepting", [](const State& state) { return state.accepts != 0; });
  field("has_bytes", [](const State& state) { return state.size != 0; });
  field("min_bytes", [](const State& state) { return state.cost; });
  field("key_place", [](const State& state) { return state.key & PLACE_MASK; });
  bound.def_prop_ro("start", [](Self& self) { return self.automaton.start; });
  bound.def("configurations", configurations);
  bound.def("texts", texts_of);
  bound.def("frame", [](Self& self, int64_t stack) {
    const Frame frame = locked(self, [&](Automaton& automaton) {
      check_index("stack", stack, automaton.states.stacks.size());
      return automaton.states.stacks[stack];
    });
    return std::tuple(frame.node, frame.count, frame.owed, frame.parent, frame.cost);
  });
  bound.def("live_bytes", [](Self& self, int64_t state) {
    std::vector<uint8_t> live(256);
    locked_at(self, state, [&](Automaton& automaton) { automaton.live_bytes(state, live.data()); });
    return array_of(live);
  });
  bound.def("stays_on_plain", [](Self& self, int64_t state) {
    return locked_at(self, state, [&](Automaton& automaton) { return state_stays_on_plain(automaton, state); });
  });
}

void bind_moves(nb::class_<BoundAutomaton>& bound) {
  using Self = BoundAutomaton;
  bound.def("advance", [](Self& self, int64_t state, int64_t token) {
    check_index("token", token, self.automaton.vocabulary.num_tokens);
    return locked_at(self, state, [&](Automaton& automaton) { return automaton.advance(state, token); });
  });
  bound.def("advance_bytes", [](Self& self, int64_t state, nb::bytes data) {
    return locked_at(self, state, [&](Automaton& automaton) { return automaton.advance_bytes(state, bytes_of(data)); });
  });
  bound.def("after_text", [](Self& self, int64_t state, int64_t configuration) {
    return locked_at(self, state, [&](Automaton& automaton) {
      check_index("configuration", configuration, automaton.states[state].size);
      const int64_t node = node_of(automaton.states.of(state)[configuration]);
      check(automaton.states.network.kinds[node] == K_TEXT, "configuration", "is not in a text");
      return automaton.after_text(state, configuration);
    });
  });
  bound.def("without_texts", [](Self& self, int64_t state) {
    return locked_at(self, state, [&](Automaton& automaton) { return automaton.without_texts(state, 0); });
  });
  bound.def("without_items", [](Self& self, int64_t state) {
    return locked_at(self, state, [&](Automaton& automaton) { return automaton.without_texts(state, AN_ITEM); });
  });
  bound.def("without_edges", [](Self& self, int64_t state) {
    return locked_at(self, state, [&](Automaton& automaton) { return automaton.without_texts(state, AN_EDGE); });
  });
  bound.def("forced_run", [](Self& self, int64_t state, size_t max_bytes) {
    std::vector<uint8_t> run;
    const int64_t target =
        locked_at(self, state, [&](Automaton& automaton) { return automaton.forced_run(state, max_bytes, run); });
    return std::pair(nb::bytes(run.data(), run.size()), target);
  });
}

void bind_room(nb::class_<BoundAutomaton>& bound) {
  using Self = BoundAutomaton;
  bound.def_prop_ro("max_bytes", [](Self& self) { return self.automaton.budget.max_bytes(); });
  bound.def_prop_ro("lasting_bytes", [](Self& self) { return self.automaton.budget.held(); });
  auto number = [&](const char* name, auto get) {
    bound.def_prop_ro(name, [get](Self& self) { return locked(self, get); });
  };
  number("num_states", [](Automaton& automaton) { return automaton.states.size(); });
  number("num_bytes", [](Automaton& automaton) { return automaton.budget.held() + automaton.rows.num_bytes(); });
  number("num_forgotten", [](Automaton& automaton) { return automaton.rows.num_given_way(); });
  number("num_stacks", [](Automaton& automaton) { return automaton.states.stacks.size(); });
  number("num_configurations", [](Automaton& automaton) { return automaton.states.pool_size(); });
  bound.def("is_filled", [](Self& self, double share) {
    const double held = static_cast<double>(self.automaton.budget.held());
    const double most_stacks = share * static_cast<double>(STACK_MASK);
    if (held > share * static_cast<double>(self.automaton.budget.max_bytes())) return true;
    if (held <= most_stacks * sizeof(Frame)) return false;  // nearly always: the bound exceeds what there is
    return locked(self, [&](Automaton& one) { return static_cast<double>(one.states.stacks.size()) > most_stacks; });
  });
  bound.def("allow", [](Self& self, int64_t work) {
    check_number("work", work, -ENDLESS, ENDLESS);
    locked(self, [&](Automaton& automaton) { automaton.allow(work); });
  });
  bound.def("give_up", [](Self& self) {
    return locked(self, [](Automaton& automaton) { return automaton.give_up(); });
  });
  bound.def("charge", [](Self& self, int64_t work) {
    check_number("work", work, 0, ENDLESS);
    return locked(self, [&](Automaton& automaton) { return automaton.charge(work); });
  });
  bound.def("spend", [](Self& self, int64_t work) {
    check_number("work", work, 0, ENDLESS);
    locked(self, [&](Automaton& automaton) {
      if (!automaton.charge(0)) throw OutOfWork();
      automaton.charge(work);
    });
  });
}

void raise_too_large(const std::exception_ptr& thrown, void*) {
  try {
    std::rethrow_exception(thrown);
  } catch (const TooLarge& error) {
    PyErr_SetString(nb::module_::import_("phloem.errors").attr("ConstraintTooLarge").ptr(), error.what());
  }
}

void raise_out_of_work(const std::exception_ptr& thrown, void* type) {
  try {
    std::rethrow_exception(thrown);
  } catch (const OutOfWork&) {
    PyErr_SetString(static_cast<PyObject*>(type), "");
  }
}

}  // namespace

void bind_automaton(nb::module_& module) {
  nb::object out_of_work = nb::steal(PyErr_NewException("phloem._core.fsm.OutOfWork", nullptr, nullptr));
  module.attr("OutOfWork") = out_of_work;
  nb::register_exception_translator(raise_too_large, nullptr);
  nb::register_exception_translator(raise_out_of_work, out_of_work.ptr());  // the module keeps it alive
  module.attr("UNUSED_AUTOMATON_BYTES") = States::FIRST_BYTES;
  nb::class_<BoundVocabulary>(module, "Vocabulary")
      .def("__init__", make_vocabulary, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  bind_networks(module);
  nb::class_<BoundAutomaton> bound(module, "Automaton");
  bound.def("__init__", make_automaton, nb::keep_alive<1, 2>(), nb::keep_alive<1, 3>());
  bind_questions(bound);
  bind_moves(bound);
  bind_room(bound);
}

}  // namespace phloem::fsm
