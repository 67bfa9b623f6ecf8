#include "other_strings.h"

#include <algorithm>
#include <cstring>

#include "arena.h"
#include "checks.h"

namespace phloem::fsm {

namespace {

constexpr uint8_t QUOTE = 0x22;
constexpr int32_t QUOTE_CLASS = 2;
constexpr int64_t BASE_HEAD = 3;
constexpr int64_t FIELDS_HEAD = sizeof(TextTable) / 8 + 1;

// Where arrays lie in one block of memory that Python owns, each from a multiple of 8 bytes on.
class Layout {
 public:
  template <class T>
  int64_t add(int64_t size) {
    const int64_t at = num_words_;
    num_words_ += (size * static_cast<int64_t>(sizeof(T)) + 7) / 8;
    return at;
  }
  int64_t num_words() const { return num_words_; }

 private:
  int64_t num_words_ = FIELDS_HEAD;
};

struct Shape {
  std::array<int32_t, 128> class_of{};  // 0: no class of its own
  int64_t num_classes = QUOTE_CLASS + 1;
  int32_t anything, closed, opening, num_states;  // after the states of the trie, the first of which is 1
};

// What a text does not share with the one before it are states of their own.
int32_t num_trie_states(Bytes texts) {
  int32_t num_states = 1;
  const uint8_t *before = texts.data(), *before_end = before, *begin = before, *last = before + texts.size();
  while (begin < last) {
    const uint8_t* end = std::find(begin, last, QUOTE);
    const uint8_t* differs = std::mismatch(begin, end, before, before_end).first;
    num_states += static_cast<int32_t>(end - differs);
    before = begin;
    before_end = end;
    begin = end + 1;
  }
  return num_states;
}

Shape shape_of(Bytes texts) {
  Shape shape;
  for (uint8_t byte : texts) shape.class_of[byte] = byte != QUOTE;
  for (int32_t& class_id : shape.class_of) {
    if (class_id) class_id = static_cast<int32_t>(shape.num_classes++);
  }
  shape.anything = 1 + num_trie_states(texts);
  shape.closed = shape.anything + 1;
  shape.opening = shape.closed + 1;
  shape.num_states = shape.opening + 1;
  return shape;
}

void fill_states(const Shape& shape, Bytes texts, int32_t* table, int32_t* costs) {
  const int64_t num_classes = shape.num_classes;
  for (int32_t state = 1; state < shape.closed; ++state) {
    std::fill_n(table + state * num_classes + 1, num_classes - 1, shape.anything);
    table[state * num_classes + QUOTE_CLASS] = shape.closed;
    costs[state] = 1;
  }
  int32_t state = 1, following = 2;
  for (uint8_t byte : texts) {
    if (byte == QUOTE) {  // this text may not end here
      table[state * num_classes + QUOTE_CLASS] = 0;
      costs[state] = 2;
      state = 1;
      continue;
    }
    int32_t& cell = table[state * num_classes + shape.class_of[byte]];
    if (cell == shape.anything) cell = following++;
    state = cell;
  }
  table[shape.opening * num_classes + QUOTE_CLASS] = 1;
  costs[0] = NEVER;
  costs[shape.closed] = 0;
  costs[shape.opening] = costs[1] + 1;
}

void fill_live(const Shape& shape, const int32_t* table, int64_t num_words, uint64_t* live) {
  for (int32_t state = 1; state < shape.num_states; ++state) {
    for (int64_t class_id = 1; class_id < shape.num_classes; ++class_id) {
      if (!table[state * shape.num_classes + class_id]) continue;
      live[state * num_words + (class_id >> 6)] |= uint64_t{1} << (class_id & 63);
    }
  }
}

void fill_nodes(const Shape& shape, Ints base, int64_t num_words, int32_t* node_costs, uint64_t* reach) {
  const int64_t num_nodes = base[0], num_classes = shape.num_classes;
  std::fill_n(node_costs, num_nodes * num_classes, UNREACHABLE);
  for (int64_t class_id = 1; class_id < num_classes; ++class_id) {
    node_costs[class_id] = 1;
    reach[class_id >> 6] |= uint64_t{1} << (class_id & 63);
  }
  for (int64_t node = 1; node < num_nodes; ++node) {
    const int32_t cost = base[BASE_HEAD + 256 * num_nodes + node];
    if (cost == UNREACHABLE) continue;
    node_costs[node * num_classes + OTHER_CLASS] = cost;
    reach[node * num_words] |= uint64_t{1} << OTHER_CLASS;
  }
}

}  // namespace

OtherTexts trie_except(std::span<const int64_t> symbols, std::span<const int64_t> lens, int64_t num_classes) {
  int64_t num_states = 2;
  std::span<const int64_t> before;
  for (int64_t begin = 0; int64_t length : lens) {
    const auto text = symbols.subspan(begin, length);
    num_states += text.end() - std::mismatch(text.begin(), text.end(), before.begin(), before.end()).first;
    before = text;
    begin += length;
  }
  const int32_t anything = static_cast<int32_t>(num_states);
  OtherTexts found{Table(num_states + 1, num_classes, anything), std::vector<uint8_t>(num_states + 1, 1),
                   std::vector<int32_t>(num_states + 1)};
  std::fill_n(found.table[0], num_classes, 0);
  for (int64_t state = 0; state <= num_states; ++state) found.table[state][0] = 0;
  found.accepting[0] = 0;
  found.distance[0] = -1;
  int32_t following = 2;
  const int64_t* symbol = symbols.data();
  for (int64_t length : lens) {
    int32_t state = 1;
    for (int64_t at = 0; at < length; ++at) {
      int32_t& cell = found.table[state][*symbol++ + 1];
      if (cell == anything) cell = following++;
      state = cell;
    }
    found.accepting[state] = 0;
    found.distance[state] = 1;
  }
  return found;
}

std::vector<int32_t> base_of_strings(TableView nodes, TableView byte_costs, Bytes is_wide, Ints num_ascii) {
  std::vector<int32_t> base = {static_cast<int32_t>(nodes.num_rows), num_ascii[OTHER_CLASS], is_wide[OTHER_CLASS]};
  base.insert(base.end(), nodes.cells, nodes.cells + nodes.num_rows * 256);
  for (int64_t node = 0; node < nodes.num_rows; ++node) base.push_back(byte_costs[node][OTHER_CLASS]);
  return base;
}

void check_strings(Bytes texts, Ints base) {
  check(!texts.empty() && texts.back() == QUOTE, "texts", "does not end with a quote");
  const bool are_plain = std::all_of(texts.begin(), texts.end(),
                                     [](uint8_t byte) { return 0x20 <= byte && byte < 0x7F && byte != 0x5C; });
  check(are_plain, "texts", "has more than printable ASCII without backslash");
  check(base.size() > BASE_HEAD, "base", "is shorter than its head");
  const int64_t num_nodes = base[0];
  check_size("base", base.size() - BASE_HEAD, 257 * num_nodes);
  check_template({base.data() + BASE_HEAD, num_nodes, 256}, QUOTE_CLASS + 1);
  check_values("base", base.last(num_nodes), 0, UNREACHABLE + 1);
  if (shape_of(texts).num_states * num_nodes > MAX_BYTE_STATES) {
    throw TooLarge("the keys that are named need more than " + std::to_string(MAX_BYTE_STATES) +
                   " byte states; let them have fewer characters");
  }
}

std::vector<int64_t> strings_except(Bytes texts, Ints base) {
  const Shape shape = shape_of(texts);
  const int64_t num_states = shape.num_states, num_classes = shape.num_classes, num_nodes = base[0];
  const int64_t num_words = (num_classes + 63) >> 6;
  Layout layout;
  const int64_t live_at = layout.add<uint64_t>(num_states * num_words);
  const int64_t reach_at = layout.add<uint64_t>(num_nodes * num_words);
  const int64_t table_at = layout.add<int32_t>(num_states * num_classes);
  const int64_t first_node_at = layout.add<int32_t>(256);
  const int64_t node_costs_at = layout.add<int32_t>(num_nodes * num_classes);
  const int64_t costs_at = layout.add<int32_t>(num_states);
  const int64_t num_ascii_at = layout.add<int32_t>(num_classes);
  const int64_t plain_at = layout.add<int32_t>(num_states);
  const int64_t accepts_at = layout.add<uint8_t>(num_states);
  const int64_t is_wide_at = layout.add<uint8_t>(num_classes);
  std::vector<int64_t> found(layout.num_words());
  auto ints = [&](int64_t at) { return reinterpret_cast<int32_t*>(&found[at]); };
  auto words = [&](int64_t at) { return reinterpret_cast<uint64_t*>(&found[at]); };
  auto bytes = [&](int64_t at) { return reinterpret_cast<uint8_t*>(&found[at]); };

  fill_states(shape, texts, ints(table_at), ints(costs_at));
  fill_live(shape, ints(table_at), num_words, words(live_at));
  fill_nodes(shape, base, num_words, ints(node_costs_at), words(reach_at));
  bytes(accepts_at)[shape.closed] = 1;
  std::copy_n(base.begin() + BASE_HEAD, 256, ints(first_node_at));
  for (int byte = 0; byte < 128; ++byte) {
    if (!shape.class_of[byte]) continue;
    ints(first_node_at)[byte] = -shape.class_of[byte];
    ints(num_ascii_at)[shape.class_of[byte]] = 1;
  }
  ints(num_ascii_at)[OTHER_CLASS] = base[1] - static_cast<int32_t>(num_classes - QUOTE_CLASS - 1);
  ints(num_ascii_at)[QUOTE_CLASS] = 1;
  bytes(is_wide_at)[OTHER_CLASS] = static_cast<uint8_t>(base[2]);

  TextTable text{.table = ints(table_at), .accepts = bytes(accepts_at), .first_node = ints(first_node_at),
                 .reach = words(reach_at), .live = words(live_at), .costs = ints(costs_at),
                 .node_costs = ints(node_costs_at), .is_wide = bytes(is_wide_at), .num_ascii = ints(num_ascii_at),
                 .num_classes = num_classes, .num_nodes = num_nodes, .num_words = num_words,
                 .start = shape.opening * num_nodes, .num_states = num_states};
  text.max_length = -1;  // not counted
  text.plain = ints(plain_at);
  text.nodes = base.data() + BASE_HEAD;
  std::memcpy(found.data(), &text, sizeof text);
  found[FIELDS_HEAD - 1] = ints(costs_at)[shape.opening];
  return found;
}

}  // namespace phloem::fsm
