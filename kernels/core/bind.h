// What makes up `_core.kernels`.
#pragma once
#include <nanobind/nanobind.h>
#include <unistd.h>

namespace phloem::kernels {

void add_loops(nanobind::module_& module);
void add_work(nanobind::module_& module);

constexpr int64_t LONG = 1 << 21;  // operations from which on it is worth to let another thread run: some 50 us

// Takes the interpreter's lock again. A daemon thread that comes back after the interpreter has ended is ended by
// Python, on Linux with an unwinding of its stack, which no C++ function declared noexcept lets through: it waits here
// for the end of the process instead, as it does from Python 3.14 on.
inline void take_lock(PyThreadState* state) {
  try {
    PyEval_RestoreThread(state);
  } catch (...) {
    for (;;) pause();
  }
}

// Runs a loop, without the interpreter's lock if its work is long.
template <class Loop>
void run_unlocked(int64_t work, Loop loop) {
  if (work < LONG) return loop();
  PyThreadState* state = PyEval_SaveThread();
  try {
    loop();
  } catch (...) {
    take_lock(state);
    throw;
  }
  take_lock(state);
}

}  // namespace phloem::kernels
