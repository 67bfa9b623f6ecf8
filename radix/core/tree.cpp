// Prefix matching, insertion with node splitting, leases. Eviction is in eviction.cpp; invariants and costs in tree.h.
#include "tree.h"

#include <cmath>
#include <stdexcept>

namespace phloem::radix {

namespace {

constexpr const char* EVICTED = "the prefix has been evicted since it was matched: lease it before evicting";

// Shortens a vector, and returns its memory if less than half is left: repeated splits of a run must not add up.
void shorten(std::vector<int32_t>& items, size_t length) {
  items.resize(length);
  if (items.capacity() > 2 * length) items.shrink_to_fit();
}

std::string wrong_length(size_t num_blocks, size_t num_tokens, size_t block_size) {
  return std::to_string(num_blocks) + " block ids for " + std::to_string(num_tokens) + " tokens, which are " +
         std::to_string(num_tokens / block_size) + " whole blocks of " + std::to_string(block_size) +
         (num_tokens % block_size ? " and a tail" : "");
}

const Policy* policy_of(const std::string& name) {
  std::string known;
  for (const Policy& policy : POLICIES) {
    if (name == policy.name) return &policy;
    known += (known.empty() ? "" : ", ") + std::string(policy.name);
  }
  throw std::invalid_argument("no eviction policy '" + name + "'; there are " + known);
}

}  // namespace

Tree::Tree(int64_t block_size, const std::string& policy, size_t max_ghosts)
    : block_size_(static_cast<size_t>(block_size)), max_ghosts_(max_ghosts), policy_(policy_of(policy)) {
  if (block_size < 1)
    throw std::invalid_argument("block_size must be at least 1, not " + std::to_string(block_size));
}

// ---------------------------------------------------------------- nodes

Node* Tree::find(NodeId id, const char* if_evicted) {
  const auto found = nodes_.find(id);
  if (found != nodes_.end()) return &found->second;
  if (id != NOTHING && if_evicted) throw std::invalid_argument(if_evicted);
  return nullptr;
}

Node* Tree::find_root(std::string_view space) {
  const auto found = roots_.find(space);
  return found == roots_.end() ? nullptr : &found->second;
}

void Tree::drop_if_empty(Node* root) noexcept {
  if (root->children.empty()) roots_.erase(roots_.find(*root->space));
}

// Reserves room for the node's entry in the heap too: after this, linking the node into the tree must not fail.
Node* Tree::add_node(Node* parent) {
  if (candidates_.capacity() <= nodes_.size()) candidates_.reserve(2 * nodes_.size() + 1);
  Node& node = nodes_[next_id_];
  node.id = next_id_++;
  node.parent = parent;
  node.space = parent->space;
  return &node;
}

Node* Tree::add_leaf(Node* parent, Tokens tokens, Blocks blocks) {
  std::vector<int32_t> run(tokens.begin(), tokens.end()), ids(blocks.begin(), blocks.end());
  Children entry;
  entry.emplace(first_block(run), nullptr);
  Node* leaf = add_node(parent);  // the last step that can fail
  leaf->tokens.swap(run);
  leaf->blocks.swap(ids);
  leaf->end = parent->end + blocks.size();
  leaf->place = parent->children.insert(entry.extract(entry.begin())).position;
  leaf->place->second = leaf;
  counts_.num_cached_blocks += blocks.size();
  return leaf;
}

// Node splitting: moves the first blocks of a run into a new parent, and returns that. `lower` keeps its identity, and
// so its leases, its children and its entry in the heap. Only the lower part is copied, so cutting off the end of a
// long leaf is cheap.
Node* Tree::split(Node* lower, size_t num_blocks) {
  std::vector<int32_t> run(lower->tokens.begin() + static_cast<ptrdiff_t>(num_blocks * block_size_),
                           lower->tokens.end());
  std::vector<int32_t> ids(lower->blocks.begin() + static_cast<ptrdiff_t>(num_blocks), lower->blocks.end());
  Children below;
  below.emplace(first_block(run), lower);
  Node* upper = add_node(lower->parent);  // the last step that can fail
  Children& siblings = lower->parent->children;
  const auto next = std::next(lower->place);
  auto entry = siblings.extract(lower->place);
  upper->end = lower->end - (lower->blocks.size() - num_blocks);
  upper->tokens.swap(lower->tokens);
  upper->blocks.swap(lower->blocks);
  lower->tokens.swap(run);
  lower->blocks.swap(ids);
  shorten(upper->tokens, num_blocks * block_size_);
  shorten(upper->blocks, num_blocks);
  entry.key() = first_block(upper->tokens);
  entry.mapped() = upper;
  upper->place = siblings.insert(next, std::move(entry));
  upper->children.swap(below);
  lower->place = upper->children.begin();
  lower->parent = upper;
  upper->num_holds = lower->num_holds ? 1 : 0;
  upper->last_used = lower->last_used;
  upper->era = lower->era;
  upper->priority = lower->priority;
  return upper;
}

// ---------------------------------------------------------------- prefix matching

// The child whose run shares the longest prefix with `rest`, and its length.
Tree::Place Tree::closest_child(const Node& node, Tokens rest) const {
  const Tokens block = first_block(rest);
  const auto next = node.children.lower_bound(block);
  Place closest;
  const auto consider = [&](Node* child) {
    const size_t num_agreeing = common_prefix(child->tokens, rest);
    if (num_agreeing > closest.num_agreeing) closest = {nullptr, 0, child, num_agreeing};
  };
  if (next != node.children.end()) consider(next->second);
  if (closest.num_agreeing < block.size() && next != node.children.begin()) consider(std::prev(next)->second);
  return closest;
}

// Descends as long as whole runs match. Every search of the tree is this one.
Tree::Place Tree::walk(Node* start, Tokens tokens) const {
  Place place{start};
  while (place.node && place.offset < tokens.size()) {
    const Place next = closest_child(*place.node, tokens.subspan(place.offset));
    place.child = next.child;
    place.num_agreeing = next.num_agreeing;
    if (!next.child || next.num_agreeing < next.child->tokens.size()) return place;
    place = {next.child, place.offset + next.num_agreeing};
  }
  return place;
}

// A walk that ends at a node: a run that shares a block or more is split, so `num_agreeing` is less than a block.
Tree::Place Tree::walk_and_split(Node* start, Tokens tokens) {
  Place place = walk(start, tokens);
  if (place.num_agreeing < block_size_) return place;
  const size_t num_blocks = place.num_agreeing / block_size_;
  ++counts_.num_splits;
  return {split(place.child, num_blocks), place.offset + num_blocks * block_size_, place.child,
          place.num_agreeing % block_size_};
}

Match Tree::match(Tokens tokens, std::string_view space, double now) {
  const Place place = walk_and_split(find_root(space), tokens);
  ++counts_.num_matches;
  counts_.num_asked_tokens += tokens.size();
  counts_.num_matched_tokens += place.offset;
  Match match{place.offset};
  if (place.offset) {
    match.node = place.node->id;
    ++place.node->num_hits;
    mark_use(place.node, now);
  }
  if (place.num_agreeing) {
    match.partial_node = place.child->id;
    match.num_partial_tokens = place.num_agreeing;
    match.partial_block = place.child->blocks.front();
  }
  return match;
}

std::pair<size_t, size_t> Tree::peek(Tokens tokens, std::string_view space) {
  const Place place = walk(find_root(space), tokens);
  const size_t num_partial = place.num_agreeing % block_size_;
  return {place.offset + place.num_agreeing - num_partial, num_partial};
}

std::vector<int32_t> Tree::continuation(Tokens tokens, std::string_view space, size_t count) {
  const Place place = walk(find_root(space), tokens);
  const auto only_child = [](const Node* node) {
    return node && node->children.size() == 1 ? node->children.begin()->second : nullptr;
  };
  const Node* node = nullptr;
  if (place.offset == tokens.size())
    node = only_child(place.node);
  else if (place.offset + place.num_agreeing == tokens.size())
    node = place.child;
  std::vector<int32_t> found;
  for (size_t start = place.num_agreeing; node && found.size() < count; node = only_child(node), start = 0)
    found.insert(found.end(), node->tokens.begin() + static_cast<ptrdiff_t>(start), node->tokens.end());
  if (found.size() > count) found.resize(count);
  while (!found.empty() && found.back() == PADDING) found.pop_back();
  return found;
}

// ---------------------------------------------------------------- insertion

Inserted Tree::insert(Tokens tokens, Blocks blocks, std::string_view space, NodeId after, int32_t priority, double now,
                      const BlockCost& block_cost) {
  const size_t num_whole = tokens.size() / block_size_, num_rest = tokens.size() % block_size_;
  if (blocks.size() != num_whole && !(num_rest && blocks.size() == num_whole + 1))
    throw std::invalid_argument(wrong_length(blocks.size(), tokens.size(), block_size_));
  Node* start = find(after, "cannot insert after an evicted prefix: lease it before evicting");
  for (const size_t end = (start ? start->end : 0) + blocks.size(); block_cost && costs_.size() <= end;) {
    const double cost = block_cost(costs_.size() * block_size_);
    if (!std::isfinite(cost)) throw std::invalid_argument("block_cost: " + std::to_string(cost) + " is no finite number");
    costs_.push_back(cost);
  }
  if (blocks.empty() && !start && !find_root(space)) return {};
  if (!start) {
    const auto root = roots_.try_emplace(std::string(space)).first;
    root->second.space = &root->first;
    start = &root->second;
  }
  try {
    return insert_below(start, tokens, blocks, priority, now);
  } catch (...) {
    if (!start->parent) drop_if_empty(start);
    throw;
  }
}

// Until the last step that can fail, splits are the only changes.
Inserted Tree::insert_below(Node* start, Tokens tokens, Blocks blocks, int32_t priority, double now) {
  const size_t num_whole = tokens.size() / block_size_, num_rest = tokens.size() % block_size_;
  const bool has_tail = blocks.size() > num_whole;
  std::vector<int32_t> padded;
  Tokens run = tokens.first(num_whole * block_size_);
  if (has_tail) {
    padded.assign(tokens.begin(), tokens.end());
    padded.resize(blocks.size() * block_size_, PADDING);
    run = padded;
  }
  const Place place = walk_and_split(start, run);
  const size_t num_known = place.offset / block_size_;
  Node* node = place.node;
  Inserted inserted;
  size_t index = num_known;  // the given blocks that differ from those on the path are duplicates
  for (const Node* above = node; index; above = above->parent)
    for (auto own = above->blocks.rbegin(); index && own != above->blocks.rend(); ++own)
      if (*own != blocks[--index]) inserted.duplicates.push_back(blocks[index]);
  std::reverse(inserted.duplicates.begin(), inserted.duplicates.end());
  if (has_tail && num_known == num_whole && place.num_agreeing == num_rest) {
    inserted.duplicates.push_back(blocks.back());  // a cached block begins with the tail, and serves as a donor too
  } else if (num_known < blocks.size()) {
    inserted.num_new_tokens = (has_tail ? tokens.size() : run.size()) - num_known * block_size_;
    node = add_leaf(node, run.subspan(num_known * block_size_), blocks.subspan(num_known));
  }
  counts_.num_duplicate_blocks += inserted.duplicates.size();
  if (!node->parent) return inserted;
  node->priority = std::max(node->priority, priority);
  mark_use(node, now);
  offer(node);
  inserted.node = node->id;
  return inserted;
}

// ---------------------------------------------------------------- use, leases

// Times of use strictly increase, even if the clock does not: the least recently used leaf is always one.
void Tree::mark_use(Node* node, double now) noexcept {
  if (!(now > last_use_) || std::isinf(now)) now = std::nextafter(last_use_, std::numeric_limits<double>::infinity());
  node->last_used = last_use_ = now;
  node->era = era_;
}

void Tree::touch(NodeId id, double now) {
  Node* node = find(id, nullptr);
  if (!node) return;
  ++node->num_hits;
  mark_use(node, now);
}

void Tree::lease(NodeId id) {
  Node* node = find(id, "cannot lease an evicted prefix: lease it before evicting");
  if (!node) return;
  ++node->num_leases;
  Node* above = node;  // ends as the first that has holds already, or the root
  while (above->num_holds++ == 0 && above->parent) above = above->parent;
  counts_.num_leased_blocks += node->end - above->end;
}

void Tree::release(NodeId id) {
  Node* node = find(id, "released more often than leased");
  if (!node) return;
  if (!node->num_leases) throw std::invalid_argument("released more often than leased");
  --node->num_leases;
  Node* above = node;  // ends as the first that still has holds, or the root
  while (--above->num_holds == 0 && above->parent) above = above->parent;
  counts_.num_leased_blocks -= node->end - above->end;
  offer(node);
}

size_t Tree::num_sole_blocks(NodeId id) {
  const Node* node = find(id, nullptr);
  if (!node || node->num_leases != 1) return 0;
  size_t num_blocks = 0;
  for (; node && node->num_holds == 1; node = node->parent) num_blocks += node->blocks.size();
  return num_blocks;
}

// ---------------------------------------------------------------- the prefix of a node

// Joins the runs from the root to a node; `length`: the sum of theirs.
std::vector<int32_t> Tree::path(const Node* node, std::vector<int32_t> Node::* run, size_t length) const {
  std::vector<int32_t> found(length);
  for (auto end = found.end(); node && node->parent; node = node->parent)
    end = std::copy_backward((node->*run).begin(), (node->*run).end(), end);
  return found;
}

std::vector<int32_t> Tree::path_blocks(NodeId id) {
  const Node* node = find(id, EVICTED);
  return path(node, &Node::blocks, node ? node->end : 0);
}

std::vector<int32_t> Tree::path_tokens(NodeId id) {
  const Node* node = find(id, EVICTED);
  return path(node, &Node::tokens, node ? node->end * block_size_ : 0);
}

bool Tree::is_tail(NodeId id) {
  const Node* node = find(id, EVICTED);
  return node && node->tokens.back() == PADDING;
}

}  // namespace phloem::radix
