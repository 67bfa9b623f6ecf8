// Conversions between numpy's arrays and ours: arguments are read in place, results are copied. A copy is an array alone;
// an array that kept our memory would come with two more objects, which each of Python's collections would look at.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

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

// A vector as a numpy array of that shape; as bool if To is that.
template <class To, class From>
Result<To> shaped(const std::vector<From>& values, std::initializer_list<size_t> shape) {
  static_assert(sizeof(To) == sizeof(From));
  static From nothing;  // an empty array has an address, too
  From* data = values.empty() ? &nothing : const_cast<From*>(values.data());
  return Result<To>(nb::cast(nb::ndarray<nb::numpy, To>(data, shape), nb::rv_policy::copy));
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
