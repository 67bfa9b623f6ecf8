// The functions that add the bindings to `_core.kernels`.
#pragma once
#include <nanobind/nanobind.h>

#include "unlocked.h"

namespace phloem::kernels {

void add_layers(nanobind::module_& module);
void add_loops(nanobind::module_& module);
void add_work(nanobind::module_& module);

constexpr int64_t LONG = 1 << 21;  // operations from which on it is worth to let another thread run: some 50 us

// Runs a loop, without the interpreter's lock if its work is long.
template <class Loop>
void run_unlocked(int64_t work, Loop loop) {
  if (work < LONG) return loop();
  Unlocked unlocked;
  loop();
}

}  // namespace phloem::kernels
