// Conversions between numpy's arrays and ours: arguments are read in place, results are returned without a copy.
#pragma once
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "table.h"

namespace phloem::fsm {

namespace nb = nanobind;

template <class T>
using Array = nb::ndarray<const T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T>
using Array2 = nb::ndarray<const T, nb::ndim<2>, nb::c_contig, nb::device::cpu>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

template <class T>
std::span<const T> span_of(const Array<T>& array) {
  return {array.data(), array.shape(0)};
}

inline TableView view_of(const Array2<int32_t>& array) {
  return {array.data(), static_cast<int64_t>(array.shape(0)), static_cast<int64_t>(array.shape(1))};
}

// A vector as a numpy array of that shape, which keeps it; as bool if To is that.
template <class To, class From>
Result<To> shaped(std::vector<From>&& values, std::initializer_list<size_t> shape) {
  static_assert(sizeof(To) == sizeof(From));
  values.reserve(1);  // an empty array has an address, too
  auto kept = std::make_unique<std::vector<From>>(std::move(values));
  nb::capsule owner(kept.get(), [](void* pointer) noexcept { delete static_cast<std::vector<From>*>(pointer); });
  return Result<To>(kept.release()->data(), shape, owner);
}

template <class T>
Result<T> array_of(std::vector<T>&& values) {
  const size_t size = values.size();
  return shaped<T>(std::move(values), {size});
}

inline Result<bool> flags_of(std::vector<uint8_t>&& values) {
  const size_t size = values.size();
  return shaped<bool>(std::move(values), {size});
}

inline Result<int32_t> array_of(Table&& table) {
  const size_t num_rows = table.num_rows(), num_columns = table.num_columns;
  return shaped<int32_t>(std::move(table.cells), {num_rows, num_columns});
}

}  // namespace phloem::fsm
