// An automaton as a Python object, and the locks of its calls.
//
// Calls of one automaton run one at a time; calls of different ones may run in parallel. A short call keeps the global
// interpreter lock, since taking it again may take milliseconds. After LONG_CALL configurations a call releases it, so
// that other threads can run; a call that waits for the same automaton meanwhile releases it too.
#pragma once
#include <memory>
#include <mutex>
#include <optional>

#include "automaton.h"
#include "bound_text.h"
#include "checks.h"
#include "unlocked.h"

namespace phloem::fsm {

constexpr int64_t LONG_CALL = 1 << 12;  // configurations: about a millisecond

struct BoundVocabulary {
  Kept kept;
  Vocabulary vocabulary;

  BoundVocabulary(const TokenTrie& all, const TokenTrie& others) : vocabulary(all, others) {}
};

struct BoundAutomaton {
  Kept kept;
  std::vector<TextTable> texts;
  Network network;
  Automaton automaton;

  BoundAutomaton(Kept arrays, std::vector<TextTable> all_texts, const Network& of_network, BoundVocabulary& vocabulary,
                 int64_t max_bytes)
      : kept(std::move(arrays)), texts(std::move(all_texts)), network(of_network),
        automaton(network, vocabulary.vocabulary, max_bytes) {}  // moving has left the texts where they were
};

// Calls function(automaton), which must not touch anything of Python. Its result may be no reference into the
// automaton.
template <class Function>
auto locked(Automaton& automaton, Function function) {
  if (!automaton.mutex.try_lock()) {
    Unlocked unlocked;
    automaton.mutex.lock();
  }
  std::optional<Unlocked> unlocked;
  Call call(automaton);
  automaton.patience = LONG_CALL;
  automaton.caller = &unlocked;
  automaton.on_long_call = [](void* caller) { static_cast<std::optional<Unlocked>*>(caller)->emplace(); };
  return function(automaton);
}

template <class Function>
auto locked(BoundAutomaton& bound, Function function) {
  return locked(bound.automaton, function);
}

// The same for a state, which must be one of the automaton's.
template <class Function>
auto locked_at(BoundAutomaton& bound, int64_t state, Function function) {
  return locked(bound.automaton, [&](Automaton& automaton) {
    check_index("state", state, automaton.states.size());
    return function(automaton);
  });
}

// A row that is written to: never a copy, so its dtype and layout must be these (`nb::arg().noconvert()`).
using Bits = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

// A row of the tokens of a vocabulary.
inline void check_row(const Vocabulary& vocabulary, const char* what, size_t num_words) {
  check_size(what, num_words, vocabulary.num_words);
}

inline Bytes bytes_of(const nb::bytes& data) { return {static_cast<const uint8_t*>(data.data()), data.size()}; }

}  // namespace phloem::fsm
