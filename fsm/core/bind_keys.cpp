// Bindings: keys and items that must not be repeated.
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <string>

#include "bind.h"
#include "bound.h"
#include "nearing.h"
#include "written.h"

namespace phloem::fsm {

namespace {

using Self = BoundAutomaton;
using Event = std::tuple<int32_t, int32_t, int32_t>;

constexpr size_t MAX_NEAREST = 1 << 17;  // bytes of a completion

Mode mode_from(int32_t mode) {
  check_number("mode", mode, UNKNOWN, ESCAPE);
  return static_cast<Mode>(mode);
}

}  // namespace

void bind_keys(nb::module_& module) {
  nb::enum_<Mode>(module, "Mode", nb::is_arithmetic())
      .value("UNKNOWN", UNKNOWN)
      .value("OUTSIDE", OUTSIDE)
      .value("IN_STRING", IN_STRING)
      .value("ESCAPE", ESCAPE);
  nb::enum_<KeyEvent>(module, "KeyEvent", nb::is_arithmetic())
      .value("OPENS", KeyEvent::OPENS)
      .value("CLOSES", KeyEvent::CLOSES)
      .value("KEY_ENDS", KeyEvent::KEY_ENDS)
      .value("ITEM_ENDS", KeyEvent::ITEM_ENDS)
      .value("LIST_OPENS", KeyEvent::LIST_OPENS)
      .value("VALUE_ENDS", KeyEvent::VALUE_ENDS);
  module.def("follow_keys", [](Self& self, int64_t state, nb::bytes data, bool has_keys) {
    const KeyStep found = locked_at(
        self, state, [&](Automaton& automaton) { return follow_keys(automaton, state, bytes_of(data), has_keys); });
    std::vector<Event> events;
    for (const auto& [kind, first, last] : found.events) events.emplace_back(static_cast<int32_t>(kind), first, last);
    return std::tuple(found.state, found.begin, events);
  });
  module.def("nearest_bytes", [](Self& self, int64_t state, bool to_key) {
    std::string found;
    locked_at(self, state, [&](Automaton& automaton) {
      for (int64_t here = state; !automaton.states[here].accepts && found.size() < MAX_NEAREST;) {
        const Step step = step_nearer(automaton, here);
        if (!is_nearer(automaton, step.state, here)) break;
        found.push_back(static_cast<char>(step.byte));
        here = step.state;
        if (to_key && is_in_key(automaton, here)) break;
      }
    });
    return nb::bytes(found.data(), found.size());
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

}  // namespace phloem::fsm
