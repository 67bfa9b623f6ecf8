// phloem._core: the inner loops of radix/, fsm/ and kernels/, a submodule for each. They know nothing of each other.
#include <nanobind/nanobind.h>

#include "kernels_hash.h"
#include "rooms.h"

NB_MODULE(_core, module) {
  nanobind::set_leak_warnings(false);  // a daemon thread that is running when the process ends keeps its objects
  module.doc() = "The inner loops of phloem, compiled.";
  module.attr("kernels_hash") = PHLOEM_KERNELS_HASH;  // of the sources in kernels/core
  add_radix(module);
  add_kernels(module);
  add_fsm(module);
}
