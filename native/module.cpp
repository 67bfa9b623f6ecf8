// phloem._core: the inner loops of radix/, fsm/ and kernels/, a submodule for each. The rooms know nothing of each other.
#include <nanobind/nanobind.h>

#include "rooms.h"

NB_MODULE(_core, module) {
  module.doc() = "The inner loops of phloem, compiled.";
  add_fsm(module);
}
