// `phloem._core.runtime`: addresses are whole numbers, of memory that `runtime/lookup/lookup.py` lays out and keeps.
#include "rooms.h"

#include "lookup.h"

using phloem::runtime::Text;

namespace {

int64_t follow(int64_t state, int64_t token_ids, int64_t num_tokens, int64_t num_silent, double floor, int64_t limit) {
  return phloem::runtime::follow(*(Text*)state, (const int32_t*)token_ids, num_tokens, num_silent, floor, limit);
}

void reenter(int64_t state) { phloem::runtime::reenter(*(Text*)state); }

}  // namespace

void add_runtime(nanobind::module_& core) {
  nanobind::module_ module = core.def_submodule("runtime", "The loop of look-ups.");
  module.def("follow", follow);
  module.def("reenter", reenter);
}
