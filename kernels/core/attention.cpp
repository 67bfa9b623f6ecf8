// Attention over paged blocks: a run of items, tile by tile, for one KV head.
//
//     item --> tile of 64 keys (absolute grid) --> pack of query rows (token x head of the group)
//                                                  1. scores         keys two by two, rows by threes
//                                                  2. weights        online softmax, row by row
//                                                  3. weighted sums  values one by one, rows by threes
//
// All rows of an item (the heads of a group, the rows of a prefill chunk, the rows of all requests that share the keys)
// pass over a tile while it is in L1, so shared keys are fetched once. The scores of the first rows ask for the tile's
// values, their sums for the keys of the next tile: blocks lie anywhere, so the processor cannot foresee them. A row's
// running (maximum, sum, p V) is kept in memory between items.
//
// Invariant: the result of a row is a function of its query, its position and its keys alone. Tiles lie at absolute
// positions, the order of every sum is fixed, and values that a row does not see are skipped, not added.
//
// A work item is (block-table row, range of keys, run of query rows). A chain is a list of items that run one after
// another, because a row's running sums pass from item to item; chains are independent, and a team of threads shares
// the pairs of chain and KV head. One thread goes item by item, all heads of each: in memory the heads of a block
// are neighbours.
#include "attention_tile.h"
#include "level.h"

