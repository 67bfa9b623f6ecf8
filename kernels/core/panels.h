// How a product is divided: into tasks of panels, and each task into tiles of rows and panels. Knows no numbers.
#pragma once
#include "loops.h"
#include "vectors.h"

namespace phloem::kernels::PHLOEM_LEVEL {

constexpr int RUN = 4;          // panels that stay together in a task
constexpr int MAX_TASKS = 64;   // of a product
constexpr int ASKING_ROWS = 3;  // from here on the next weights are prefetched: fewer rows have no work to hide that
constexpr int64_t INPUT_BYTES = 1 << 18;  // inputs of a block of rows, which stay in the second-level cache

// What a tile reads, writes and asks for; as many rows and panels as the function that is called has in its type.
struct Tile {
  const char* x;       // inputs of its first row, in the form that the kind of product has them
  int64_t x_stride;    // bytes
  const char* weight;  // its first panel
  int64_t panel_bytes;
  const float* bias;  // of its first panel
  float* out;
  int64_t out_stride;  // numbers
  int64_t depth;
  int64_t input_bytes;  // of a row
  const char* ahead;    // what will be wanted next, a line of it asked for every 65536 / share inputs; null: nothing
  int64_t share;
  int64_t row, panel;  // which these are

  [[gnu::always_inline]] void ask(int64_t input) const {
    if (ahead) ask_for_line(ahead + ((input * share) >> 16 << 6));
  }
};

using TileFunction = void (*)(const Tile&, const void* more);

// Tiles of one kind of product: at most ROWS rows, and of that many rows, at_once panels (or one).
template <int ROWS>
struct Tiling {
  int at_once[ROWS + 1];
  TileFunction single[ROWS + 1];  // of one panel
  TileFunction several[ROWS + 1];
  TileFunction run;  // of one row and RUN panels
};

// Panels begin ... end - 1 of all rows, block of rows by block; a block's rows are dealt evenly to tiles.
template <int ROWS>
void multiply_panels(const Tiling<ROWS>& tiling, const Tile& whole, const void* more, int64_t num_rows, int64_t begin,
                     int64_t end) {
  const int64_t block_rows =
      larger_of<int64_t>(ROWS, INPUT_BYTES / larger_of<int64_t>(1, whole.input_bytes) / ROWS * ROWS);
  for (int64_t first = 0; first < num_rows; first += block_rows) {
    const int64_t count = smaller_of(num_rows - first, block_rows), num_tiles = (count + ROWS - 1) / ROWS;
    for (int64_t panel = begin; panel < end;) {
      int64_t at_once = num_tiles == 1 ? tiling.at_once[count] : 1;
      TileFunction function = nullptr;
      if (panel + at_once <= end) {
        if (at_once > 1) function = tiling.several[count];
      } else if (count == 1 && panel + RUN <= end) {
        at_once = RUN, function = tiling.run;
      } else {
        at_once = 1;
      }
      const int64_t num_lines = at_once * whole.panel_bytes / 64;
      int64_t row = first;
      for (int64_t index = 0; index < num_tiles; index++) {
        const int64_t rows = (count - (row - first)) / (num_tiles - index);
        Tile tile = whole;
        tile.x += row * whole.x_stride;
        tile.weight += panel * whole.panel_bytes;
        tile.bias += panel * PANEL;
        tile.out += row * whole.out_stride + panel * PANEL;
        tile.ahead = num_rows >= ASKING_ROWS ? tile.weight + 64 * (num_lines + num_lines * index / num_tiles) : nullptr;
        tile.share = (num_lines << 16) / (num_tiles * larger_of<int64_t>(1, whole.depth));
        tile.row = row, tile.panel = panel;
        (function ? function : tiling.single[rows])(tile, more);
        row += rows;
      }
      panel += at_once;
    }
  }
}

// Tasks that a product is cut into, of whole runs of panels; and the panels of a task, from the first up to the end.
inline int64_t num_product_tasks(int64_t num_panels, int64_t run) {
  return smaller_of<int64_t>(MAX_TASKS, (num_panels + run - 1) / run);
}

struct Range {
  int64_t begin, end;
};

inline Range panels_of_task(int64_t index, int64_t num_tasks, int64_t num_panels, int64_t run) {
  const int64_t num_runs = (num_panels + run - 1) / run;
  return {num_runs * index / num_tasks * run, smaller_of(num_panels, num_runs * (index + 1) / num_tasks * run)};
}

// A product as a job: its tiles, what they read, and its tasks.
template <int ROWS>
struct PanelJob {
  const Tiling<ROWS>* tiling;
  Tile whole;
  const void* more;
  int64_t num_rows, num_panels, run, num_tasks;
};

template <int ROWS>
void multiply_task(const void* job, int64_t index) {
  const PanelJob<ROWS>& own = *(const PanelJob<ROWS>*)job;
  const Range panels = panels_of_task(index, own.num_tasks, own.num_panels, own.run);
  multiply_panels(*own.tiling, own.whole, own.more, own.num_rows, panels.begin, panels.end);
}

template <int ROWS>
void multiply_all(const Lease& team, const Tiling<ROWS>& tiling, const Tile& whole, const void* more, int64_t num_rows,
                  int64_t num_panels, int64_t run) {
  const bool is_worth_it = num_rows * whole.depth * num_panels * PANEL >= WORTH_SHARING;
  const int64_t num_tasks = team && is_worth_it ? num_product_tasks(num_panels, run) : 1;
  const PanelJob<ROWS> job{&tiling, whole, more, num_rows, num_panels, run, num_tasks};
  team.share(multiply_task<ROWS>, &job, num_tasks);
}

}  // namespace phloem::kernels::PHLOEM_LEVEL
