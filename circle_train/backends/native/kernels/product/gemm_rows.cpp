#include "product/gemm.h"

#include <algorithm>

#include "vectors/ahead.h"

#include "vectors/stored.h"
#include "product/pack.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

// A block of k: long enough to amortise loading c, short enough that a panel of B stays in the second-level cache.
constexpr int64_t kMaxDepth = 1280;
constexpr int64_t kShortRow = 32;    // rows that the hardware runs along by itself
constexpr int64_t kFewRows = 1024;  // to a thousand rows the time to bring B into panels is felt

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
  if (p.m < s.rows || (p.m <= 4 * kTileRows && p.n >= 8 * kTileCols)) s.rows = p.m;
  s.row_units = ceil_div(p.m, s.rows);
  s.cols = p.n;
  s.col_units = 1;
  if (s.row_units < 16 && p.n > kTileCols && !p.sink) {
    const int64_t parts = std::min(ceil_div(p.n, kTileCols), ceil_div(16, s.row_units));
    s.cols = round_up(ceil_div(p.n, parts), kTileCols);
    s.col_units = ceil_div(p.n, s.cols);
  }
  s.pack_b = p.stored || p.b_col != 1 || p.alpha != 1 || p.m > 4 * kTileRows || p.n % W != 0;
  return s;
}

struct Buffers {
  const float* packed_b;
  float* a;   // one worker's gathered rows
  float* c;   // one worker's tile computed aside, and rows for a sink
};

// Rows of A that meet in the sets of the first-level cache push each other out: they are read from a copy that lies otherwise.
bool rows_meet(const RowsProduct& p) { return !p.source && p.a_row % 1024 == 0 && p.m >= kTileRows && p.n >= 2 * kTileCols; }
int64_t copied_row(int64_t depth) { return round_up(depth, 16) + 16; }

int64_t a_floats(const RowsProduct& p, const Blocks& s) {
  return p.source ? s.rows * s.depth : rows_meet(p) ? s.rows * copied_row(s.depth) : 0;
}
int64_t c_floats(const RowsProduct& p, const Blocks& s) {
  return kTileRows * kTileCols + (p.sink ? s.rows * round_up(p.n, kTileCols) : 0);
}
int64_t b_floats(const RowsProduct& p, const Blocks& s) { return s.pack_b && !p.panels ? packed_size(p.k, p.n) : 0; }

// What the tile itself cannot do to its sums.
bool is_rare(const RowsProduct& p) { return p.out_mask && p.out_mask_act == CT_ACT_TANH; }

// Results that are written once and not read again here.
bool writes_past(const RowsProduct& p, const Blocks& s) {
  return !p.sink && !p.accumulate && !is_curve(p.act) && s.depth >= p.k && is_large(p.c, p.c_row, p.m * p.n, W);
}

// One tile's operands and its place: rows x cols at row m (within the block), column n of the product.
struct Tile {
  const float* a;
  int64_t a_row;
  const float* b;
  int64_t b_row, kc;
  int64_t m, n;
  int rows;
  int64_t cols;
  float* c;
  int64_t c_row;
  bool load_c, last, past;
};

// Sums computed aside go to c with everything that follows them.
void finish_aside(const RowsProduct& p, const Tile& t, const float* aside) {
  const Clamp act = clamp_of(p.act), mask = clamp_of(p.out_mask_act);
  const int64_t offset = t.m * p.c_row + t.n;
  const float* const bias = t.last && p.bias ? p.bias + t.n : nullptr;
  const float* const add = t.last && p.add ? p.add + offset : nullptr;
  const float* const out_mask = t.last && p.out_mask ? p.out_mask + offset : nullptr;
  const bool load_c = t.load_c, last = t.last, past = t.last && t.past;
  for (int64_t i = 0; i < t.rows; ++i) {
    each_vector(t.cols, [&](int64_t j, auto lanes) {
      float* const to = t.c + i * t.c_row + j;
      vf v = load_some(aside + i * kTileCols + j, lanes);
      if (load_c) v += load_some(to, lanes);
      if (bias) v += load_some(bias + j, lanes);
      if (add) v += load_some(add + i * p.c_row + j, lanes);
      if (last) v = activate(v, act);
      if (out_mask) v = masked(v, load_some(out_mask + i * p.c_row + j, lanes), mask);
      if (past && lanes == W) return store_past(to, v);
      store_some(to, v, lanes);
    });
  }
}

