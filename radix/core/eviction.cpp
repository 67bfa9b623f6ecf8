// Eviction of leaves: their order, how much of a leaf is evicted, and the record of what was.
#include <algorithm>

#include "tree.h"

namespace phloem::radix {

namespace {

// A leaf with more blocks than wanted is still evicted whole if the surplus is at most 16 blocks, or 1/64 of the cache:
// the next eviction would take the rest anyway.
constexpr size_t MAX_SURPLUS_BLOCKS = 16;
constexpr size_t SURPLUS_SHARE = 64;
// At most as many leaves are spared by one eviction, in whole or in part.
constexpr size_t MAX_SPARED = 64;

bool is_free_leaf(const Node& node) { return node.parent && node.children.empty() && !node.num_holds; }

Tokens without_padding(Tokens tokens) {
  while (!tokens.empty() && tokens.back() == PADDING) tokens = tokens.first(tokens.size() - 1);
  return tokens;
}

}  // namespace

// ---------------------------------------------------------------- candidates

double Tree::rank_of(const Node& node) const {
  return policy_->rank(node, node.end < costs_.size() ? costs_[node.end] : 0.0);
}

// Makes an evictable leaf a candidate; no effect if it is one already. `add_node` has reserved the memory.
void Tree::offer(Node* node) noexcept {
  if (node->is_candidate || !is_free_leaf(*node)) return;
  candidates_.push_back({rank_of(*node), node->last_used, node});
  node->is_candidate = true;
  std::push_heap(candidates_.begin(), candidates_.end());
}

void Tree::drop_first_candidate() noexcept {
  std::pop_heap(candidates_.begin(), candidates_.end());
  candidates_.back().node->is_candidate = false;
  candidates_.pop_back();
}

// The next leaf to evict, from the top of the heap; null if there is none. Pushes entries that are out of date again,
// under their present key.
Node* Tree::first_candidate() {
  while (!candidates_.empty()) {
    const Candidate first = candidates_.front();
    const bool is_present = first.rank == rank_of(*first.node) && first.last_used == first.node->last_used;
    if (is_present && is_free_leaf(*first.node)) return first.node;
    drop_first_candidate();
    offer(first.node);
  }
  return nullptr;
}

// ---------------------------------------------------------------- eviction

// How many blocks of a leaf are to be spared, counted from its first. A tail is spared if it is needed to its end.
size_t Tree::count_spared(const Node& leaf, const Spare& spare) const {
  const std::vector<int32_t> tokens = path(&leaf, &Node::tokens, leaf.end * block_size_);
  const Tokens real = without_padding(tokens);
  const auto num_tokens = static_cast<size_t>(std::max<int64_t>(0, spare(*leaf.space, real)));
  const size_t num_blocks = num_tokens >= real.size() ? leaf.end : num_tokens / block_size_;
  return num_blocks - std::min(num_blocks, leaf.end - leaf.blocks.size());
}

// How many blocks an eviction leaves of a leaf: those that are spared, or all but `num_wanted` of a much longer one.
size_t Tree::count_left(const Node& leaf, size_t num_spared, size_t num_wanted) const {
  const size_t num_free = leaf.blocks.size() - num_spared;
  const size_t surplus = std::max(MAX_SURPLUS_BLOCKS, counts_.num_cached_blocks / SURPLUS_SHARE);
  const bool is_long = num_free > 2 * num_wanted && num_free - num_wanted > surplus;
  return leaf.blocks.size() - (is_long ? num_wanted : num_free);
}

// Records the eviction of a leaf under `parent`.
void Tree::remember(const Node& leaf, const Node& parent, double now) {
  if (!max_ghosts_) return;
  const Tokens block = first_block(leaf.tokens);
  Ghost ghost{*leaf.space, parent.id, now, {block.begin(), block.end()}};
  if (ghosts_.size() < max_ghosts_)
    ghosts_.push_back(std::move(ghost));
  else
    ghosts_[num_ghosts_ % max_ghosts_] = std::move(ghost);
  ++num_ghosts_;
}

// Removes the first candidate from the tree, except for its first `num_left` blocks, which become a new node: an id
// that a caller has kept stands for the whole prefix, and that is gone. Its use passes to its parent, which is
// returned, or null for a root.
Node* Tree::cut(Node* leaf, size_t num_left, double now) {
  Node* parent = num_left ? split(leaf, num_left) : leaf->parent;
  remember(*leaf, *parent, now);  // the last step that can fail
  drop_first_candidate();
  era_ = std::max(era_, rank_of(*leaf));
  counts_.num_cached_blocks -= leaf->blocks.size();
  counts_.num_evicted_blocks += leaf->blocks.size();
  parent->num_hits += leaf->num_hits;
  parent->last_used = std::max(parent->last_used, leaf->last_used);
  parent->era = std::max(parent->era, leaf->era);
  parent->priority = std::max(parent->priority, leaf->priority);
  parent->children.erase(leaf->place);
  nodes_.erase(leaf->id);
  if (parent->parent) return parent;
  drop_if_empty(parent);
  return nullptr;
}

std::vector<int32_t> Tree::evict(size_t num_wanted, double now, const Spare& spare, std::vector<Run>* runs) {
  struct Spared {  // at the end, or on an exception, they become candidates again, as used now
    Tree& tree;
    double now;
    std::vector<Node*> leaves;
    ~Spared() {
      for (Node* leaf : leaves) tree.mark_use(leaf, now), tree.offer(leaf);
    }
  } spared{*this, now, {}};
  if (spare) spared.leaves.reserve(MAX_SPARED);
  std::vector<int32_t> freed;
  while (freed.size() < num_wanted) {
    Node* leaf = first_candidate();
    if (!leaf) break;
    const size_t num_spared = spare && spared.leaves.size() < MAX_SPARED ? count_spared(*leaf, spare) : 0;
    if (num_spared == leaf->blocks.size()) {
      drop_first_candidate();
      spared.leaves.push_back(leaf);
      continue;
    }
    const size_t num_left = count_left(*leaf, num_spared, num_wanted - freed.size());
    const Blocks blocks = Blocks(leaf->blocks).subspan(num_left);
    freed.insert(freed.end(), blocks.begin(), blocks.end());
    if (runs)
      runs->push_back({*leaf->space, path(leaf, &Node::tokens, leaf->end * block_size_),
                       {blocks.begin(), blocks.end()}});
    Node* rest = cut(leaf, num_left, now);
    if (rest && num_left && num_left == num_spared)
      spared.leaves.push_back(rest);
    else if (rest)
      offer(rest);
  }
  return freed;
}

// ---------------------------------------------------------------- ghosts

std::optional<double> Tree::evicted_at(Tokens tokens, std::string_view space) {
  const Place place = walk(find_root(space), tokens);
  if (place.num_agreeing >= block_size_) return std::nullopt;  // ghosts are recorded at ends of runs
  const Tokens next = first_block(tokens.subspan(place.offset));
  const NodeId at = place.node ? place.node->id : NOTHING;
  for (size_t number = num_ghosts_; number-- > num_ghosts_ - ghosts_.size();) {
    const Ghost& ghost = ghosts_[number % max_ghosts_];
    if (ghost.place != at || ghost.space != space) continue;
    const Tokens gone = without_padding(ghost.block);
    const size_t length = std::min(gone.size(), next.size());
    if (length > place.num_agreeing && common_prefix(gone, next) == length) return ghost.when;
  }
  return std::nullopt;
}

}  // namespace phloem::radix
