// What the parts of a grammar leave (grammars/rule_product.py): the obligations that may follow a node, given those
// before it.
//
// Obligations are numbers, 0 being none; a set of them is a number as well (`ObligationSets`), 0 being the empty one.
#pragma once
#include <array>
#include <functional>
#include <map>
#include <unordered_map>
#include <vector>

#include "table.h"

namespace phloem::fsm {

// A terminal may stand after what is ignored: that has a rule of its own.
enum LexedKind : int32_t { L_SEQUENCE, L_ALTERNATION, L_REPEAT, L_RULE, L_TERMINAL, L_SPACED };

constexpr int32_t EMPTY_NODE = 0;
constexpr int32_t ANY_LEFT = -1;  // as a set: all obligations

struct TooMany {};  // answers or rules

// Sets of obligations, each a sorted vector and known by its number.
class ObligationSets {
 public:
  using Members = std::vector<int32_t>;
  ObligationSets() { number({}); }
  int32_t number(Members members);
  const Members& members(int32_t set) const { return *members_[set]; }
  int32_t of_one(int32_t obligations) { return number({obligations}); }
  int32_t both(int32_t one, int32_t other);     // what is in both; the other may be ANY_LEFT
  int32_t either(int32_t one, int32_t other);   // what is in one of them
  int32_t without(int32_t one, int32_t other);  // what is in the first only
  bool has(int32_t set, int32_t obligations) const;  // the set may be ANY_LEFT
  int32_t num_sets() const { return static_cast<int32_t>(members_.size()); }

 private:
  std::map<Members, int32_t> numbers_;
  std::vector<const Members*> members_;  // keys of a map stay where they are
};

// The parts of a grammar: kinds, and of each node three numbers,
//   sequence     node, rest              (the empty text has none)
//   alternation  begin, end in options
//   repeat       node, minimum, maximum  (-1: none)
//   rule         its number
//   terminal     its number
//   spaced       the number of its rule
// and the number of the set of terminals that it may begin with, and whether it may write nothing.
struct LexedNodes {
  std::vector<int32_t> kinds, parts, options, firsts;
  std::vector<uint8_t> nullable;
  std::vector<int32_t> bodies;  // of each rule
};

// What is asked of the terminals, once for the same arguments.
struct Terminals {
  std::function<std::vector<int32_t>(int32_t node, int32_t before)> left_by;  // the obligations that a terminal leaves
  std::function<bool(int32_t first, int32_t before)> is_harmless;  // for all terminals that a node may begin with
  std::function<int32_t(int32_t first, int32_t before)> seen_by;   // a number, equal if they cannot tell
  std::function<void()> check;                                     // throws if the time is over
};

class Leaving {
 public:
  // Throws TooMany from `left` once more than max_news answers have reached those that wait for them.
  Leaving(LexedNodes nodes, Terminals terminals, int64_t max_news)
      : nodes(std::move(nodes)), terminals(std::move(terminals)), max_news_(max_news) {}

  // The set of obligations that a node can leave.
  int32_t left(int32_t node, int32_t before);
  // The node of a repetition.
  int32_t repeated(int32_t item, int32_t minimum, int32_t maximum);
  // Whether obligations change nothing for whatever a node begins with, nor outlive it.
  bool is_harmless(int32_t node, int32_t before);
  // What a node can tell of obligations, as a number.
  int32_t seen_by(int32_t node, int32_t before);
  // Throws if the time is over; asks now and then.
  void check_time() {
    if (++num_steps_ % FEW_STEPS == 0) terminals.check();
  }
  const int32_t* parts(int32_t node) const { return &nodes.parts[3 * node]; }

  LexedNodes nodes;
  Terminals terminals;
  ObligationSets sets;

 private:
  using Key = std::pair<int32_t, int32_t>;  // a node, and the obligations before it
  struct User {
    Key key;
    int32_t then;
  };
  struct News {
    User user;
    int32_t found;
  };
  static uint64_t packed(int32_t one, int32_t other) { return uint64_t(uint32_t(one)) << 32 | uint32_t(other); }

  bool is_terminal(int32_t node) const { return nodes.kinds[node] >= L_TERMINAL; }
  int32_t left_by(int32_t node, int32_t before);
  bool resolved(int32_t& node, int32_t& before);
  void settle();
  void ask(int32_t node, int32_t before, const User& user);
  void look_into(Key key);
  int32_t counted(Key key);

  static constexpr int64_t FEW_STEPS = 64;

  int64_t max_news_, num_news_ = 0, num_steps_ = 0;
  std::map<std::array<int32_t, 3>, int32_t> repeats_;  // made here: item, minimum, maximum
  std::unordered_map<uint64_t, int32_t> left_by_, settled_, known_, harmless_, seen_;
  std::unordered_map<uint64_t, std::vector<User>> users_;  // those that wait for an answer
  std::vector<Key> pending_;                               // asked for, and not looked into yet
  std::vector<News> news_;
};

}  // namespace phloem::fsm
