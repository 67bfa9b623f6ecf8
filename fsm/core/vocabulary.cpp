#include "vocabulary.h"

namespace phloem::fsm {

std::unique_ptr<Scratch> Vocabulary::borrow() {
  {
    std::lock_guard guard(mutex_);
    if (!free_.empty()) {
      std::unique_ptr<Scratch> found = std::move(free_.back());
      free_.pop_back();
      return found;
    }
    free_.reserve(++num_made_);  // so that giving back needs no memory
  }
  return std::make_unique<Scratch>();
}

void Vocabulary::give_back(std::unique_ptr<Scratch> scratch) noexcept {
  std::lock_guard guard(mutex_);
  free_.push_back(std::move(scratch));
}

void set_tokens(const TokenTrie& trie, int64_t node, int64_t end, int32_t* bits) {
  for (int32_t index = trie.firsts[node]; index < trie.firsts[end]; ++index) set_bit(bits, trie.ordered[index]);
}

void clear_tokens(const TokenTrie& trie, int64_t node, int64_t end, int32_t* bits) {
  for (int32_t index = trie.firsts[node]; index < trie.firsts[end]; ++index) clear_bit(bits, trie.ordered[index]);
}

void set_short_tokens(const TokenTrie& trie, int64_t node, int64_t end, int64_t limit, int32_t* bits) {
  for (int32_t index = trie.firsts[node]; index < trie.firsts[end]; ++index) {
    if (trie.lens[index] <= limit) {
      set_bit(bits, trie.ordered[index]);
    } else {
      clear_bit(bits, trie.ordered[index]);
    }
  }
}

}  // namespace phloem::fsm
