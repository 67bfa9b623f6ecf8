// What each package adds to the module: its functions and classes, in a submodule of its own.
#pragma once
#include <nanobind/nanobind.h>

void add_radix(nanobind::module_& module);
void add_kernels(nanobind::module_& core);
void add_fsm(nanobind::module_& module);
