// `phloem._core.kernels`.
#include "bind.h"
#include "rooms.h"

void add_kernels(nanobind::module_& core) {
  nanobind::module_ module =
      core.def_submodule("kernels", "The CPU's loops over tensors, and the lists that they work off.");
  phloem::kernels::add_loops(module);
  phloem::kernels::add_layers(module);
  phloem::kernels::add_work(module);
}