namespace phloem::kernels::PHLOEM_LEVEL {
namespace {

constexpr int FEW_ROWS = 11;   // with at most as many rows, pairing the keys does not pay
constexpr int MAX_PACK = 192;  // rows that pass over a tile together; their scores stay in the second-level cache
constexpr int MAX_TASKS = 16;  // each takes the memory of a thread anew
enum ItemColumn { TABLE_ROW, KEY_BEGIN, KEY_END, ROW_BEGIN, ROW_END, IS_LAST, NUM_COLUMNS };

// What a row has seen so far: the largest score (times log2(e)), and the sum of the weights.
struct State {
  float top, sum;
};

// Of a row whose attention is summed: its scores [num_heads, width], width in whole registers; null: of no run.
struct Seen {
  float* scores;
  int64_t width;
};

// Memory of one thread.
struct Workspace {
  Workspace(int64_t head_dim, bool is_widened)
      : floats(MAX_PACK * (head_dim + TILE + 2) + TILE * head_dim * (is_widened ? 3 : 1)) {
    q = floats.at;
    paired = q + MAX_PACK * head_dim;
    scores = paired + TILE * head_dim;
    tops = scores + TILE * MAX_PACK;
    decays = tops + MAX_PACK;
    k = decays + MAX_PACK, v = k + TILE * head_dim;
  }
  Scratch<float> floats;
  float *q, *paired, *scores, *tops, *decays;
  float *k, *v;  // a tile's, widened
  // of the rows of a pack: output, state, position, and the first and the end key that it sees of the tile
  float* outs[MAX_PACK];
  State* states[MAX_PACK];
  float* seen[MAX_PACK];  // where its scores are kept, null: nowhere
  int position[MAX_PACK], begin[MAX_PACK], end[MAX_PACK];
  int64_t tile;  // its first key
  // of a tile: where its keys lie, and the addresses of what is wanted next, its values and the next tile's keys
  int64_t offsets[TILE];
  const char* ahead[2 * TILE];
};

// How many of the rows that are left the next register tile takes: threes, without a single one at the end.
int rows_together(int left) { return left < 3 ? left : left == 4 ? 2 : 3; }

void cap_scores(float* scores, float soft_cap) {
  const F8 cap = splat8(soft_cap);
  for (int n = 0; n < TILE; n += 8) store8(scores + n, cap * tanh(load8(scores + n) / cap));
}

// The largest score of a row so far, and the logarithm of what its sums are to decay by.
void find_top(Workspace& w, int r, float soft_cap) {
  float* scores = w.scores + TILE * r;
  if (soft_cap > 0) cap_scores(scores, soft_cap);
  if (w.begin[r] > 0 || w.end[r] < TILE) {
    for (int n = 0; n < TILE; n += 8) store8(scores + n, keep(load8(scores + n), w.begin[r] - n, w.end[r] - n));
  }
  if (w.seen[r]) {
    for (int n = w.begin[r] / 8 * 8; n < w.end[r]; n += 8) store8(w.seen[r] + w.tile + n, load8(scores + n));
  }
  F8 best = load8(scores);
  for (int n = 8; n < TILE; n += 8) best = larger(load8(scores + n), best);
  float before = w.states[r]->top, after = larger_of(before, largest(best));
  if (w.begin[r] >= w.end[r]) {  // nothing of this tile: no weight, no decay
    before = after = 0.0f;
  } else {
    w.states[r]->top = after;
  }
  w.tops[r] = after, w.decays[r] = before - after;
}

// Scores of rows become weights, and what a row has summed so far is to decay by decays[r].
void soften(Workspace& w, int first, int end, float soft_cap) {
  for (int r = first; r < end; r++) find_top(w, r, soft_cap);
  for (int r = first / 8 * 8; r < end; r += 8) store8(w.decays + r, exp2(load8(w.decays + r)));
  for (int r = first; r < end; r++) {
    float* scores = w.scores + TILE * r;
    F8 sums = splat8(0.0f);
    for (int n = 0; n < TILE; n += 8) {
      const F8 weights = exp2(load8(scores + n) - splat8(w.tops[r]));
      store8(scores + n, weights);
      sums += weights;
    }
    w.states[r]->sum = w.states[r]->sum * w.decays[r] + total(sums);
  }
}

// Rows r, r + 1, ... decay, once, and take in the weighted values of keys begin to end - 1.
void weigh_rows(Workspace& w, int r, int rows, const float* v, const char* const* ahead, int begin, int end,
                int64_t dim) {
  const auto weigh = rows == 1 ? weigh_values<1> : rows == 2 ? weigh_values<2> : weigh_values<3>;
  weigh(w.outs + r, v, w.offsets, ahead, w.scores + TILE * r, w.decays + r, begin, end, dim);
  for (int i = r; i < r + rows; i++) w.decays[i] = 1.0f;
}

// Adds the tile's weighted values to the rows; keys that not all rows of a register tile see go row by row.
void weigh(Workspace& w, int first, int end, const float* v, const char* const* ahead, int64_t dim) {
  for (int r = first, rows; r < end; r += rows) {
    rows = rows_together(end - r);
    int common = w.begin[r], common_end = w.end[r];
    for (int i = r + 1; i < r + rows; i++) {
      common = larger_of(common, w.begin[i]), common_end = smaller_of(common_end, w.end[i]);
    }
    if (common >= common_end) common = common_end = TILE;
    for (int i = r; i < r + rows; i++) {
      const int until = smaller_of(w.end[i], common);
      if (w.begin[i] < until) weigh_rows(w, i, 1, v, nullptr, w.begin[i], until, dim);
    }
    if (common < common_end) weigh_rows(w, r, rows, v, r == first ? ahead : nullptr, common, common_end, dim);
    for (int i = r; i < r + rows; i++) {
      const int from = larger_of(w.begin[i], common_end);
      if (from < w.end[i]) weigh_rows(w, i, 1, v, nullptr, from, w.end[i], dim);
    }
  }
}

// Dot products of rows first to end - 1 with all keys of the tile that one of them sees, and some around them.
void score(Workspace& w, int first, int end, const float* k, const char* const* ahead, int64_t dim) {
  int begin = w.begin[first], end_key = w.end[first];
  for (int r = first + 1; r < end; r++) begin = smaller_of(begin, w.begin[r]), end_key = larger_of(end_key, w.end[r]);
  begin = begin / 8 * 8, end_key = (end_key + 7) / 8 * 8;
  const bool is_few = end - first <= FEW_ROWS;
  if (!is_few) pair_keys(k, w.offsets, ahead, w.paired, begin, end_key, dim);
  for (int r = first, rows; r < end; r += rows) {
    rows = rows_together(end - r);
    const float* q = w.q + dim * r;
    float* out = w.scores + TILE * r;
    if (is_few) {
      const auto dot = rows == 1 ? score_keys<1> : rows == 2 ? score_keys<2> : score_keys<3>;
      dot(q, k, w.offsets, r == first ? ahead : nullptr, out, begin, end_key, dim);
    } else {
      const auto dot = rows == 1 ? score_pairs<1> : rows == 2 ? score_pairs<2> : score_pairs<3>;
      dot(q, w.paired, out, begin, end_key, dim);
    }
  }
}

// The rows of a pack over one tile; row r sees keys begin[r] to end[r] - 1 of it.
void attend_tile(Workspace& w, int count, const float* k, const float* v, bool has_next, float soft_cap, int64_t dim) {
  int first = 0, end = count;
  while (first < end && w.begin[first] >= w.end[first]) first++;
  while (first < end && w.begin[end - 1] >= w.end[end - 1]) end--;
  if (first == end) return;
  score(w, first, end, k, has_next ? w.ahead : nullptr, dim);
  soften(w, first, end, soft_cap);
  weigh(w, first, end, v, has_next ? w.ahead + TILE : nullptr, dim);
}

// Where a tile's keys lie in a cache, in numbers; the rest of the last group of eight repeats the last key.
void locate_keys(const AttentionStep& s, const int32_t* table, int64_t head, int64_t first_key, int num_keys,
                 int64_t* offsets) {
  int n = 0;
  while (n < num_keys) {
    const int64_t block = (first_key + n) / s.block_size, within = (first_key + n) % s.block_size;
    const int64_t start = head * s.head_stride + table[block] * s.block_stride;
    const int64_t end = smaller_of<int64_t>(s.block_size, within + num_keys - n);
    for (int64_t slot = within; slot < end; slot++) offsets[n++] = start + slot * s.slot_stride;
  }
  for (; n % 8 && n < TILE; n++) offsets[n] = offsets[n - 1];
}

// Numbers of four bits, the first in the lowest, as fp32; word: scale and middle.
void widen_pairs(const char* source, int32_t word, float* target, int64_t head_dim) {
  const I8 places = {0, 4, 8, 12, 16, 20, 24, 28};
  const F8 scale = splat8(as_float(word & (int32_t)0xFFFF0000)), middle = splat8(as_float(word << 16));
  for (int64_t d = 0; d < head_dim; d += 8) {
    const int32_t eight = *(const int32_t*)(source + d / 2);
    const I8 numbers = (I8{eight, eight, eight, eight, eight, eight, eight, eight} >> places) & 15;
    store8(target + d, to_floats(numbers - 8) * scale + middle);
  }
}

// A tile's keys (or values), of bytes at `offsets`, as fp32, one after another.
void widen(const AttentionStep& s, const int32_t* table, int64_t head, int64_t first_key, int num_keys,
           const int64_t* offsets, const char* cache, const float* scales, float* target) {
  for (int n = 0; n < num_keys; n++) {
    const int64_t block = table[(first_key + n) / s.block_size], slot = (first_key + n) % s.block_size;
    const char* source = cache + offsets[n];
    const F8 scale = splat8(scales[(block * s.num_kv_heads + head) * s.block_size + slot]);
    float* to = target + n * s.head_dim;
    if (s.stored == INT4_KV) {
      const int32_t word = as_int(scales[(block * s.num_kv_heads + head) * s.block_size + slot]);
      widen_pairs(source, word, to, s.head_dim);
    } else if (s.stored == INT8_KV) {
      for (int64_t d = 0; d < s.head_dim; d += 8) store8(to + d, to_floats(load_signed8(source + d)) * scale);
    } else {
      for (int64_t d = 0; d < s.head_dim; d += 8) store8(to + d, from_fp8(load_unsigned8(source + d)) * scale);
    }
  }
}

// The first key that a row at a position sees.
int64_t first_key(const AttentionStep& s, int64_t position) {
  if (s.window == 0) return 0;
  return s.in_chunks ? position / s.window * s.window : larger_of<int64_t>(0, position - s.window + 1);
}

// Which keys of a tile the rows of a pack see.
void see_keys(const AttentionStep& s, Workspace& w, int count, int64_t tile, int num_keys) {
  for (int r = 0; r < count; r++) {
    const int64_t position = w.position[r] - tile;
    const int64_t begin = larger_of<int64_t>(0, first_key(s, w.position[r]) - tile);
    const int64_t end = smaller_of<int64_t>(num_keys, position + 1);
    w.begin[r] = begin < end ? begin : TILE, w.end[r] = begin < end ? end : 0;
  }
}

// The rows of a pack over all keys of an item, tile by tile.
void pass_keys(const AttentionStep& s, Workspace& w, int count, int64_t head, int64_t key_begin, int64_t key_end,
               const int32_t* table) {
  int64_t oldest = w.position[0], newest = w.position[0];
  for (int r = 1; r < count; r++) {
    oldest = smaller_of<int64_t>(oldest, w.position[r]), newest = larger_of<int64_t>(newest, w.position[r]);
  }
  key_begin = larger_of(key_begin, first_key(s, oldest) / TILE * TILE);
  key_end = smaller_of(key_end, newest + 1);
  bool was_full = false;
  for (int64_t tile = key_begin; tile < key_end; tile += TILE) {
    const int num_keys = smaller_of<int64_t>(TILE, key_end - tile);
    const bool is_full = tile + TILE <= oldest + 1 && tile >= first_key(s, newest);
    if (!(is_full && was_full)) see_keys(s, w, count, tile, num_keys);
    was_full = is_full, w.tile = tile;
    locate_keys(s, table, head, tile, num_keys, w.offsets);
    if (s.stored == FP32_KV) {
      const bool has_next = tile + 2 * TILE <= key_end;
      if (has_next) {
        int64_t next[TILE];
        locate_keys(s, table, head, tile + TILE, TILE, next);
        for (int n = 0; n < TILE; n++) {
          w.ahead[n] = s.v + 4 * w.offsets[n];
          w.ahead[TILE + n] = s.k + 4 * next[n];
        }
      }
      attend_tile(w, count, (const float*)s.k, (const float*)s.v, has_next, s.soft_cap, s.head_dim);
    } else {
      widen(s, table, head, tile, num_keys, w.offsets, s.k, s.k_scales, w.k);
      widen(s, table, head, tile, num_keys, w.offsets, s.v, s.v_scales, w.v);
      for (int n = 0; n < TILE; n++) w.offsets[n] = smaller_of(n, num_keys - 1) * s.head_dim;
      attend_tile(w, count, w.k, w.v, false, s.soft_cap, s.head_dim);
    }
  }
}

// Before a row's first key; a sink is a logit that has been seen, with no value.
void open_rows(const AttentionStep& s, State* states, const int32_t* rows, int64_t count, int64_t head, int64_t group) {
  for (int64_t row = 0; row < count; row++) {
    for (int64_t h = head * group; h < (head + 1) * group; h++) {
      const int64_t o = rows[row] * s.num_heads + h;
      states[o] = s.sinks ? State{s.sinks[h] * LOG2_E, 1.0f} : State{-INFINITE, 0.0f};
      memset(s.out + o * s.head_dim, 0, 4 * s.head_dim);
    }
  }
}

void close_rows(const AttentionStep& s, const State* states, const int32_t* rows, int64_t count, int64_t head,
                int64_t group) {
  for (int64_t row = 0; row < count; row++) {
    for (int64_t h = head * group; h < (head + 1) * group; h++) {
      const int64_t o = rows[row] * s.num_heads + h;
      float* out = s.out + o * s.head_dim;
      for (int64_t d = 0; d < s.head_dim; d += 8) store8(out + d, load8(out + d) / splat8(states[o].sum));
    }
  }
}

// An item for one KV head; seen: by token, null if no attention is summed.
void run_item(const AttentionStep& s, State* states, const Seen* seen, Workspace& w, int64_t index, int64_t head) {
  const int32_t* item = s.items + NUM_COLUMNS * index;
  const int64_t group = s.num_heads / s.num_kv_heads, row_begin = item[ROW_BEGIN], num_rows = item[ROW_END] - row_begin;
  const int32_t* rows = s.rows + row_begin;
  if (item[KEY_BEGIN] == 0) open_rows(s, states, rows, num_rows, head, group);
  for (int64_t first = 0; first < num_rows * group; first += MAX_PACK) {
    const int count = smaller_of<int64_t>(num_rows * group - first, MAX_PACK);
    for (int r = 0; r < count; r++) {
      const int64_t row = (first + r) / group, h = head * group + (first + r) % group;
      const float* source = s.q + rows[row] * s.q_token + h * s.q_head;
      for (int64_t d = 0; d < s.head_dim; d += 8) {
        store8(w.q + r * s.head_dim + d, load8(source + d) * splat8(s.scale));
      }
      const int64_t o = rows[row] * s.num_heads + h;
      w.outs[r] = s.out + o * s.head_dim;
      w.states[r] = states + o;
      w.seen[r] = seen && seen[rows[row]].scores ? seen[rows[row]].scores + h * seen[rows[row]].width : nullptr;
      w.position[r] = s.positions[row_begin + row];
    }
    pass_keys(s, w, count, head, item[KEY_BEGIN], item[KEY_END], s.tables + item[TABLE_ROW] * s.table_width);
  }
  if (item[IS_LAST]) close_rows(s, states, rows, num_rows, head, group);
}

struct Job {
  const AttentionStep& step;
  State* states;
  const Seen* seen;
  int64_t num_tasks;
};

// A run of chains and KV heads.
void run_task(const void* job, int64_t index) {
  const auto& [s, states, seen, num_tasks] = *(const Job*)job;
  Workspace w(s.head_dim, s.stored != FP32_KV);
  const int64_t num_pairs = s.num_chains * s.num_kv_heads;
  for (int64_t pair = num_pairs * index / num_tasks; pair < num_pairs * (index + 1) / num_tasks; pair++) {
    const int64_t chain = pair / s.num_kv_heads;
    for (int64_t i = s.chain_starts[chain]; i < s.chain_starts[chain + 1]; i++) {
      run_item(s, states, seen, w, i, pair % s.num_kv_heads);
    }
  }
}

void attend_all(const Lease& team, const AttentionStep& s, State* states, const Seen* seen) {
  if (team) {
    const Job job{s, states, seen, smaller_of<int64_t>(MAX_TASKS, s.num_chains * s.num_kv_heads)};
    return team.share(run_task, &job, job.num_tasks);
  }
  Workspace w(s.head_dim, s.stored != FP32_KV);
  for (int64_t i = 0; i < s.chain_starts[s.num_chains]; i++) {
    for (int64_t head = 0; head < s.num_kv_heads; head++) run_item(s, states, seen, w, i, head);
  }
}

int64_t whole_lanes(int64_t num_keys) { return (num_keys + 7) / 8 * 8; }

// A run's weights, for one KV head: each row's heads are summed, then rows are added in order.
void add_mass(const void* job, int64_t index) {
  const auto& [s, states, seen, num_tasks] = *(const Job*)job;
  const MassRun& run = s.runs[index / s.num_kv_heads];
  const int64_t head = index % s.num_kv_heads, group = s.num_heads / s.num_kv_heads, width = whole_lanes(run.num_keys);
  float* mass = s.mass + run.offset + head * width;
  for (int64_t row = run.row_begin; row < run.row_end; row++) {
    const int64_t end = run.num_keys - (run.row_end - row) + 1, begin = first_key(s, end - 1);
    for (int64_t n = begin / 8 * 8; n < end; n += 8) {
      F8 given = splat8(0.0f);
      for (int64_t h = head * group; h < (head + 1) * group; h++) {
        const State& state = states[row * s.num_heads + h];
        const F8 scores = keep(load8(seen[row].scores + h * width + n), begin - n, end - n);
        given += exp2(scores - splat8(state.top)) / splat8(state.sum);
      }
      store8(mass + n, load8(mass + n) + given);
    }
  }
}

// Gives each row of a run memory for its scores; returns how much that is.
int64_t place_scores(const AttentionStep& s, Seen* seen, float* scores) {
  int64_t size = 0;
  for (const MassRun* run = s.runs; run < s.runs + s.num_runs; run++) {
    const int64_t width = whole_lanes(run->num_keys);
    for (int64_t row = run->row_begin; row < run->row_end; row++, size += s.num_heads * width) {
      if (seen) seen[row] = {scores + size, width};
    }
  }
  return size;
}

}  // namespace

void attend(const Lease& team, const AttentionStep& s) {
  Scratch<State> states(s.num_tokens * s.num_heads);
  if (!s.num_runs) return attend_all(team, s, states.at, nullptr);
  Scratch<float> scores(place_scores(s, nullptr, nullptr));
  Scratch<Seen> seen(s.num_tokens);
  memset(seen.at, 0, s.num_tokens * sizeof(Seen));
  place_scores(s, seen.at, scores.at);
  attend_all(team, s, states.at, seen.at);
  const Job job{s, states.at, seen.at, s.num_runs * s.num_kv_heads};
  team.share(add_mass, &job, job.num_tasks);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
