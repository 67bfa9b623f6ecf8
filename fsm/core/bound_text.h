// A text automaton as a Python object: its `TextTable`, and the arrays that this points into; and the wide kinds.
#pragma once
#include <memory>
#include <vector>

#include "arrays.h"
#include "text_table.h"

namespace phloem::fsm {

using Kept = std::vector<std::shared_ptr<const void>>;  // arrays that are pointed into

template <class AnyArray>
auto keep(Kept& kept, const AnyArray& array) {
  kept.push_back(std::make_shared<AnyArray>(array));
  return array.data();
}

struct BoundText {
  std::shared_ptr<const Kept> kept;
  TextTable text;
  int64_t num_bytes;  // of the text and of arrays that nothing else holds
};

struct BoundWideKinds {
  Kept kept;
  WideKinds wide;
};

}  // namespace phloem::fsm
