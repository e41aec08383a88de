#include <algorithm>

#include "gemm.h"
#include "optimizer.h"
#include "tile.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kDepth = 192;

struct Blocks {
  int64_t rows, row_units;
  int64_t cols, col_units;
  int64_t depth;             // k rows gathered at a time
  int64_t split_k, splits;   // k rows of one part, parts
};

Blocks plan(const SumProduct& p) {
  Blocks s;
  const int64_t row_parts = p.m <= 144 ? 1 : ceil_div(p.m, 144);
  s.rows = round_up(ceil_div(p.m, row_parts), kTileRows);
  s.row_units = ceil_div(p.m, s.rows);
  // With a short sum the update is most of the work: smaller pieces balance better.
  const int64_t col_parts = p.k < 64 ? ceil_div(p.n, 3 * kTileCols) : p.n <= 320 ? 1 : ceil_div(p.n, 256);
  s.cols = round_up(ceil_div(p.n, col_parts), kTileCols);
  s.col_units = ceil_div(p.n, s.cols);
  const int64_t units = s.row_units * s.col_units;
  int64_t splits = units >= 6 ? 1 : ceil_div(12, units);
  splits = std::min(splits, std::max<int64_t>(1, p.k / (2 * kDepth)));
  s.split_k = round_up(ceil_div(p.k, splits), kDepth);
  s.splits = ceil_div(p.k, s.split_k);
  if (splits == 1) s.split_k = p.k, s.splits = 1;
  s.depth = std::min(p.k, kDepth);
  return s;
}

struct Buffers {
  float* parts;       // splits x m x n, when there are several
  float* sums;        // splits x m
  float* workers;
  int64_t a, b, c;    // floats of one worker
};

Buffers carve(Carver& carver, const SumProduct& p, const Blocks& s, int workers) {
  Buffers f;
  f.parts = carver.take<float>(s.splits > 1 && p.w ? s.splits * p.m * p.n : 0);
  f.sums = carver.take<float>(p.bias ? s.splits * p.m : 0);
  f.a = round_up(s.rows * s.depth, 16);
  f.b = p.w ? round_up(kTileCols * s.depth, 16) : 0;
  f.c = p.w ? round_up(s.rows * s.cols, 16) : 0;
  f.workers = carver.take<float>((f.a + f.b + f.c) * workers);
  return f;
}

// sums[i] += the panels' column sums. Three vectors hold a whole number of panel rows.
void add_column_sums(const float* a, int64_t kc, int64_t rows, float* sums) {
  constexpr int64_t kAtOnce = 3 * W / kTileRows;
  static_assert(kAtOnce * kTileRows == 3 * W, "a panel row must divide three vectors");
  for (int64_t i = 0; i < rows; i += kTileRows) {
    const float* const panel = a + i * kc;
    vf part[3] = {};
    int64_t k = 0;
    for (; k + kAtOnce <= kc; k += kAtOnce)
      for (int j = 0; j < 3; ++j) part[j] += load(panel + k * kTileRows + j * W);
    float total[kTileRows] = {};
    for (int j = 0; j < 3 * W; ++j) total[j % kTileRows] += part[j / W][j % W];
    for (; k < kc; ++k)
      for (int r = 0; r < kTileRows; ++r) total[r] += panel[k * kTileRows + r];
    for (int64_t r = 0; r < std::min<int64_t>(kTileRows, rows - i); ++r) sums[i + r] += total[r];
  }
}

void add_block(const SumProduct& p, const float* a, float* b, float* c, int64_t c_row, int64_t k0, int64_t kc, int64_t rows,
               int64_t n0, int64_t n1) {
  for (int64_t n = n0; n < n1; n += kTileCols) {
    const int64_t cols = std::min<int64_t>(kTileCols, n1 - n);
    const int vectors = cols > W ? 2 : 1;
    const int64_t width = vectors * W;
    p.b->panel(k0, kc, n, cols, width, b);
    for (int64_t i = 0; i < rows; i += kTileRows) {
      const TileEnd end{c + i * c_row + n - n0, c_row, nullptr, 0, 0, true, false};
      tile_for(kTileRows, vectors)(a + i * kc, 1, kTileRows, b, width, kc, end);
    }
  }
}

