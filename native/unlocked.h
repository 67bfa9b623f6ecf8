// Releases the global interpreter lock (GIL) during long work that touches no Python object.
#pragma once
#include <Python.h>
#include <unistd.h>

namespace phloem {

// The GIL is released for the lifetime of this object.
//
// A daemon thread that takes the lock after the interpreter has ended is terminated by Python, before 3.14 by unwinding
// its stack, which must not pass a destructor (with `nanobind::gil_scoped_release` the process aborts). Here it waits
// for the end of the process instead, as Python itself does from 3.14 on.
class Unlocked {
 public:
  Unlocked() : state_(PyEval_SaveThread()) {}
  Unlocked(const Unlocked&) = delete;
  Unlocked& operator=(const Unlocked&) = delete;
  ~Unlocked() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

 private:
  PyThreadState* state_;
};

}  // namespace phloem
