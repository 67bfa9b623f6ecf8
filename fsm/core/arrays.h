// Conversions between numpy's arrays and ours: arguments are read in place, results are copied. A copy is an array alone;
// an array that kept our memory would come with two more objects, which each of Python's collections would look at.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <string>

#include "table.h"

namespace phloem::fsm {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::typed<nb::object, nb::ndarray<nb::numpy, T>>;

template <class T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), array.shape(0)};
}

inline TableView view_of(const Array2<int32_t>& array) {
  return {array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1))};
}

// numpy's name of a type of numbers.
template <class T>
std::string numpy_name() {
  if (std::is_same_v<T, bool>) return "?";
  return (std::is_signed_v<T> ? "i" : "u") + std::to_string(sizeof(T));
}

// A vector as a numpy array of that shape; as bool if To is that.
template <class To, class From>
Result<To> shaped(const std::vector<From>& values, std::initializer_list<size_t> shape) {
  static_assert(sizeof(To) == sizeof(From));
  // for the life of the process: asking numpy for them takes longer than the array
  static const nb::object& empty = *new nb::object(nb::module_::import_("numpy").attr("empty"));
  static const nb::object& type = *new nb::object(nb::module_::import_("numpy").attr("dtype")(numpy_name<To>()));
  const size_t* size = shape.begin();
  nb::object array = shape.size() == 1 ? empty(size[0], type) : empty(nb::make_tuple(size[0], size[1]), type);
  Py_buffer buffer;
  if (PyObject_GetBuffer(array.ptr(), &buffer, PyBUF_CONTIG) != 0) throw nb::python_error();
  std::copy_n(reinterpret_cast<const To*>(values.data()), values.size(), static_cast<To*>(buffer.buf));
  PyBuffer_Release(&buffer);
  return nb::steal<Result<To>>(array.release());  // nanobind 2.4 makes no typed object of another
}

template <class T>
Result<T> array_of(const std::vector<T>& values) {
  return shaped<T>(values, {values.size()});
}

inline Result<bool> flags_of(const std::vector<uint8_t>& values) { return shaped<bool>(values, {values.size()}); }

inline Result<int32_t> array_of(const Table& table) {
  const size_t num_rows = table.num_rows(), num_columns = table.num_columns;
  return shaped<int32_t>(table.cells, {num_rows, num_columns});
}

}  // namespace phloem::fsm
