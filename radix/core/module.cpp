// phloem._core.radix: the tree as Python sees it. Tokens and block ids are packed int32; a namespace is any str.
//
// One operation at a time: while a callback runs, every other call, from the callback or from another thread, raises
// RuntimeError. Only counts can be read at any time.
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
  if (packed.size() % sizeof(int32_t))
    throw std::invalid_argument("packed int32 take 4 bytes each, so they cannot be " + std::to_string(packed.size()) +
                                " bytes");
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

struct BoundTree {
  BoundTree(int64_t block_size, const std::string& policy, size_t max_ghosts) : tree(block_size, policy, max_ghosts) {}
  Tree tree;
  const char* operation = nullptr;  // the one under way
};

// The operation under way in a tree; its name is that of the method of `RadixTree`.
class Operation {
 public:
  Operation(BoundTree& bound, const char* name) : bound_(bound) {
    if (bound.operation)
      throw std::runtime_error("the tree is in use by " + std::string(bound.operation) + ": its callbacks (spare, " +
                               "block_cost, on_event) and other threads must not call " + name + " before it returns");
    bound.operation = name;
  }
  ~Operation() { bound_.operation = nullptr; }
  Operation(const Operation&) = delete;
  Operation& operator=(const Operation&) = delete;

 private:
  BoundTree& bound_;
};

// A function of a tree, as a method that is the only operation while it runs.
template <class Result, class... Args>
auto alone(const char* name, Result (*function)(Tree&, Args...)) {
  return [=](BoundTree& bound, Args... args) {
    const Operation operation(bound, name);
    return function(bound.tree, args...);
  };
}

template <class Result, class... Args>
auto alone(const char* name, Result (Tree::*method)(Args...)) {
  return [=](BoundTree& bound, Args... args) {
    const Operation operation(bound, name);
    return (bound.tree.*method)(args...);
  };
}

// Any int of Python, or what stands for one, as the nearest number of 64 bits.
int64_t nearest(nb::handle number) {
  int overflow = 0;
  const int64_t found = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
  if (found == -1 && PyErr_Occurred()) throw nb::python_error();
  return overflow > 0 ? INT64_MAX : overflow < 0 ? INT64_MIN : found;
}

// A callback's result is of a type that cannot be converted.
[[noreturn]] void refuse(const char* callback, const char* wanted, nb::handle result) {
  PyErr_Format(PyExc_TypeError, "%s must return %s, not %s", callback, wanted, Py_TYPE(result.ptr())->tp_name);
  throw nb::python_error();
}

double cost_of(const nb::object& result) {
  const double cost = PyFloat_AsDouble(result.ptr());
  if (cost != -1.0 || !PyErr_Occurred()) return cost;
  const bool is_large = PyErr_ExceptionMatches(PyExc_OverflowError);
  if (!is_large && !PyErr_ExceptionMatches(PyExc_TypeError)) throw nb::python_error();
  PyErr_Clear();
  if (!is_large) refuse("block_cost", "a number", result);
  return std::numeric_limits<double>::infinity();
}

int64_t count_of(const nb::object& result) {
  if (!PyIndex_Check(result.ptr())) refuse("spare", "a number of tokens as an int", result);
  return nearest(result);
}

// Tells of a run that came or went. That has happened, so an error cannot undo it: it is reported as one that cannot be
// raised, and the caller gets its answer. `make_run`: returns what is to be told.
template <class MakeRun>
void tell_of(const nb::object& tell, const char* kind, size_t block_size, MakeRun make_run) {
  try {
    const Run& run = make_run();
    const size_t start = run.path.size() - run.blocks.size() * block_size;
    tell(kind, Space::name(run.space), pack(run.path), start, run.blocks);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_Exception)) throw;
    error.discard_as_unraisable(tell);
  } catch (const std::bad_alloc&) {
    PyErr_NoMemory();
    PyErr_WriteUnraisable(tell.ptr());
  }
}

auto match(Tree& tree, const nb::bytes& tokens, const nb::str& space, double now) {
  const Match found = tree.match(unpacked(tokens), Space(space).key, now);
  return std::tuple(found.num_tokens, found.node, found.partial_node, found.num_partial_tokens, found.partial_block);
}

auto look(Tree& tree, const nb::bytes& tokens, const nb::str& space) {
  return tree.look(unpacked(tokens), Space(space).key);
}

nb::bytes continuation(Tree& tree, const nb::bytes& tokens, const nb::str& space, nb::handle count) {
  const auto limit = static_cast<size_t>(std::max<int64_t>(nearest(count), 0));
  return pack(tree.continuation(unpacked(tokens), Space(space).key, limit));
}

auto evicted_at(Tree& tree, const nb::bytes& tokens, const nb::str& space) {
  return tree.evicted_at(unpacked(tokens), Space(space).key);
}

