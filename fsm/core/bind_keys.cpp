// Binds what is to be known of keys and items that must not be repeated; and what a network can read.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include "bind.h"
#include "bound.h"
#include "items.h"
#include "laying.h"
#include "unlocked.h"

namespace phloem::fsm {

namespace {

using IntArray = Array<int32_t>;
using ByteArray = Array<uint8_t>;
using Self = BoundAutomaton;
using Event = std::tuple<int32_t, int32_t, int32_t>;

Bytes view(const ByteArray& array) { return {array.data(), array.shape(0)}; }
Ints view(const IntArray& array) { return {array.data(), array.shape(0)}; }

// `locked_at` for what needs the roles of all byte sets.
template <class Function>
auto locked_with(Self& self, const ByteArray& roles, int64_t state, Function function) {
  check(static_cast<int64_t>(roles.shape(0)) >= self.network.num_byte_sets, "roles", "is shorter than the byte sets");
  return locked_at(self, state, function);
}

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
  module.def("clear_below", [](Self& self, nb::bytes path, Bits bits) {
    if (path.size() == 0) throw nb::value_error("all tokens begin with no bytes");
    check_row(self.automaton.vocabulary, "bits", bits.shape(0));
    clear_below(self.automaton.vocabulary.whole, bytes_of(path), bits.data());
  }, nb::arg(), nb::arg(), nb::arg().noconvert());
}

void bind_items(nb::module_& module) {
  nb::enum_<ItemEvent>(module, "ItemEvent", nb::is_arithmetic())
      .value("LIST_OPENS", ItemEvent::LIST_OPENS)
      .value("OPENS", ItemEvent::OPENS)
      .value("CLOSES", ItemEvent::CLOSES)
      .value("ITEM_ENDS", ItemEvent::ITEM_ENDS)
      .value("LIST_ENDS", ItemEvent::LIST_ENDS);
  module.attr("ENDS_LAST") = static_cast<int>(ENDS_LAST);
  module.attr("ENDS_ONE") = static_cast<int>(ENDS_ONE);
  module.def("scan_items", [](Self& self, ByteArray roles, int64_t state, nb::bytes data, int32_t mode) {
    const ItemScan found = locked_with(self, roles, state, [&](Automaton& automaton) {
      return scan_items(automaton, view(roles), state, bytes_of(data), mode_from(mode));
    });
    std::vector<Event> events;
    for (const auto& [kind, at, before] : found.events) events.emplace_back(static_cast<int32_t>(kind), at, before);
    return std::tuple(found.state, static_cast<int32_t>(found.mode), events);
  });
  module.def("ending_tokens", [](Self& self, ByteArray roles, int64_t state, int32_t mode, IntArray tokens) {
    check_values("tokens", view(tokens), 0, self.automaton.vocabulary.num_tokens);
    return array_of(locked_with(self, roles, state, [&](Automaton& automaton) {
      return ending_tokens(automaton, view(roles), state, mode_from(mode), view(tokens));
    }));
  });
  module.def("items_to_go", [](Self& self, ByteArray roles, int64_t state) {
    check_is_alive(state);
    return locked_with(self, roles, state, [&](Automaton& automaton) {
      return items_to_go(automaton, view(roles), state);
    });
  });
  module.def("without_ends", [](Self& self, ByteArray roles, int64_t state) {
    return locked_with(self, roles, state, [&](Automaton& automaton) {
      return without_ends(automaton, view(roles), state);
    });
  });
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
  module.def("find_endless", [](IntArray data, ByteArray roles, ByteArray texts) {
    const Network network = checked_network(data, roles, texts);
    std::vector<uint8_t> ends;
    for (uint8_t role : view(roles)) ends.push_back(role & ENDS_ITEM);
    return array_of(find_endless(network, view(texts), ends));
  });
}

}  // namespace

void bind_keys(nb::module_& module) {
  bind_written(module);
  bind_items(module);
  bind_networks(module);
}

}  // namespace phloem::fsm
