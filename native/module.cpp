// phloem._core: the inner loops of radix/, fsm/ and kernels/, a submodule for each. The rooms know nothing of each other.
#include <nanobind/nanobind.h>

#include "rooms.h"

NB_MODULE(_core, module) {
  module.doc() = "The inner loops of phloem, compiled.";
  nanobind::set_leak_warnings(false);  // what lives in modules of Python lives on when the interpreter ends
  add_fsm(module);
}