struct Unit {
  int64_t split, m0, rows, n0, n1;
};

Unit unit_at(const SumProduct& p, const Blocks& s, int64_t index) {
  Unit u;
  u.split = index / (s.row_units * s.col_units);
  const int64_t rest = index % (s.row_units * s.col_units);
  u.m0 = rest / s.col_units * s.rows;
  u.rows = std::min(s.rows, p.m - u.m0);
  u.n0 = rest % s.col_units * s.cols;
  u.n1 = std::min(u.n0 + s.cols, p.n);
  return u;
}

void run_unit(const SumProduct& p, const Blocks& s, const Buffers& f, const Unit& u, float* own) {
  float *const a = own, *const b = own + f.a, *const c = own + f.a + f.b;
  const bool sums = p.bias && u.n0 == 0;
  if (p.w) std::fill(c, c + f.c, 0.0f);
  if (sums) std::fill(f.sums + u.split * p.m + u.m0, f.sums + u.split * p.m + u.m0 + u.rows, 0.0f);
  const int64_t k_end = std::min((u.split + 1) * s.split_k, p.k);
  for (int64_t k0 = u.split * s.split_k; k0 < k_end; k0 += s.depth) {
    const int64_t kc = std::min(s.depth, k_end - k0);
    for (int64_t i = 0; i < u.rows; i += kTileRows)
      p.a->panel(k0, kc, u.m0 + i, std::min<int64_t>(kTileRows, u.rows - i), kTileRows, a + i * kc);
    if (sums) add_column_sums(a, kc, u.rows, f.sums + u.split * p.m + u.m0);
    if (p.w) add_block(p, a, b, c, s.cols, k0, kc, u.rows, u.n0, u.n1);
  }
  if (!p.w) return;
  for (int64_t i = 0; i < u.rows; ++i) {
    const int64_t at = (u.m0 + i) * p.n + u.n0;
    if (s.splits == 1) {
      apply_update(*p.w, at, c + i * s.cols, u.n1 - u.n0);
    } else {
      std::copy(c + i * s.cols, c + i * s.cols + (u.n1 - u.n0), f.parts + u.split * p.m * p.n + at);
    }
  }
}

// parts[0] += the others, in order
void add_parts(float* parts, int64_t splits, int64_t stride, int64_t n) {
  each_vector(n, [&](int64_t i, int lanes) {
    vf total = load_some(parts + i, lanes);
    for (int64_t s = 1; s < splits; ++s) total += load_some(parts + s * stride + i, lanes);
    store_some(parts + i, total, lanes);
  });
}

}  // namespace

int64_t sum_scratch(const SumProduct& p, int workers) {
  Carver carver(nullptr);
  carve(carver, p, plan(p), workers);
  return carver.used();
}

void run_sum(Context& context, const SumProduct& p, char* scratch) {
  const Blocks s = plan(p);
  Carver carver(scratch);
  const Buffers f = carve(carver, p, s, context.workers());
  const int64_t col_units = p.w ? s.col_units : 1;
  const double work = double(p.m) * p.k * (p.w ? p.n / 100.0 + 0.2 : 0.2) + double(p.m) * p.n * 0.2;
  context.parallel(s.splits * s.row_units * s.col_units, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Unit u = unit_at(p, s, i);
      if (u.n0 == 0 || col_units > 1) run_unit(p, s, f, u, f.workers + worker * (f.a + f.b + f.c));
    }
  });
  if (p.bias) {
    add_parts(f.sums, s.splits, p.m, p.m);
    apply_update(*p.bias, 0, f.sums, p.m);
  }
  if (!p.w || s.splits == 1) return;
  const int64_t size = p.m * p.n, piece = 1024;
  context.parallel(ceil_div(size, piece), double(size) * (0.1 * s.splits + 0.3), [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * piece, n = std::min(end * piece, size) - first;
    add_parts(f.parts + first, s.splits, size, n);
    apply_update(*p.w, first, f.parts + first, n);
  });
}

}  // namespace CT_TIER
}  // namespace ct
