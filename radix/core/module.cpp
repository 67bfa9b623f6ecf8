// phloem._core.radix: the tree as Python sees it. Tokens and block ids are packed int32; a namespace is any str.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>

#include "rooms.h"
#include "tree.h"

namespace nb = nanobind;
using namespace phloem::radix;

namespace {

static_assert(std::endian::native == std::endian::little, "tokens are packed as little-endian int32");

Tokens unpacked(const nb::bytes& packed) {
  return {reinterpret_cast<const int32_t*>(packed.c_str()), packed.size() / sizeof(int32_t)};
}

nb::bytes pack(Tokens items) { return nb::bytes(reinterpret_cast<const char*>(items.data()), items.size_bytes()); }

// A namespace as UTF-8, and back. Lone surrogates, which JSON can bring, are let through.
struct Space {
  explicit Space(const nb::str& name) {
    Py_ssize_t size = 0;
    const char* text = PyUnicode_AsUTF8AndSize(name.ptr(), &size);
    if (!text) {
      PyErr_Clear();
      encoded = nb::steal(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogatepass"));
      if (!encoded.is_valid()) throw nb::python_error();
      text = PyBytes_AS_STRING(encoded.ptr());
      size = PyBytes_GET_SIZE(encoded.ptr());
    }
    key = {text, static_cast<size_t>(size)};
  }
  static nb::str name(std::string_view key) {
    return nb::steal<nb::str>(PyUnicode_DecodeUTF8(key.data(), static_cast<Py_ssize_t>(key.size()), "surrogatepass"));
  }
  nb::object encoded;
  std::string_view key;
};

auto match(Tree& tree, const nb::bytes& tokens, const nb::str& space, double now) {
  const Match found = tree.match(unpacked(tokens), Space(space).key, now);
  return std::tuple(found.num_tokens, found.node, found.partial_node, found.num_partial_tokens, found.partial_block);
}

auto look(Tree& tree, const nb::bytes& tokens, const nb::str& space) {
  return tree.look(unpacked(tokens), Space(space).key);
}

nb::bytes continuation(Tree& tree, const nb::bytes& tokens, const nb::str& space, int64_t count) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(count, 0));
  return pack(tree.continuation(unpacked(tokens), Space(space).key, limit));
}

auto evicted_at(Tree& tree, const nb::bytes& tokens, const nb::str& space) {
  return tree.evicted_at(unpacked(tokens), Space(space).key);
}

auto insert(Tree& tree, const nb::bytes& tokens, const nb::bytes& blocks, const nb::str& space, NodeId after,
            int64_t priority, double now, const nb::object& block_cost) {
  BlockCost cost;
  if (!block_cost.is_none()) cost = [&](int64_t end) { return nb::cast<double>(block_cost(end)); };
  const Inserted done =
      tree.insert(unpacked(tokens), unpacked(blocks), Space(space).key, after, priority, now, cost);
  return std::tuple(done.num_new_tokens, done.node, pack(done.duplicates));
}

nb::bytes evict(Tree& tree, int64_t num_wanted, double now, const nb::object& spare, const nb::object& runs) {
  Spare needed;
  if (!spare.is_none())
    needed = [&](const std::string& space, Tokens tokens) {
      return nb::cast<int64_t>(spare(Space::name(space), pack(tokens)));
    };
  std::vector<EvictedRun> evicted;
  const std::vector<int32_t> freed = tree.evict(num_wanted, now, needed, runs.is_none() ? nullptr : &evicted);
  for (const EvictedRun& run : evicted)
    runs.attr("append")(std::tuple(Space::name(run.space), pack(run.path), run.blocks));
  return pack(freed);
}

std::vector<NodeId> ids(const Node& parent) {
  std::vector<NodeId> found;
  for (const auto& [block, child] : parent.children) found.push_back(child->id);
  return found;
}

nb::list nodes(const Tree& tree) {
  nb::list found;
  for (const auto& [id, node] : tree.nodes())
    found.append(std::tuple(id, node.parent->id, Space::name(*node.space), pack(node.tokens), node.blocks, ids(node),
                            node.end, node.num_leases, node.num_holds, node.priority, node.last_used,
                            tree.rank_of(node), node.is_candidate));
  return found;
}

