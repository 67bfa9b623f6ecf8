// The functions that add the bindings to the module `_core.fsm`.
#pragma once
#include <nanobind/nanobind.h>

namespace phloem::fsm {

void bind_text(nanobind::module_& module);
void bind_sources(nanobind::module_& module);
void bind_automaton(nanobind::module_& module);
void bind_masks(nanobind::module_& module);
void bind_keys(nanobind::module_& module);
void bind_grammars(nanobind::module_& module);
void bind_objects(nanobind::module_& module);

}  // namespace phloem::fsm
