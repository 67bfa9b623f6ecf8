// The interpreter's lock, let go of while something long is done that touches no object of Python.
#pragma once
#include <Python.h>
#include <unistd.h>

namespace phloem {

// Lets go of the lock as long as it lives.
//
// A daemon thread that wants the lock after the interpreter has ended is ended by Python, before 3.14 with an unwinding
// of its stack, which no destructor lets through (that is how `nanobind::gil_scoped_release` aborts the process). Here
// it waits for the end of the process instead, as from 3.14 on.
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
