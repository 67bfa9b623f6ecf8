// Binds what is to be known of keys and items that must not be repeated; and what a network can read.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>

#include "bind.h"
#include "bound.h"
#include "laying.h"
#include "unlocked.h"
#include "written.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using ByteArray = Array<uint8_t>;
using Self = BoundAutomaton;
using Event = std::tuple<int32_t, int32_t, int32_t>;

Bytes view(const ByteArray& array) { return {array.data(), array.shape(0)}; }
Ints view(const IntArray& array) { return {array.data(), array.shape(0)}; }
std::span<int32_t> view(const Bits& array) { return {array.data(), array.shape(0)}; }

// The dead state has no completion.
void check_is_alive(int64_t state) { check(state != 0, "state", "is the dead one"); }

Mode mode_from(int32_t mode) {
  check_number("mode", mode, UNKNOWN, ESCAPE);
  return static_cast<Mode>(mode);
}

void bind_written(nb::module_& module) {
  nb::enum_<Mode>(module, "Mode", nb::is_arithmetic())
      .value("UNKNOWN", UNKNOWN)
      .value("OUTSIDE", OUTSIDE)
      .value("IN_STRING", IN_STRING)
      .value("ESCAPE", ESCAPE);
  nb::enum_<KeyEvent>(module, "KeyEvent", nb::is_arithmetic())
      .value("OPENS", KeyEvent::OPENS)
      .value("CLOSES", KeyEvent::CLOSES)
      .value("KEY_ENDS", KeyEvent::KEY_ENDS)
      .value("ITEM_ENDS", KeyEvent::ITEM_ENDS);
  module.def("follow_keys", [](Self& self, int64_t state, nb::bytes data, bool has_keys) {
    const KeyStep found = locked_at(
        self, state, [&](Automaton& automaton) { return follow_keys(automaton, state, bytes_of(data), has_keys); });
    std::vector<Event> events;
    for (const auto& [kind, first, last] : found.events) events.emplace_back(static_cast<int32_t>(kind), first, last);
    return std::tuple(found.state, found.begin, events);
  });
  module.def("advance_keys", [](Self& self, int64_t state, int64_t token, bool has_keys) {
    check_index("token", token, self.automaton.vocabulary.num_tokens);
    return locked_at(self, state, [&](Automaton& automaton) { return advance_keys(automaton, state, token, has_keys); });
  });
  module.def("is_in_string", [](Self& self, int64_t state) {
    return locked_at(self, state, [&](Automaton& automaton) { return mode_of(automaton, state) == IN_STRING; });
  });
  module.def("note_mode", [](Self& self, int64_t state, int32_t mode) {
    locked_at(self, state, [&](Automaton& automaton) { note_mode(automaton, state, mode_from(mode)); });
  });
  module.def("keys_left", [](Self& self, int64_t state, const std::vector<nb::bytes>& texts, bool with_cuts) {
    std::vector<Bytes> views;
    for (const nb::bytes& text : texts) views.push_back(bytes_of(text));
    auto is_before = [](Bytes one, Bytes other) { return std::ranges::lexicographical_compare(one, other); };
    const bool is_right = !views.empty() && !views[0].empty() && std::ranges::is_sorted(views, is_before);
    check(is_right, "texts", "are not sorted, or there is nothing left of one, or there are none");
    const KeysLeft found =
        locked_at(self, state, [&](Automaton& automaton) { return keys_left(automaton, state, views, with_cuts); });
    std::vector<nb::bytes> cuts;
    for (Bytes cut : found.cuts) cuts.emplace_back(cut.data(), cut.size());
    return std::tuple(found.is_alive, cuts);
  });
  module.def("clear_below", [](Self& self, nb::bytes path, Bits bits) {
    if (path.size() == 0) throw nb::value_error("all tokens begin with no bytes");
    check_row(self.automaton.vocabulary, "bits", bits.shape(0));
    clear_below(self.automaton.vocabulary.whole, bytes_of(path), bits.data());
  }, nb::arg(), nb::arg(), nb::arg().noconvert());
}

// Whether something by state has an entry for each state of a way.
void check_way(const Way& way, int64_t num_states, const char* what) {
  bool is_right = way.end < num_states;
  for (const Way::Place& place : way.places) is_right &= place.state < num_states;
  check(is_right, what, "has no entry for a state of the way");
}

void bind_ways(nb::module_& module) {
  nb::class_<Way>(module, "Way").def_prop_ro("states", [](const Way& way) {
    std::vector<int32_t> found;
    for (const Way::Place& place : way.places) found.push_back(place.state);
    return found;
  });
  module.def("find_way", [](Self& self, int64_t state, IntArray known) {
    check_is_alive(state);
    return locked_at(self, state, [&](Automaton& automaton) { return find_way(automaton, state, view(known)); });
  });
  module.def("count_keys", [](const Way& way, Bits num_keys) {
    check_way(way, num_keys.shape(0), "num_keys");
    count_keys(way, view(num_keys));
  }, nb::arg(), nb::arg().noconvert());
  module.def("count_way_tokens", [](Self& self, const Way& way, IntArray bounds, Bits num_tokens) {
    check_size("bounds", bounds.shape(0), static_cast<int64_t>(way.places.size()));
    check_way(way, num_tokens.shape(0), "num_tokens");
    locked(self, [&](Automaton& automaton) {
      check_way(way, automaton.states.size(), "the automaton");
      count_way_tokens(automaton, way, view(bounds), view(num_tokens));
    });
  }, nb::arg(), nb::arg(), nb::arg(), nb::arg().noconvert());
}

// A network of which only the indices are asked for.
Network checked_network(const IntArray& data, const ByteArray& byte_sets, const ByteArray& texts) {
  const int64_t num_byte_sets = static_cast<int64_t>(byte_sets.shape(0));
  check_network(view(data), num_byte_sets, static_cast<int64_t>(texts.shape(0)));
  return network_of(data.data(), nullptr, num_byte_sets, {});
}

void bind_networks(nb::module_& module) {
  module.def("lay_out", [](IntArray packed, nb::bytes literals) {
    std::vector<int32_t> found;
    {
      Unlocked unlocked;
      found = lay_out(view(packed), bytes_of(literals));
    }
    return array_of(std::move(found));
  });
  module.def("find_mixed", [](IntArray data, Array<bool> bytes, ByteArray byte_sets, ByteArray texts, ByteArray heads) {
    check_size("bytes", bytes.shape(0), 256);
    const Network network = checked_network(data, byte_sets, texts);
    check_size("heads", heads.shape(0), network.num_sets);
    const Marks marks{{bytes.data(), bytes.shape(0)}, view(byte_sets), view(texts), view(heads), {}};
    return array_of(find_marked(network, marks, true));
  });
}

}  // namespace

void bind_keys(nb::module_& module) {
  bind_written(module);
  bind_ways(module);
  bind_networks(module);
}

}  // namespace phloem::fsm