void run_tile(const RowsProduct& p, const Tile& t, float* aside) {
  const int vectors = t.cols > W ? 2 : 1;
  TileEnd end{t.c, t.c_row, nullptr, 0, 0, t.load_c, false, t.past};
  const bool rare = t.last && is_rare(p);
  if (t.last && !rare) {
    const Clamp act = clamp_of(p.act);
    end.bias = p.bias ? p.bias + t.n : nullptr;
    end.clamp = unbent(p.act) != CT_ACT_NONE;
    end.low = act.low, end.high = act.high;
    const int64_t at = t.m * p.c_row + t.n;
    end.add = p.add ? p.add + at : nullptr;
    end.y = p.out_mask ? p.out_mask + at : nullptr;
    end.mask = clamp_of(p.out_mask_act);
    end.ask = reinterpret_cast<const char*>(t.a);
  } else if (rare) {
    end = {aside, kTileCols, nullptr, 0, 0, false, false, false};
  }
  if (!rare) end.tail = t.cols % W;
  tile_for(t.rows, vectors, end.add || end.y || end.tail)(t.a, t.a_row, 1, t.b, t.b_row, t.kc, end);
  if (rare) return finish_aside(p, t, aside);
  if (t.last && is_curve(p.act)) bend(p.act, t.c, t.rows, t.cols, t.c_row);
}

// Rows m..m+count of a matrix, before they are needed.
template <int Write = 0>
void ask_for_rows(const float* x, int64_t row, int64_t m, int64_t end, int64_t cols) {
  for (int64_t i = m; i < end; ++i)
    for (int64_t k = 0; k < cols; k += 16) __builtin_prefetch(x + i * row + k, Write, 2);
}

void run_block(const RowsProduct& p, const Blocks& s, const Buffers& buffers, int64_t m0, int64_t mc, int64_t n0, int64_t n1) {
  const bool past = writes_past(p, s), copies = rows_meet(p);
  const bool a_ahead = !p.source && !copies && p.k > kShortRow && p.k <= 256 && p.m * p.k > (1 << 17);
  const bool c_ahead = !p.sink && !past && p.n > kShortRow && p.k <= 256 && p.m * p.n > (1 << 17);
  const bool mask_ahead = p.out_mask && p.m * p.n > (1 << 17);
  Tile t;
  t.c_row = p.sink ? round_up(p.n, kTileCols) : p.c_row;
  t.past = past;
  float* const c = p.sink ? buffers.c + kTileRows * kTileCols : p.c + m0 * p.c_row;
  for (int64_t k0 = 0; k0 == 0 || k0 < p.k; k0 += s.depth) {
    t.kc = std::min(s.depth, p.k - k0);
    t.last = k0 + t.kc >= p.k;
    t.load_c = k0 > 0 || (p.accumulate && !p.sink);
    const float* const lies = p.source ? nullptr : p.a + m0 * p.a_row + k0;
    const float* const a = p.source || copies ? buffers.a : lies;
    t.a_row = p.source ? t.kc : copies ? copied_row(t.kc) : p.a_row;
    if (p.source && t.kc > 0) p.source->rows(p.first + m0, mc, k0, t.kc, buffers.a, t.kc);
    for (int64_t i = 0; copies && i < mc; ++i) std::copy_n(lies + i * p.a_row, t.kc, buffers.a + i * t.a_row);
    for (t.n = n0; t.n < n1; t.n += kTileCols) {
      t.cols = std::min<int64_t>(kTileCols, n1 - t.n);
      const int64_t width = panel_width(p.n, t.n);
      t.b = s.pack_b ? buffers.packed_b + t.n * p.k + k0 * width : p.b + k0 * p.b_row + t.n;
      t.b_row = s.pack_b ? width : p.b_row;
      for (int64_t i = 0; i < mc; i += kTileRows) {
        t.m = m0 + i;
        t.rows = int(std::min<int64_t>(kTileRows, mc - i));
        t.a = a + i * t.a_row;
        t.c = c + i * t.c_row + t.n;
        const int64_t next = t.m + 2 * kTileRows, end = std::min(next + kTileRows, p.m);
        if (a_ahead && t.n == n0) ask_for_rows(p.a, p.a_row, next, end, p.k);
        if (mask_ahead) ask_for_rows(p.out_mask + t.n, p.c_row, next, end, t.cols);
        if (c_ahead) ask_for_rows<1>(p.c + t.n, p.c_row, next, end, t.cols);
        run_tile(p, t, buffers.c);
      }
    }
  }
  if (p.sink) p.sink->rows(p.first + m0, mc, c, t.c_row);
  if (past) finish_stores_past();
}

