// Arrays from Python: int32 on the host, dense; and the work list of a step, which keeps its arrays alive.
#pragma once
#include <nanobind/ndarray.h>

#include "loops.h"

namespace phloem::kernels {

using Vector = nanobind::ndarray<const int32_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using Matrix = nanobind::ndarray<const int32_t, nanobind::ndim<2>, nanobind::c_contig, nanobind::device::cpu>;

// What of attention is a step's, the same for all its layers.
struct Lists {
  Lists(Vector chain_starts, Matrix items, Vector rows, Vector positions, Matrix tables, int64_t num_pairs)
      : chain_starts(chain_starts),
        rows(rows),
        positions(positions),
        items(items),
        tables(tables),
        num_pairs(num_pairs) {}

  AttentionStep step() const {
    AttentionStep step{};
    step.chain_starts = chain_starts.data(), step.items = items.data(), step.rows = rows.data();
    step.positions = positions.data(), step.tables = tables.data();
    step.num_chains = (int64_t)chain_starts.size() - 1, step.table_width = tables.shape(1);
    return step;
  }

  Vector chain_starts, rows, positions;
  Matrix items, tables;
  int64_t num_pairs;  // (row, visible key) pairs: what the step costs
};

}  // namespace phloem::kernels
