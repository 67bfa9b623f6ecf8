// phloem._core.fsm: the loops of the constraint engine.
#include "bind.h"
#include "rooms.h"

void add_fsm(nanobind::module_& module) {
  nanobind::module_ fsm = module.def_submodule("fsm", "The loops of the constraint engine.");
  phloem::fsm::bind_text(fsm);
  phloem::fsm::bind_sources(fsm);
  phloem::fsm::bind_automaton(fsm);
  phloem::fsm::bind_masks(fsm);
  phloem::fsm::bind_keys(fsm);
  phloem::fsm::bind_grammars(fsm);
  phloem::fsm::bind_objects(fsm);
}
