// Whether the indices of a network are in range (`check_network`).
#include "checks.h"
#include "laying.h"
#include "stacks.h"

namespace phloem::fsm {

namespace {

constexpr const char* DATA = "data";
constexpr int64_t MAX_NODES = 1 << (63 - NODE_SHIFT);
constexpr int64_t MAX_TRIE_NODES = SUB_MASK;  // nodes of the trie of a set

struct Range {
  int64_t first, count;
};

class Checks {
 public:
  Checks(Ints data, int64_t num_byte_sets, int64_t num_texts) : num_byte_sets_(num_byte_sets), num_texts_(num_texts) {
    require(static_cast<int64_t>(data.size()) >= NETWORK_HEAD, "is shorter than its head");
    check_offsets(DATA, data.first(N_END + 1), static_cast<int64_t>(data.size()));
    require(data[0] == NETWORK_HEAD, "has a wrong head");
    auto count = [&](Head field, size_t bytes) {
      const int64_t size = (data[field + 1] - data[field]) * 4;
      require(size % static_cast<int64_t>(bytes) == 0, "has part of a record");
      return size / static_cast<int64_t>(bytes);
    };
    num_nodes_ = count(N_KIND, 4);
    for (Head field : {N_ARG, N_NEXT, N_COST}) require(count(field, 4) == num_nodes_, "has nodes without a kind");
    require(num_nodes_ <= MAX_NODES, "has too many nodes");
    num_options_ = count(N_OPTIONS, 4);
    num_loops_ = count(N_LOOPS, sizeof(Loop));
    num_sets_ = count(N_SETS, sizeof(Set));
    num_members_ = count(N_MEMBERS, sizeof(Member));
    num_tries_ = count(N_TRIES, sizeof(KeyNode));
    num_edges_ = count(N_EDGES, sizeof(Edge));
    num_lists_ = count(N_LISTS, 4);
    network_ = network_of(data.data(), nullptr, num_byte_sets, {});
    check_values(DATA, Ints(network_.costs, num_nodes_), 0, NEVER + 1);
  }

  void run() const {
    node(network_.start);
    for (int64_t index = 0; index < num_nodes_; ++index) check_node(index);
    for (int64_t option = 0; option < num_options_; ++option) node(network_.options[option]);
    for (int64_t loop = 0; loop < num_loops_; ++loop) node(network_.loops[loop].entry);
    for (int64_t set = 0; set < num_sets_; ++set) check_set(set);
  }

 private:
  static void require(bool is_right, const char* why) { check(is_right, DATA, why); }
  static void within(Range range, int64_t size) {
    require(range.first >= 0 && range.count >= 0 && range.first + range.count <= size, "has a range out of bounds");
  }
  static void below(int64_t index, int64_t size) { require(0 <= index && index < size, "has an index out of range"); }
  void node(int64_t index) const { below(index, num_nodes_); }

  void check_node(int64_t index) const {
    const int64_t arg = network_.args[index], next = network_.nexts[index];
    const int32_t kind = network_.kinds[index];
    switch (kind) {
      case K_SPLIT: return within({arg, next}, num_options_);
      case K_RETURN: return;
      case K_KEY: return below(arg, num_sets_);
      case K_BYTE: below(arg, 256); break;
      case K_BYTES: below(arg, num_byte_sets_); break;
      case K_TEXT: below(arg, num_texts_); break;
      case K_CALL: node(arg); break;
      case K_LOOP: below(arg, num_loops_); break;
      case K_SET: below(arg, num_sets_); break;
      default: require(false, "has a node of an unknown kind");
    }
    node(next);
  }

  void check_set(int64_t number) const {
    const Set& set = network_.sets[number];
    for (int64_t one : {set.node, set.key, set.separator}) node(one);
    require(network_.kinds[set.node] == K_SET && network_.args[set.node] == number, "has a set at a wrong node");
    require(network_.kinds[set.key] == K_KEY && network_.args[set.key] == number, "has a set with a wrong key");
    within({set.members, set.num_members}, num_members_);
    require(0 <= set.num_texts && set.num_texts <= set.num_mixed && set.num_mixed <= set.num_members,
            "has more texts than members");
    require(int64_t{set.num_words} * WORD_BITS >= set.num_members && set.num_words <= num_lists_ &&
                (set.is_counted == 0 || set.is_counted == 1), "has too few words for a set");
    within({set.words, 2 * int64_t{set.num_words}}, num_lists_);
    within({set.others, set.num_others}, num_options_);
    check_trie(set);
    for (int32_t member = 0; member < set.num_members; ++member) check_member(set, network_.member(set, member));
  }

  void check_member(const Set& set, const Member& member) const {
    node(member.entry);
    below(member.cheap, set.num_members);
    for (Range range : {Range{member.implied, member.num_implied}, Range{member.excluded, member.num_excluded}}) {
      within(range, num_lists_);
      check_values(DATA, Ints(network_.lists + range.first, range.count), 0, set.num_members);
    }
  }

  // The nodes of the trie, from its root to the last one that an edge leads to, children after their parents.
  void check_trie(const Set& set) const {
    below(set.trie, num_tries_);
    int64_t last = set.trie;
    for (int64_t at = set.trie; at <= last; ++at) {
      const KeyNode& here = network_.tries[at];
      require(0 <= here.first && here.first <= here.end && here.end <= set.num_members, "has a trie of no members");
      require(here.ends == 0 || (here.ends == 1 && here.first < here.end), "has a trie in which no text ends");
      within({here.edges, here.num_edges}, num_edges_);
      require(here.num_edges > 0 || here.first + here.ends == here.end, "has a trie without its edges");
      for (int64_t edge = here.edges; edge < here.edges + here.num_edges; ++edge) {
        const auto [byte, target] = network_.edges[edge];
        below(byte, 256);
        if (target < 0) {
          below(~int64_t{target}, set.num_members);
        } else {
          require(at < target && target < num_tries_ && target - set.trie < MAX_TRIE_NODES, "has a trie out of order");
          last = std::max<int64_t>(last, target);
        }
      }
    }
  }

  Network network_;
  int64_t num_byte_sets_, num_texts_;
  int64_t num_nodes_, num_options_, num_loops_, num_sets_, num_members_, num_tries_, num_edges_, num_lists_;
};

}  // namespace

void check_network(Ints data, int64_t num_byte_sets, int64_t num_texts) {
  Checks(data, num_byte_sets, num_texts).run();
}

}  // namespace phloem::fsm
