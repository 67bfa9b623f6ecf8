#include "safe.h"

#include <algorithm>
#include <bit>

namespace phloem::fsm {

namespace {

constexpr int MAX_SWEEPS = 32;  // over all states; where more are needed it does not pay
constexpr size_t MAX_REGION = 16;  // states within which safe characters stay ...
constexpr int64_t MAX_REGION_STATES = 256;  // ... searched for among at most as many states
constexpr int64_t MAX_CLASSES = 2048;

// What may stand on the way: a state that costs at most `limit` and, if the exits are wanted, does not accept.
struct Search {
  const TextTable& text;
  int64_t limit;
  bool with_exits;

  int64_t target(int64_t state, int64_t class_id) const { return text.table[state * text.num_classes + class_id]; }
  int64_t cost_at(int64_t state) const { return int64_t{text.costs[state]} + 3; }
  bool may_pass(int64_t state) const { return cost_at(state) <= limit && !(with_exits && text.accepts[state]); }
};

using Classes = std::vector<uint8_t>;  // by class, whether it belongs to a set

SafeCharacters characters_of(const TextTable& text, const Classes& safe, int64_t steps, int64_t worst, bool is_exact) {
  SafeCharacters found{.steps = steps, .worst = worst, .is_exact = is_exact};
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    if (!safe[class_id]) found.unsafe_wide |= text.is_wide[class_id];
  }
  for (int byte = 0; byte < 128; ++byte) {
    const int32_t spelt = text.first_node[byte];
    if (spelt < 0 && safe[-spelt]) found.ascii[byte >> 6] |= uint64_t{1} << (byte & 63);
  }
  return found;
}

// The target of most ASCII bytes: by a majority vote, or else that of the heaviest class; 0: there is none.
int64_t majority_of(const Search& search, int64_t state) {
  const TextTable& text = search.text;
  int64_t majority = 0, votes = 0, heaviest = 0;
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    const int64_t target = search.target(state, class_id), weight = text.num_ascii[class_id];
    if (target == majority) {
      votes += weight;
    } else if (weight > votes) {
      majority = target;
      votes = weight - votes;
    } else {
      votes -= weight;
    }
  }
  for (int64_t class_id = 1; class_id < text.num_classes && (majority == 0 || heaviest); ++class_id) {
    const int64_t target = search.target(state, class_id);
    if (!target || text.num_ascii[class_id] <= heaviest) continue;
    majority = target;
    heaviest = text.num_ascii[class_id];
  }
  return majority;
}

// Safe characters that lead on in one way for many steps: a set of classes is found that all lead from the state to one
// and the same, all from there to one and the same, and so on. The chain ends at its length if all of them are refused
// from there, and before that if they part, or where they may not pass.
SafeCharacters find_chain(const Search& search, int64_t state) {
  const int64_t num_classes = search.text.num_classes, majority = majority_of(search, state);
  if (majority == 0) return {};
  Classes safe(num_classes);
  std::vector<int64_t> classes;
  for (int64_t class_id = 1; class_id < num_classes; ++class_id) {
    if (search.target(state, class_id) != majority) continue;
    safe[class_id] = 1;
    classes.push_back(class_id);
  }
  int64_t steps = 0, worst = 0, here = state;
  bool is_exact = false;
  while (steps < MAX_SAFE_STEPS) {
    const int64_t following = search.target(here, classes[0]);
    const bool part = std::any_of(classes.begin(), classes.end(),
                                  [&](int64_t class_id) { return search.target(here, class_id) != following; });
    if (part) break;
    if (following == 0) {
      is_exact = true;
      break;
    }
    if (!search.may_pass(following)) break;
    worst = std::max(worst, search.cost_at(following));
    ++steps;
    if (following == here) {
      steps = ENDLESS_STEPS;
      break;
    }
    here = following;
  }
  return characters_of(search.text, safe, steps, worst, is_exact);
}

// Safe characters that never leave a few states, found greedily: classes are struck out that lead to a refusal, to
// where they may not pass, or beyond MAX_REGION states; what remains is closed.
SafeCharacters find_region(const Search& search, int64_t state) {
  Classes safe(search.text.num_classes, 1);
  std::vector<uint8_t> is_inside(search.text.num_states);
  // the state itself is where the walk stands, but being led back to it counts
  const bool may_return = search.may_pass(state);
  std::vector<int64_t> region = {state};
  for (size_t done = 0; done < region.size(); ++done) {
    for (int64_t class_id = 1; class_id < search.text.num_classes; ++class_id) {
      if (!safe[class_id]) continue;
      const int64_t target = search.target(region[done], class_id);
      if (is_inside[target] || (may_return && target == state)) continue;
      if (target && target != state && region.size() < MAX_REGION && search.may_pass(target)) {
        region.push_back(target);
        is_inside[target] = 1;
      } else {
        safe[class_id] = 0;
      }
    }
  }
  int64_t worst = may_return ? search.cost_at(state) : 0;
  for (size_t index = 1; index < region.size(); ++index) worst = std::max(worst, search.cost_at(region[index]));
  return characters_of(search.text, safe, ENDLESS_STEPS, worst, false);
}