nb::dict roots(const Tree& tree) {
  nb::dict found;
  for (const auto& [space, root] : tree.roots()) found[Space::name(space)] = std::pair(ids(root), root.num_holds);
  return found;
}

std::vector<nb::str> namespaces(const Tree& tree) {
  std::vector<nb::str> found;
  for (const auto& [space, root] : tree.roots()) found.push_back(Space::name(space));
  return found;
}

auto candidates(const Tree& tree) {
  std::vector<std::tuple<double, double, NodeId>> found;
  for (const Candidate& one : tree.candidates()) found.emplace_back(one.rank, one.last_used, one.node->id);
  return found;
}

nb::dict counts(const Tree& tree) {
  const Counts& counts = tree.counts();
  nb::dict found;
  found["num_matches"] = counts.num_matches;
  found["num_asked_tokens"] = counts.num_asked_tokens;
  found["num_matched_tokens"] = counts.num_matched_tokens;
  found["num_inserted_blocks"] = counts.num_cached_blocks + counts.num_evicted_blocks;
  found["num_duplicate_blocks"] = counts.num_duplicate_blocks;
  found["num_evicted_blocks"] = counts.num_evicted_blocks;
  found["num_splits"] = counts.num_splits;
  found["num_namespaces"] = tree.roots().size();
  found["num_nodes"] = tree.nodes().size();
  found["num_cached_blocks"] = counts.num_cached_blocks;
  found["num_leased_blocks"] = counts.num_leased_blocks;
  return found;
}

}  // namespace

void add_radix(nb::module_& module) {
  nb::module_ radix = module.def_submodule("radix", "Token prefixes -> KV block ids.");
  nb::list policies;
  for (const Policy& policy : POLICIES) policies.append(policy.name);
  radix.attr("POLICIES") = nb::tuple(policies);
  radix.def("common_prefix", [](const nb::bytes& a, const nb::bytes& b) {
    return sizeof(int32_t) * common_prefix(unpacked(a), unpacked(b));
  });
  nb::class_<Tree>(radix, "Tree")
      .def(nb::init<int64_t, const std::string&, size_t>(), nb::arg("block_size"), nb::arg("policy"),
           nb::arg("max_ghosts"))
      .def("find", &match, nb::arg("tokens"), nb::arg("namespace"), nb::arg("now"))
      .def("look", &look, nb::arg("tokens"), nb::arg("namespace"))
      .def("continuation", &continuation, nb::arg("tokens"), nb::arg("namespace"), nb::arg("count"))
      .def("put", &insert, nb::arg("tokens"), nb::arg("blocks"), nb::arg("namespace"), nb::arg("after"),
           nb::arg("priority"), nb::arg("now"), nb::arg("block_cost").none())
      .def("use", &Tree::use, nb::arg("node"), nb::arg("now"))
      .def("lease", &Tree::lease, nb::arg("node"))
      .def("release", &Tree::release, nb::arg("node"))
      .def("num_sole_blocks", &Tree::num_sole_blocks, nb::arg("node"))
      .def("packed_blocks", [](Tree& tree, NodeId node) { return pack(tree.path_blocks(node)); }, nb::arg("node"))
      .def("path_tokens", [](Tree& tree, NodeId node) { return pack(tree.path_tokens(node)); }, nb::arg("node"))
      .def("is_tail", &Tree::is_tail, nb::arg("node"))
      .def("take", &evict, nb::arg("num_blocks"), nb::arg("now"), nb::arg("spare").none(), nb::arg("runs").none())
      .def("evicted_at", &evicted_at, nb::arg("tokens"), nb::arg("namespace"))
      .def_prop_ro("num_cached_blocks", [](const Tree& tree) { return tree.counts().num_cached_blocks; })
      .def_prop_ro("num_leased_blocks", [](const Tree& tree) { return tree.counts().num_leased_blocks; })
      .def("counts", &counts)
      .def("nodes", &nodes)
      .def("roots", &roots)
      .def("namespaces", &namespaces)
      .def("candidates", &candidates);
}
