// phloem._core.radix: the bindings of the tree. Tokens and block ids are packed int32; a namespace is any str.
//
// One operation at a time: while a callback runs, every other call, from the callback or from another thread, raises
// RuntimeError. Only the counts can be read at any time.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <bit>

#include "columns.h"
#include "rooms.h"
#include "tree.h"

namespace nb = nanobind;
using namespace phloem::radix;

namespace {

static_assert(std::endian::native == std::endian::little, "tokens are packed as little-endian int32");

Tokens unpacked(const nb::bytes& packed) {
  if (packed.size() % sizeof(int32_t))
    throw std::invalid_argument("packed int32 take 4 bytes each, so they cannot be " + std::to_string(packed.size()) +
                                " bytes");
  return {reinterpret_cast<const int32_t*>(packed.c_str()), packed.size() / sizeof(int32_t)};
}

nb::bytes pack(Tokens items) { return nb::bytes(reinterpret_cast<const char*>(items.data()), items.size_bytes()); }

nb::object or_raise(PyObject* made) {
  if (!made) throw nb::python_error();
  return nb::steal(made);
}

// A namespace as UTF-8, and back. Lone surrogates, which JSON may contain, are kept.
struct Space {
  explicit Space(const nb::str& name) : text(PyUnicode_AsUTF8AndSize(name.ptr(), &size)) {
    if (text) return;
    PyErr_Clear();
    encoded = or_raise(PyUnicode_AsEncodedString(name.ptr(), "utf-8", "surrogatepass"));
    if (PyBytes_AsStringAndSize(encoded.ptr(), const_cast<char**>(&text), &size)) throw nb::python_error();
  }
  operator std::string_view() const { return {text, static_cast<size_t>(size)}; }
  Py_ssize_t size = 0;
  const char* text;
  nb::object encoded;
};

nb::object name_of(std::string_view space) {
  return or_raise(PyUnicode_DecodeUTF8(space.data(), static_cast<Py_ssize_t>(space.size()), "surrogatepass"));
}

struct BoundTree {
  BoundTree(int64_t block_size, const std::string& policy, size_t max_ghosts) : tree(block_size, policy, max_ghosts) {}
  Tree tree;
  const char* operation = nullptr;  // the one under way: the name of the method of `RadixTree`
};

// Makes a function of a tree a method that excludes all other operations while it runs.
template <class Result, class... Args>
auto alone(const char* name, Result (*function)(Tree&, Args...)) {
  return [=](BoundTree& bound, Args... args) {
    if (bound.operation)
      throw std::runtime_error("the tree is in use by " + std::string(bound.operation) + ": its callbacks (spare, " +
                               "block_cost, on_event) and other threads must not call " + name + " before it returns");
    struct Operation {
      BoundTree& bound;
      ~Operation() { bound.operation = nullptr; }
    } operation{bound};
    bound.operation = name;
    return function(bound.tree, args...);
  };
}

auto match(Tree& tree, const nb::bytes& tokens, const nb::str& space, double now) {
  const Match found = tree.match(unpacked(tokens), Space(space), now);
  return std::tuple(found.num_tokens, found.node, found.partial_node, found.num_partial_tokens, found.partial_block);
}

auto peek(Tree& tree, const nb::bytes& tokens, const nb::str& space) { return tree.peek(unpacked(tokens), Space(space)); }

nb::bytes continuation(Tree& tree, const nb::bytes& tokens, const nb::str& space, size_t count) {
  return pack(tree.continuation(unpacked(tokens), Space(space), count));
}

auto evicted_at(Tree& tree, const nb::bytes& tokens, const nb::str& space) {
  return tree.evicted_at(unpacked(tokens), Space(space));
}

// Calls `on_event` for an inserted or evicted run. The operation has happened, so an exception of the callback cannot
// undo it: it is reported as unraisable, and the caller still gets its result.
template <class MakeRun>
void tell_of(const nb::object& tell, const char* kind, size_t block_size, MakeRun make_run) {
  try {
    const Run& run = make_run();
    const size_t start = run.path.size() - run.blocks.size() * block_size;
    tell(kind, name_of(run.space), pack(run.path), start, run.blocks);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    error.discard_as_unraisable(tell);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    PyErr_WriteUnraisable(tell.ptr());
  }
}

auto insert(Tree& tree, const nb::bytes& tokens, const nb::bytes& blocks, const nb::str& space, NodeId after,
            int32_t priority, double now, const nb::object& block_cost, const nb::object& tell) {
  BlockCost cost;
  if (!block_cost.is_none())
    cost = [&](size_t end) {
      const double found = PyFloat_AsDouble(block_cost(end).ptr());
      if (found == -1.0 && PyErr_Occurred()) throw nb::python_error();
      return found;
    };
  const Blocks given = unpacked(blocks);
  const Inserted done = tree.insert(unpacked(tokens), given, Space(space), after, priority, now, cost);
  if (!tell.is_none() && done.num_new_tokens)
    tell_of(tell, "inserted", tree.block_size(), [&] {
      const Blocks own = given.last((done.num_new_tokens + tree.block_size() - 1) / tree.block_size());
      return Run{std::string(Space(space)), tree.path_tokens(done.node), {own.begin(), own.end()}};
    });
  return std::tuple(done.num_new_tokens, done.node, pack(done.duplicates));
}

nb::bytes evict(Tree& tree, size_t num_wanted, double now, const nb::object& spare, const nb::object& tell) {
  Spare needed;
  if (!spare.is_none())
    needed = [&](const std::string& space, Tokens tokens) {
      const int64_t found = PyLong_AsLongLong(spare(name_of(space), pack(tokens)).ptr());
      if (found == -1 && PyErr_Occurred()) throw nb::python_error();
      return found;
    };
  std::vector<Run> evicted;
  const std::vector<int32_t> freed = tree.evict(num_wanted, now, needed, tell.is_none() ? nullptr : &evicted);
  for (const Run& run : evicted) tell_of(tell, "evicted", tree.block_size(), [&]() -> const Run& { return run; });
  return pack(freed);
}

// All nodes, roots first: the fields of `radix.snapshot.NodeRecord`.
nb::list nodes(Tree& tree) {
  nb::list found;
  const auto add = [&](const Node& node) {
    std::vector<NodeId> children;
    for (const auto& [block, child] : node.children) children.push_back(child->id);
    found.append(std::tuple(node.id, node.parent ? node.parent->id : NOTHING, name_of(*node.space), pack(node.tokens),
                            node.blocks, children, node.end, node.num_leases, node.num_holds, node.priority,
                            node.last_used, node.parent ? tree.rank_of(node) : 0.0, node.is_candidate));
  };
  for (const auto& [space, root] : tree.roots()) add(root);
  for (const auto& [id, node] : tree.nodes()) add(node);
  return found;
}

auto node_columns(Tree& tree, double now, size_t most, const std::vector<NodeId>& pins) {
  const Columns found = columns(tree, now, most, pins);
  std::vector<nb::object> spaces;
  for (const std::string_view space : found.spaces) spaces.push_back(name_of(space));
  return std::tuple(found.num_nodes, found.num_left_out, pack(found.values), spaces);
}

auto candidates(Tree& tree) {
  std::vector<std::tuple<double, double, NodeId>> found;
  for (const Candidate& one : tree.candidates()) found.emplace_back(one.rank, one.last_used, one.node->id);
  return found;
}

std::vector<nb::object> namespaces(Tree& tree) {
  std::vector<nb::object> found;
  for (const auto& [space, root] : tree.roots()) found.push_back(name_of(space));
  return found;
}

nb::dict counts(const BoundTree& bound) {
  const Counts& counts = bound.tree.counts();
  nb::dict found;
  found["num_matches"] = counts.num_matches;
  found["num_asked_tokens"] = counts.num_asked_tokens;
  found["num_matched_tokens"] = counts.num_matched_tokens;
  found["num_inserted_blocks"] = counts.num_cached_blocks + counts.num_evicted_blocks;
  found["num_duplicate_blocks"] = counts.num_duplicate_blocks;
  found["num_evicted_blocks"] = counts.num_evicted_blocks;
  found["num_splits"] = counts.num_splits;
  found["num_namespaces"] = bound.tree.roots().size();
  found["num_nodes"] = bound.tree.nodes().size();
  found["num_cached_blocks"] = counts.num_cached_blocks;
  found["num_leased_blocks"] = counts.num_leased_blocks;
  return found;
}

void touch(Tree& tree, NodeId node, double now) { tree.touch(node, now); }
void lease(Tree& tree, NodeId node) { tree.lease(node); }
void release(Tree& tree, NodeId node) { tree.release(node); }
size_t num_sole_blocks(Tree& tree, NodeId node) { return tree.num_sole_blocks(node); }
bool is_tail(Tree& tree, NodeId node) { return tree.is_tail(node); }
nb::bytes path_blocks(Tree& tree, NodeId node) { return pack(tree.path_blocks(node)); }
nb::bytes path_tokens(Tree& tree, NodeId node) { return pack(tree.path_tokens(node)); }

}  // namespace