void pack_columns(const RowsProduct& p, float* packed, int64_t panel) {
  const int64_t n = panel * kTileCols;
  const int64_t cols = std::min<int64_t>(kTileCols, p.n - n);
  if (p.stored) return pack_stored(*p.stored, p.b_row, p.b_col, p.k, n, cols, panel_width(p.n, n), packed + n * p.k);
  pack_panel(p.b + n * p.b_col, p.b_row, p.b_col, p.k, cols, panel_width(p.n, n), p.alpha, packed + n * p.k);
}

void pack_all(Context& context, const RowsProduct& p, float* packed) {
  context.parallel(ceil_div(p.n, kTileCols), double(p.k) * p.n * 0.3, [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_columns(p, packed, i);
  });
}

bool is_empty(const RowsProduct& p) { return p.m == 0 || p.n == 0; }

double nanoseconds(const RowsProduct& p) { return double(p.m) * p.n * p.k / 100.0; }

}  // namespace

int64_t rows_scratch(const RowsProduct& p, int workers) {
  if (is_empty(p)) return 0;
  if (p.bf16 & CT_BF16_OPERANDS) return rounded_rows_scratch(p, workers);
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
  if (is_empty(p)) return;
  if (p.bf16 & CT_BF16_OPERANDS) return run_rounded_rows(context, p, scratch);
  const Blocks s = plan(p);
  Carver carver(scratch);
  float* const packed = carver.take<float>(b_floats(p, s));
  const int64_t a_size = round_up(a_floats(p, s), 16), c_size = round_up(c_floats(p, s), 16);
  float* const mine = carver.take<float>((a_size + c_size) * context.workers());
  if (s.pack_b && !p.panels) pack_all(context, p, packed);
  context.parallel(s.row_units * s.col_units, nanoseconds(p), [&](int worker, int64_t begin, int64_t end) {
    float* const own = mine + worker * (a_size + c_size);
    const Buffers buffers{p.panels ? p.panels : packed, own, own + a_size};
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t m0 = unit / s.col_units * s.rows, n0 = unit % s.col_units * s.cols;
      run_block(p, s, buffers, m0, std::min(s.rows, p.m - m0), n0, std::min(n0 + s.cols, p.n));
    }
  });
}

int64_t panel_bytes(const RowsProduct& p) {
  if (is_empty(p) || p.stored || (p.bf16 & CT_BF16_OPERANDS) || p.m > kFewRows || !plan(p).pack_b) return 0;
  return packed_size(p.k, p.n) * int64_t(sizeof(float));
}

void keep_panels(Context& context, const RowsProduct& p, float* panels) { pack_all(context, p, panels); }

int64_t rows_alone_scratch(const RowsProduct& p) { return rows_scratch(p, 1); }

void run_rows_alone(const RowsProduct& p, char* scratch) {
  Context alone(nullptr, scratch);
  run_rows(alone, p, scratch);
}

}  // namespace CT_TIER
}  // namespace ct