// The states from which any plain text may follow, however many states that leads through: by state 1 if such a text is
// never refused, plus 2 if it meets no accepting state either. All 0 if that takes too many sweeps.
std::vector<int32_t> plain_marks(const TextTable& text, const Classes& classes) {
  std::vector<int32_t> marks(text.num_states);
  for (int64_t state = 1; state < text.num_states; ++state) {
    marks[state] = text.costs[state] >= NEVER ? 0 : text.accepts[state] ? 1 : 3;
  }
  bool changed = true;
  for (int sweep = 0; changed; ++sweep) {
    if (sweep == MAX_SWEEPS) return std::vector<int32_t>(text.num_states);
    changed = false;
    for (int64_t turn = 1; turn < text.num_states; ++turn) {
      const int64_t state = sweep % 2 ? turn : text.num_states - turn;
      int32_t left = marks[state];
      for (int64_t class_id = 1; class_id < text.num_classes && left; ++class_id) {
        const int32_t target = text.table[state * text.num_classes + class_id];
        if (classes[class_id]) left &= target ? marks[target] : 0;
      }
      changed |= left != marks[state];
      marks[state] = left;
    }
  }
  return marks;
}

// Fills text.plain: the marks, and in plain[0] 3 + the greatest cost of a marked state. It is written last and read
// first, as several automata may share the text: each that finds 0 there computes the same.
void find_plain(const TextTable& text) {
  Classes classes(text.num_classes);
  for (int64_t class_id = 1; class_id < text.num_classes; ++class_id) {
    classes[class_id] = (text.is_wide[class_id] & PLAIN_WIDE) != 0;
  }
  bool spells_all = true;
  for (int byte = 0; byte < 128; ++byte) {
    if (!is_plain_byte(byte)) continue;
    const int32_t spelt = text.first_node[byte];
    spells_all = spells_all && spelt < 0;
    if (spelt < 0) classes[-spelt] = 1;
  }
  int32_t worst = 3;
  if (spells_all) {
    const std::vector<int32_t> marks = plain_marks(text, classes);
    for (int64_t state = 1; state < text.num_states; ++state) {
      if (marks[state]) worst = std::max(worst, text.costs[state] + 3);
      __atomic_store_n(&text.plain[state], marks[state], __ATOMIC_RELAXED);
    }
  }
  __atomic_store_n(&text.plain[0], worst, __ATOMIC_RELEASE);
}

int64_t weight_of(const SafeCharacters& safe) { return std::popcount(safe.ascii[0]) + std::popcount(safe.ascii[1]); }

}  // namespace

SafeCharacters find_safe(const TextTable& text, int64_t state, int64_t limit, bool with_exits) {
  if (text.num_classes > MAX_CLASSES) return {};
  const Search search{text, limit, with_exits};
  SafeCharacters found = find_chain(search, state);
  const int64_t weight = found.steps ? weight_of(found) : 0;
  const bool is_poor = weight < 90 || found.unsafe_wide || (found.steps < MAX_SAFE_STEPS && !found.is_exact);
  if (is_poor && text.num_states <= MAX_REGION_STATES) {
    const SafeCharacters region = find_region(search, state);
    if (weight_of(region) >= weight) found = region;
  }
  if (is_plain(found)) return found;
  if (__atomic_load_n(&text.plain[0], __ATOMIC_ACQUIRE) == 0) find_plain(text);
  const int32_t marks = __atomic_load_n(&text.plain[state], __ATOMIC_RELAXED), worst = __atomic_load_n(&text.plain[0], __ATOMIC_RELAXED);
  if ((marks >> with_exits & 1) && worst <= limit) {
    return {{PLAIN[0], PLAIN[1]}, WIDE_SEPARATORS, ENDLESS_STEPS, worst, false};
  }
  return found;
}

bool is_plain(const SafeCharacters& safe) {
  return (PLAIN[0] & ~safe.ascii[0]) == 0 && (PLAIN[1] & ~safe.ascii[1]) == 0 && (safe.unsafe_wide & PLAIN_WIDE) == 0 &&
         (safe.steps >= NUM_PLAIN_ROWS || (safe.steps != 0 && safe.is_exact));
}

}  // namespace phloem::fsm