auto insert(Tree& tree, const nb::bytes& tokens, const nb::bytes& blocks, const nb::str& space, NodeId after,
            nb::handle priority, double now, const nb::object& block_cost, const nb::object& tell) {
  BlockCost cost;
  if (!block_cost.is_none()) cost = [&](int64_t end) { return cost_of(block_cost(end)); };
  const Space name(space);
  const Blocks given = unpacked(blocks);
  const Inserted done = tree.insert(unpacked(tokens), given, name.key, after, nearest(priority), now, cost);
  if (!tell.is_none() && done.num_new_tokens)
    tell_of(tell, "inserted", tree.block_size(), [&] {
      const Blocks own = given.last((done.num_new_tokens + tree.block_size() - 1) / tree.block_size());
      return Run{std::string(name.key), tree.path_tokens(done.node), {own.begin(), own.end()}};
    });
  return std::tuple(done.num_new_tokens, done.node, pack(done.duplicates));
}

nb::bytes evict(Tree& tree, nb::handle num_wanted, double now, const nb::object& spare, const nb::object& tell) {
  Spare needed;
  if (!spare.is_none())
    needed = [&](const std::string& space, Tokens tokens) {
      return count_of(spare(Space::name(space), pack(tokens)));
    };
  std::vector<Run> evicted;
  const std::vector<int32_t> freed = tree.evict(nearest(num_wanted), now, needed, tell.is_none() ? nullptr : &evicted);
  for (const Run& run : evicted) tell_of(tell, "evicted", tree.block_size(), [&]() -> const Run& { return run; });
  return pack(freed);
}

std::vector<NodeId> ids(const Node& parent) {
  std::vector<NodeId> found;
  for (const auto& [block, child] : parent.children) found.push_back(child->id);
  return found;
}

nb::list nodes(Tree& tree) {
  nb::list found;
  for (const auto& [id, node] : tree.nodes())
    found.append(std::tuple(id, node.parent->id, Space::name(*node.space), pack(node.tokens), node.blocks, ids(node),
                            node.end, node.num_leases, node.num_holds, node.priority, node.last_used,
                            tree.rank_of(node), node.is_candidate));
  return found;
}

nb::dict roots(Tree& tree) {
  nb::dict found;
  for (const auto& [space, root] : tree.roots()) found[Space::name(space)] = std::pair(ids(root), root.num_holds);
  return found;
}

std::vector<nb::str> namespaces(Tree& tree) {
  std::vector<nb::str> found;
  for (const auto& [space, root] : tree.roots()) found.push_back(Space::name(space));
  return found;
}

auto candidates(Tree& tree) {
  std::vector<std::tuple<double, double, NodeId>> found;
  for (const Candidate& one : tree.candidates()) found.emplace_back(one.rank, one.last_used, one.node->id);
  return found;
}

nb::bytes path_blocks(Tree& tree, NodeId node) { return pack(tree.path_blocks(node)); }

nb::bytes path_tokens(Tree& tree, NodeId node) { return pack(tree.path_tokens(node)); }

nb::dict counts(const BoundTree& bound) {
  const Tree& tree = bound.tree;
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
  nb::class_<BoundTree>(radix, "Tree")
      .def(nb::init<int64_t, const std::string&, size_t>(), nb::arg("block_size"), nb::arg("policy"),
           nb::arg("max_ghosts"))
      .def("find", alone("match", &match), nb::arg("tokens"), nb::arg("namespace"), nb::arg("now"))
      .def("look", alone("peek", &look), nb::arg("tokens"), nb::arg("namespace"))
      .def("continuation", alone("continuation", &continuation), nb::arg("tokens"), nb::arg("namespace"),
           nb::arg("count"))
      .def("put", alone("insert", &insert), nb::arg("tokens"), nb::arg("blocks"), nb::arg("namespace"),
           nb::arg("after"), nb::arg("priority"), nb::arg("now"), nb::arg("block_cost").none(), nb::arg("tell").none())
      .def("use", alone("touch", &Tree::use), nb::arg("node"), nb::arg("now"))
      .def("lease", alone("lease", &Tree::lease), nb::arg("node"))
      .def("release", alone("release", &Tree::release), nb::arg("node"))
      .def("num_sole_blocks", alone("num_sole_blocks", &Tree::num_sole_blocks), nb::arg("node"))
      .def("packed_blocks", alone("packed_blocks", &path_blocks), nb::arg("node"))
      .def("path_tokens", alone("path_tokens", &path_tokens), nb::arg("node"))
      .def("is_tail", alone("is_tail", &Tree::is_tail), nb::arg("node"))
      .def("take", alone("evict", &evict), nb::arg("num_blocks"), nb::arg("now"), nb::arg("spare").none(),
           nb::arg("tell").none())
      .def("evicted_at", alone("evicted_at", &evicted_at), nb::arg("tokens"), nb::arg("namespace"))
      .def_prop_ro("num_cached_blocks", [](const BoundTree& bound) { return bound.tree.counts().num_cached_blocks; })
      .def_prop_ro("num_leased_blocks", [](const BoundTree& bound) { return bound.tree.counts().num_leased_blocks; })
      .def("counts", &counts)
      .def("nodes", alone("nodes", &nodes))
      .def("roots", alone("roots", &roots))
      .def("namespaces", alone("namespaces", &namespaces))
      .def("candidates", alone("candidates", &candidates));
}
