#include "literal_trie.h"

#include <algorithm>

namespace phloem::fsm {

namespace {

enum : int64_t { K_BYTE = 0, K_SPLIT = 3 };

class Builder {
 public:
  Builder(int64_t first_node, int64_t first_option) : first_node_(first_node), first_option_(first_option) {}

  // A literal ends at this depth, at the node `end`.
  void open(size_t depth, int64_t end) {
    if (frames_.back().depth != depth) frames_.push_back({depth, entries().size()});
    entries().push_back(end);
  }

  // Closes the frames below this depth along the literal whose bytes begin at `literal`.
  void close(size_t depth, int64_t literal) {
    while (frames_.back().depth > depth) {
      const Frame frame = frames_.back();
      frames_.pop_back();
      const int64_t node = joined(frame.begin);
      const size_t upper = std::max(depth, frames_.back().depth);
      const int64_t begin = literal + static_cast<int64_t>(upper), end = literal + static_cast<int64_t>(frame.depth);
      found.spans.insert(found.spans.end(), {begin, end});
      open(upper, add(K_BYTE, 0, node));
    }
  }

  LiteralTrie found;

 private:
  struct Frame {
    size_t depth, begin;  // its nodes are the entries from there on
  };

  std::vector<int64_t>& entries() { return found.entries; }

  int64_t add(int64_t kind, int64_t arg, int64_t next) {
    const int64_t number = first_node_ + static_cast<int64_t>(found.nodes.size()) / 3;
    found.nodes.insert(found.nodes.end(), {kind, arg, next});
    return number;
  }

  // Takes the last entries away; the node that stands for all of them, a split if there are several.
  int64_t joined(size_t begin) {
    int64_t node = entries()[begin];
    const size_t count = entries().size() - begin;
    if (count > 1) {
      node = add(K_SPLIT, first_option_ + static_cast<int64_t>(found.options.size()), static_cast<int64_t>(count));
      found.options.insert(found.options.end(), entries().rbegin(), entries().rbegin() + static_cast<int64_t>(count));
    }
    entries().resize(begin);
    return node;
  }

  int64_t first_node_, first_option_;
  std::vector<Frame> frames_ = {{0, 0}};  // the last is open
};

}  // namespace

LiteralTrie literal_trie(Bytes data, std::span<const int64_t> lens, int64_t end, int64_t first_node,
                         int64_t first_option) {
  Builder builder(first_node, first_option);
  Bytes before;
  int64_t at = static_cast<int64_t>(data.size());
  for (size_t turn = lens.size(); turn-- > 0;) {
    const Bytes literal = data.subspan(at - lens[turn], lens[turn]);
    const auto differs = std::mismatch(literal.begin(), literal.end(), before.begin(), before.end()).first;
    builder.close(static_cast<size_t>(differs - literal.begin()), at);
    builder.open(literal.size(), end);
    before = literal;
    at -= lens[turn];
  }
  builder.close(0, at);
  return std::move(builder.found);
}

}  // namespace phloem::fsm
