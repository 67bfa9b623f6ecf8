// Bindings of the work lists: numpy arrays in and out, int32.
#include <nanobind/stl/tuple.h>

#include <memory>

#include "bind.h"
#include "cpu_work.h"
#include "cuda_work.h"
#include "lists.h"

namespace nb = nanobind;

namespace phloem::kernels {
namespace {

using Written = nb::ndarray<int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
template <class T, int DIMS>
using Numpy = nb::ndarray<T, nb::numpy, nb::ndim<DIMS>, nb::c_contig>;

Ints ints(const Vector& array) { return {array.data(), array.size()}; }

BlockTables tables_of(const Matrix& array) { return {array.data(), (int64_t)array.shape(0), (int64_t)array.shape(1)}; }

// An array that owns what a vector held.
template <class T, class Item>
Numpy<T, 1> to_vector(std::vector<Item>&& items) {
  auto kept = std::make_unique<std::vector<Item>>(std::move(items));
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete (std::vector<Item>*)p; });
  auto* all = kept.release();
  return Numpy<T, 1>((T*)all->data(), {all->size() * sizeof(Item) / sizeof(T)}, owner);
}

template <class Item>
Numpy<int32_t, 2> to_matrix(std::vector<Item>&& items, size_t width) {
  auto kept = std::make_unique<std::vector<Item>>(std::move(items));
  const nb::capsule owner(kept.get(), [](void* p) noexcept { delete (std::vector<Item>*)p; });
  auto* all = kept.release();
  return Numpy<int32_t, 2>((int32_t*)all->data(), {all->size() * sizeof(Item) / sizeof(int32_t) / width, width},
                           owner);
}

// Items [N, 6], chain starts, rows, positions, and the number of (row, visible key) pairs.
auto plan_cpu(const Vector& query_starts, const Vector& context_lens, const Matrix& tables, int64_t block_size,
              int64_t grid, bool shares) {
  CpuWork work = plan_cpu_work({ints(query_starts), ints(context_lens), tables_of(tables), block_size}, grid, shares);
  return std::tuple(to_matrix(std::move(work.items), 6), to_vector<int32_t>(std::move(work.chain_starts)),
                    to_vector<int32_t>(std::move(work.rows)), to_vector<int32_t>(std::move(work.positions)),
                    work.num_pairs);
}

// Items [N, 8], rows, positions, slots [T, 2], whether each request is cut, and the number of slots.
auto plan_cuda(const Vector& query_starts, const Vector& context_lens, const Matrix& tables, int64_t block_size,
               int64_t num_heads, int64_t num_kv_heads, const Vector& classes, int64_t split_size,
               int64_t num_processors, bool shares, double partial, double launch, int64_t most_slots,
               int64_t max_sharing_rows) {
  CudaPlan plan = plan_cuda_work({ints(query_starts), ints(context_lens), tables_of(tables), block_size},
                                 {num_heads, num_kv_heads, ints(classes), split_size, num_processors, shares, partial,
                                  launch, most_slots, max_sharing_rows});
  return std::tuple(to_matrix(std::move(plan.items), 8), to_vector<int32_t>(std::move(plan.rows)),
                    to_vector<int32_t>(std::move(plan.positions)), to_matrix(std::move(plan.slots), 2),
                    to_vector<bool>(std::move(plan.is_cut)), plan.num_slots);
}

void write_cuda(const Written& host, int64_t begin, const Matrix& items, const Matrix& tables,
                const Vector& num_blocks) {
  write_items_and_tables(host.data(), begin, {(const CudaItem*)items.data(), items.shape(0)}, tables_of(tables),
                         ints(num_blocks));
}

}  // namespace

void add_work(nb::module_& module) {
  module.def("plan_cpu_work", plan_cpu);
  module.def("plan_cuda_work", plan_cuda);
  module.def("write_items_and_tables", write_cuda, nb::arg("host").noconvert(), nb::arg(), nb::arg(), nb::arg(),
             nb::arg());
}

}  // namespace phloem::kernels
