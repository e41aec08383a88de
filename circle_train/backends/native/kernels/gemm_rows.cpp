#include "gemm.h"

#include <algorithm>

#include "ahead.h"

#include "pack.h"
#include "tile.h"

namespace ct {
namespace CT_TIER {
namespace {

// A block of k: long enough to amortise loading c, short enough that a panel of B stays in the second-level cache.
constexpr int64_t kMaxDepth = 1280;

struct Blocks {
  int64_t depth;        // k in one pass
  int64_t rows;         // rows of a unit
  int64_t row_units;
  int64_t cols;         // columns of a unit (a multiple of kTileCols, or all)
  int64_t col_units;
  bool pack_b;
};

// Units are a function of the problem alone.
Blocks plan(const RowsProduct& p) {
  Blocks s;
  s.depth = std::max<int64_t>(1, ceil_div(p.k, std::max<int64_t>(1, ceil_div(p.k, kMaxDepth))));
  int64_t want = p.m >= 96 * 16 ? 96 : p.m >= 48 * 8 ? 48 : 24;
  if (p.k <= 64 && p.m >= 96 * 64) want = 192;
  s.rows = std::max<int64_t>(kTileRows, want / kTileRows * kTileRows);
  s.row_units = ceil_div(p.m, s.rows);
  s.cols = p.n;
  s.col_units = 1;
  if (s.row_units < 16 && p.n > kTileCols && !p.sink) {
    const int64_t parts = std::min(ceil_div(p.n, kTileCols), ceil_div(16, s.row_units));
    s.cols = round_up(ceil_div(p.n, parts), kTileCols);
    s.col_units = ceil_div(p.n, s.cols);
  }
  s.pack_b = p.b_col != 1 || p.alpha != 1 || p.m > 4 * kTileRows || p.n % W != 0;
  return s;
}

struct Buffers {
  float* packed_b;
  float* a;   // one worker's gathered rows
  float* c;   // one worker's rows for a sink, or a narrow tile
};

int64_t a_floats(const RowsProduct& p, const Blocks& s) { return p.source ? s.rows * s.depth : 0; }
int64_t c_floats(const RowsProduct& p, const Blocks& s) {
  return kTileRows * kTileCols + (p.sink ? s.rows * round_up(p.n, kTileCols) : 0);
}
int64_t b_floats(const RowsProduct& p, const Blocks& s) { return s.pack_b ? packed_size(p.k, p.n) : 0; }

// alpha, bias and clamps happen in the tile; what is rarer happens here, on rows that are still in the nearest cache.
void finish_rows(const RowsProduct& p, float* c, int64_t c_row, int64_t offset, int64_t rows, int64_t cols) {
  const Clamp act = clamp_of(p.act), mask = clamp_of(p.out_mask_act);
  for (int64_t i = 0; i < rows; ++i) {
    each_vector(cols, [&](int64_t j, auto lanes) {
      float* const at = c + i * c_row + j;
      vf v = load_some(at, lanes);
      if (p.add) v += load_some(p.add + offset + i * c_row + j, lanes);
      if (p.add || act.tanh) v = activate(v, act);
      if (p.out_mask) v = masked(v, load_some(p.out_mask + offset + i * c_row + j, lanes), mask);
      store_some(at, v, lanes);
    });
  }
}

// A tile whose columns are not whole vectors was computed aside; this brings it home.
void finish_narrow(const TileEnd& end, const float* aside, int64_t rows, int64_t cols) {
  for (int64_t i = 0; i < rows; ++i) {
    each_vector(cols, [&](int64_t j, auto lanes) {
      float* const at = end.c + i * end.c_row + j;
      vf v = load_some(aside + i * kTileCols + j, lanes);
      if (end.load_c) v += load_some(at, lanes);
      if (end.bias) v += load_some(end.bias + j, lanes);
      if (end.clamp) v = at_most(at_least(v, splat(end.low)), splat(end.high));
      store_some(at, v, lanes);
    });
  }
}

// Results that are written once and not read again here.
bool writes_past(const RowsProduct& p) {
  const bool once = p.k <= kMaxDepth && !p.add && !p.out_mask && p.act != CT_ACT_TANH;
  return once && is_large(p.c, p.c_row, p.m * p.n, W);
}

// Rows m..m+count of A, when A is large and read in place.
void ask_for_rows(const RowsProduct& p, int64_t m, int64_t count) {
  for (int64_t i = m; i < std::min(m + count, p.m); ++i)
    for (int64_t k = 0; k < p.k; k += 16) __builtin_prefetch(p.a + i * p.a_row + k, 0, 2);
}

// One k block of one panel's rows; `last` brings bias and clamp.
void run_tile(const RowsProduct& p, const Clamp& act, const float* a, int64_t a_row, const float* b, int64_t b_row, int64_t kc,
              int rows, int64_t n0, int64_t cols, float* c, int64_t c_row, bool load_c, bool last, bool past, float* narrow) {
  const int vectors = cols > W ? 2 : 1;
  TileEnd end{c, c_row, nullptr, act.low, act.high, load_c, false, past};
  if (last) {
    end.bias = p.bias ? p.bias + n0 : nullptr;
    end.clamp = p.act != CT_ACT_NONE && !act.tanh && !p.add;
  }
  if (cols == vectors * W) {
    tile_for(rows, vectors)(a, a_row, 1, b, b_row, kc, end);
  } else {
    const TileEnd aside{narrow, kTileCols, nullptr, 0, 0, false, false, false};
    tile_for(rows, vectors)(a, a_row, 1, b, b_row, kc, aside);
    finish_narrow(end, narrow, rows, cols);
  }
}

void run_block(const RowsProduct& p, const Blocks& s, const Buffers& buffers, int64_t m0, int64_t mc, int64_t n0, int64_t n1) {
  const Clamp act = clamp_of(p.act);
  float* const narrow = buffers.c;
  const bool past = !p.sink && writes_past(p);
  const bool ahead = !p.source && p.k <= 256 && p.m * p.k > (1 << 20);
  float* const c = p.sink ? buffers.c + kTileRows * kTileCols : p.c + m0 * p.c_row;
  const int64_t c_row = p.sink ? round_up(p.n, kTileCols) : p.c_row;
  for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += s.depth) {
    const int64_t kc = std::min(s.depth, p.k - k0);
    const bool last = k0 + kc >= p.k;
    const float* a = p.a + m0 * p.a_row + k0;
    int64_t a_row = p.a_row;
    if (p.source) {
      p.source->rows(m0, mc, k0, kc, buffers.a, kc);
      a = buffers.a;
      a_row = kc;
    }
    for (int64_t n = n0; n < n1; n += kTileCols) {
      const int64_t cols = std::min<int64_t>(kTileCols, n1 - n);
      const int64_t width = panel_width(p.n, n);
      const float* const b = s.pack_b ? buffers.packed_b + n * p.k + k0 * width : p.b + k0 * p.b_row + n;
      const int64_t b_row = s.pack_b ? width : p.b_row;
      for (int64_t i = 0; i < mc; i += kTileRows) {
        const int rows = int(std::min<int64_t>(kTileRows, mc - i));
        if (ahead && n == n0) ask_for_rows(p, m0 + i + 2 * kTileRows, kTileRows);
        run_tile(p, act, a + i * a_row, a_row, b, b_row, kc, rows, n, cols, c + i * c_row + n, c_row,
                 k0 > 0 || (p.accumulate && !p.sink), last, past, narrow);
        const bool more = p.add || act.tanh || p.out_mask;
        if (last && more && !p.sink) finish_rows(p, c + i * c_row + n, c_row, (m0 + i) * c_row + n, rows, cols);
      }
    }
  }
  if (p.sink) p.sink->rows(m0, mc, c, c_row);
  if (past) finish_stores_past();
}

void pack_columns(const RowsProduct& p, float* packed, int64_t panel) {
  const int64_t n = panel * kTileCols;
  const int64_t cols = std::min<int64_t>(kTileCols, p.n - n);
  pack_panel(p.b + n * p.b_col, p.b_row, p.b_col, p.k, cols, panel_width(p.n, n), p.alpha, packed + n * p.k);
}

double nanoseconds(const RowsProduct& p) { return double(p.m) * p.n * p.k / 100.0; }

}  // namespace

int64_t rows_scratch(const RowsProduct& p, int workers) {
  const Blocks s = plan(p);
  Carver carver(nullptr);
  carver.take<float>(b_floats(p, s));
  for (int i = 0; i < workers; ++i) {
    carver.take<float>(a_floats(p, s));
    carver.take<float>(c_floats(p, s));
  }
  return carver.used();
}

void run_rows(Context& context, const RowsProduct& p, char* scratch) {
  const Blocks s = plan(p);
  Carver carver(scratch);
  float* const packed = carver.take<float>(b_floats(p, s));
  const int64_t a_size = round_up(a_floats(p, s), 16), c_size = round_up(c_floats(p, s), 16);
  float* const mine = carver.take<float>((a_size + c_size) * context.workers());
  const int64_t panels = ceil_div(p.n, kTileCols);
  if (s.pack_b) {
    context.parallel(panels, double(p.k) * p.n * 0.3, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) pack_columns(p, packed, i);
    });
  }
  context.parallel(s.row_units * s.col_units, nanoseconds(p), [&](int worker, int64_t begin, int64_t end) {
    float* const own = mine + worker * (a_size + c_size);
    const Buffers buffers{packed, own, own + a_size};
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t m0 = unit / s.col_units * s.rows, n0 = unit % s.col_units * s.cols;
      run_block(p, s, buffers, m0, std::min(s.rows, p.m - m0), n0, std::min(n0 + s.cols, p.n));
    }
  });
}

int64_t rows_alone_scratch(const RowsProduct& p) { return rows_scratch(p, 1); }

void run_rows_alone(const RowsProduct& p, char* scratch) {
  Context alone(nullptr, scratch);
  run_rows(alone, p, scratch);
}

}  // namespace CT_TIER
}  // namespace ct
