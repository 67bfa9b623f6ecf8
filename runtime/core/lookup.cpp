// See lookup.h.
#include "lookup.h"

#include <algorithm>

namespace phloem::runtime {
namespace {

constexpr int64_t MAX_LENGTH = 32;    // of an agreement, when it is looked for; it grows as it is confirmed
constexpr int MAX_CANDIDATES = 16;    // that are compared
constexpr int64_t LEAST_RESUMED = 4;  // tokens of a run that is taken up again after another token
constexpr double FADE_OWN = 0.95, FADE_COMMON = 0.995, COMMON_WEIGHT = 4.0;
// A text whose latest tokens came less often than their chances said is taken to go on like that, whatever the ground:
// it soon shows where it stops to copy, while grounds are learnt one by one.
constexpr double FADE_LUCK = 0.8, LUCK_WEIGHT = 1.0;

struct Place {
  int64_t at, length;  // where what is expected stands, and how many tokens before it agree
};

struct Tables {
  explicit Tables(const Text& text)
      : tokens(text.tables),
        links(tokens + text.capacity),
        heads(links + text.capacity + 1),
        singles(heads + text.hash_mask + 1),
        folds(text.folds),
        mask(text.hash_mask) {}

  int64_t fold(int64_t index) const { return folds[tokens[index]]; }
  int64_t agreement(int64_t place, int64_t end) const;
  Place enter(int64_t end);
  Place search(int64_t end, Place latest) const;

  int32_t *tokens, *links, *heads, *singles;
  const int32_t* folds;
  int64_t mask;
};

// The ground of an agreement of so many tokens.
int64_t ground_of(int64_t length) {
  if (length <= 4) return length;
  if (length <= 8) return length <= 6 ? 5 : 6;
  if (length <= 16) return 7;
  return length <= 32 ? 8 : 9;
}

// The agreement once the token expected on it is right.
int64_t after(int64_t length) { return length ? length + 1 : LEAST_RESUMED; }

// How likely a token of this ground is right.
double chance_of(const Text& text, int64_t ground) {
  const double rate = text.common->right[ground] / text.common->expected[ground];
  return (text.own.right[ground] + COMMON_WEIGHT * rate) / (text.own.expected[ground] + COMMON_WEIGHT);
}

void score(Counts& counts, int64_t ground, bool is_right, double fade) {
  counts.right[ground] = fade * counts.right[ground] + is_right;
  counts.expected[ground] = fade * counts.expected[ground] + 1.0;
}

int64_t hash_pair(int64_t first, int64_t second, int64_t mask) {
  const uint64_t mixed = (uint64_t)(first + 1) * 0x2545F4914F6CDD1Du + (uint64_t)(second + 1) * 0x1B873593CC9E2D51u;
  return (int64_t)((mixed >> 33) ^ (mixed >> 17)) & mask;
}

// How many tokens before `place` agree with those before `end`.
int64_t Tables::agreement(int64_t place, int64_t end) const {
  int64_t length = 0;
  while (length < std::min(MAX_LENGTH, place) && fold(place - 1 - length) == fold(end - 1 - length)) length++;
  return length;
}

// Takes note of the tokens before `end`; where the last two, and (as the length) the last, went on before.
Place Tables::enter(int64_t end) {
  const int64_t last = fold(end - 1), single = hash_pair(last, -1, mask);
  Place latest{0, singles[single]};
  singles[single] = (int32_t)end;
  if (end >= 2) {
    const int64_t pair = hash_pair(fold(end - 2), last, mask);
    latest.at = heads[pair];
    heads[pair] = (int32_t)end;
    links[end] = (int32_t)latest.at;
  }
  return latest;
}

// Where the longest agreement goes on, of equals the latest. (-1, 0): nothing agrees. latest: from `enter`.
Place Tables::search(int64_t end, Place latest) const {
  Place best{-1, 0};
  int64_t place = latest.at;
  for (int turn = 0; turn < MAX_CANDIDATES && place > 0 && best.length < MAX_LENGTH; turn++) {
    const int64_t length = agreement(place, end);
    if (length > best.length) best = {place, length};
    place = links[place];
  }
  if (best.length < 2 && latest.length > 0) {
    const int64_t length = agreement(latest.length, end);
    if (length > best.length) best = {latest.length, length};
  }
  return best;
}

// Scores the token expected at a place by the one that came; whether a draft would have had it.
bool learn(Text& text, const Tables& tables, Place place, int32_t token, double floor) {
  const int64_t ground = ground_of(place.length);
  const bool is_right = tables.tokens[place.at] == token;
  const double chance = chance_of(text, ground);
  text.luck = FADE_LUCK * text.luck + is_right;
  text.chances = FADE_LUCK * text.chances + chance;
  score(text.own, ground, is_right, FADE_OWN);
  score(*text.common, ground, is_right, FADE_COMMON);
  return is_right && chance >= floor;
}

int64_t draft(Text& text, const Tables& tables, double floor, int64_t limit) {
  const double luck = std::min(1.0, (text.luck + LUCK_WEIGHT) / (text.chances + LUCK_WEIGHT));
  double chance = 1.0;
  int64_t length = text.length, count = 0;
  while (count < limit) {
    chance *= luck * chance_of(text, ground_of(length));
    const int64_t place = text.at + count;
    if (chance < floor || place == text.source_end) break;
    // a run may reach into itself
    text.draft[count] = place < text.num_tokens ? tables.tokens[place] : text.draft[place - text.num_tokens];
    length = after(length);
    count++;
  }
  return count;
}

}  // namespace

int64_t follow(Text& text, const int32_t* token_ids, int64_t num_tokens, int64_t num_silent, double floor,
               int64_t limit) {
  int64_t end = text.num_tokens;
  if (!text.tables || end + num_tokens - text.num_seen > text.capacity) return FULL;
  Tables tables(text);
  Place place{text.at, text.length};
  bool was_right = false;
  for (int64_t index = text.num_seen; index < num_tokens; index++) {
    const int32_t token = token_ids[index];
    tables.tokens[end++] = token;
    const Place latest = tables.enter(end);
    if (index < num_silent) continue;
    int64_t lost = 0;
    if (place.at >= 0) {
      was_right |= learn(text, tables, place, token, floor);
      if (tables.fold(place.at) == tables.folds[token]) {
        place = {place.at + 1, after(place.length)};
        if (place.at != text.source_end) continue;
      } else {
        lost = place.length;
      }
    }
    const Place resumed{place.at + 1, 0};
    place = tables.search(end, latest);
    if (place.length < 2 && lost >= LEAST_RESUMED) place = resumed;
    if (place.at == text.source_end) place = {-1, 0};
  }
  text.num_tokens = end, text.num_seen = num_tokens;
  text.at = place.at, text.length = place.length;
  return (place.at < 0 ? 0 : 2 * draft(text, tables, floor, limit)) + was_right;
}

void reenter(Text& text) {
  Tables tables(text);
  for (int64_t end = 1; end <= text.num_tokens; end++) tables.enter(end);
}

}  // namespace phloem::runtime
