// How many bytes an object and all that it leads to take (remembered.py).
#include <nanobind/nanobind.h>

#include <unordered_set>
#include <vector>

#include "bind.h"

namespace phloem::fsm {

namespace nb = nanobind;

namespace {

constexpr int64_t OBJECT_BYTES = 64;  // of any object, roughly

int push(PyObject* object, void* pending) {
  static_cast<std::vector<PyObject*>*>(pending)->push_back(object);
  return 0;
}

// None, classes, modules, and what can be called.
bool is_left_out(PyObject* object) {
  return object == Py_None || PyType_Check(object) || PyModule_Check(object) || PyCallable_Check(object);
}

int64_t own_bytes(nb::handle object, nb::handle array_type) {
  if (PyUnicode_Check(object.ptr())) return PyUnicode_GetLength(object.ptr());
  if (PyBytes_Check(object.ptr())) return PyBytes_Size(object.ptr());
  const int is_array = PyObject_IsInstance(object.ptr(), array_type.ptr());
  if (is_array < 0) throw nb::python_error();
  return is_array ? nb::cast<int64_t>(object.attr("nbytes")) : 0;
}

// Goes where Python's collector goes. Numbers count wherever they stand, everything else once.
int64_t weigh(nb::handle value, nb::handle array_type) {
  int64_t total = 0;
  std::unordered_set<PyObject*> seen;
  std::vector<PyObject*> pending{value.ptr()};
  while (!pending.empty()) {
    PyObject* one = pending.back();
    pending.pop_back();
    if (is_left_out(one)) continue;
    const bool is_number = PyLong_CheckExact(one) || PyFloat_CheckExact(one);
    if (!is_number && !seen.insert(one).second) continue;
    total += OBJECT_BYTES;
    if (is_number) continue;
    total += own_bytes(one, array_type);
    if (PyDict_CheckExact(one)) {  // the collector leaves out keys that are texts
      PyObject *key, *item;
      for (Py_ssize_t place = 0; PyDict_Next(one, &place, &key, &item);) pending.insert(pending.end(), {key, item});
    } else if (PyObject_IS_GC(one)) {
      Py_TYPE(one)->tp_traverse(one, push, &pending);
    }
  }
  return total;
}

}  // namespace

void bind_objects(nb::module_& module) { module.def("weigh", weigh); }

}  // namespace phloem::fsm