void add_radix(nb::module_& module) {
  nb::module_ radix = module.def_submodule("radix", "Token prefixes -> KV block ids.");
  nb::list policies;
  for (const Policy& policy : POLICIES) policies.append(policy.name);
  radix.attr("POLICIES") = nb::tuple(policies);
  radix.def("common_prefix", [](const nb::bytes& a, const nb::bytes& b) {
    return sizeof(int32_t) * common_prefix(unpacked(a), unpacked(b));
  });
  nb::class_<BoundTree>(radix, "Tree")
      .def(nb::init<int64_t, const std::string&, size_t>())
      .def("_match", alone("match", &match))
      .def("_peek", alone("peek", &peek))
      .def("continuation", alone("continuation", &continuation), nb::arg("tokens"), nb::arg("namespace"), nb::arg("count"))
      .def("_insert", alone("insert", &insert), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(), nb::arg(),
           nb::arg().none(), nb::arg().none())
      .def("_touch", alone("touch", &touch))
      .def("lease", alone("lease", &lease), nb::arg("node"))
      .def("release", alone("release", &release), nb::arg("node"))
      .def("num_sole_blocks", alone("num_sole_blocks", &num_sole_blocks), nb::arg("node"))
      .def("packed_blocks", alone("packed_blocks", &path_blocks), nb::arg("node"))
      .def("path_tokens", alone("path_tokens", &path_tokens), nb::arg("node"))
      .def("is_tail", alone("is_tail", &is_tail), nb::arg("node"))
      .def("_evict", alone("evict", &evict), nb::arg(), nb::arg(), nb::arg().none(), nb::arg().none())
      .def("_evicted_at", alone("evicted_at", &evicted_at))
      .def_prop_ro("num_cached_blocks", [](const BoundTree& bound) { return bound.tree.counts().num_cached_blocks; })
      .def_prop_ro("num_leased_blocks", [](const BoundTree& bound) { return bound.tree.counts().num_leased_blocks; })
      .def("_counts", &counts)
      .def("_nodes", alone("nodes", &nodes))
      .def("_columns", alone("columns", &node_columns))
      .def("_namespaces", alone("namespaces", &namespaces))
      .def("_candidates", alone("candidates", &candidates));
}
