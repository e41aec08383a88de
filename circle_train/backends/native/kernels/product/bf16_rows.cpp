// RowsProduct of operands rounded to bfloat16: A is read as it lies where it is bfloat16 already, else rounded block by block.
#include <algorithm>

#include "vectors/ahead.h"
#include "vectors/bf16.h"
#include "product/bf16_tile.h"
#include "product/gemm.h"
#include "product/pack.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kBlockBytes = 192 << 10;  // of A rounded aside: it stays in the second-level cache

struct Blocks {
  int64_t rows, row_units;
  int64_t cols, col_units;
  bool in_place;  // A
};

// Units are a function of the problem alone.
Blocks plan(const RowsProduct& p) {
  Blocks s;
  s.in_place = (p.bf16 & CT_BF16_X) && !p.source && p.k % 2 == 0;
  int64_t want = p.m >= 96 * 16 ? 96 : p.m >= 48 * 8 ? 48 : 24;
  if (p.k <= 128 && p.m >= 96 * 64) want = 192;
  if (!s.in_place) want = std::min(want, std::max<int64_t>(1, kBlockBytes / (2 * std::max<int64_t>(p.k, 1))));
  s.rows = std::max<int64_t>(kTileRows, want / kTileRows * kTileRows);
  s.row_units = ceil_div(p.m, s.rows);
  s.cols = p.n, s.col_units = 1;
  if (s.row_units < 16 && p.n > kTileCols && !p.sink) {
    const int64_t parts = std::min(ceil_div(p.n, kTileCols), ceil_div(16, s.row_units));
    s.cols = round_up(ceil_div(p.n, parts), kTileCols);
    s.col_units = ceil_div(p.n, s.cols);
  }
  return s;
}

// Of one worker: rounded rows of A, some of them on their way there, a tile's sums, and finished rows for a sink.
struct Own {
  uint16_t* a;
  float* rows_made;
  float* tile;
  float* rows;
};

struct Buffers {
  uint32_t* b;         // panels of pairs, each kTileCols (the last may be W) wide
  uint16_t* turned;    // a worker's panel of B rounded before it is turned
  int64_t turned_size;
  char* own;
  int64_t own_size;

  Own of(const RowsProduct& p, const Blocks& s, int worker) const {
    Carver carver(own + worker * own_size);
    return take(p, s, carver);
  }
  static Own take(const RowsProduct& p, const Blocks& s, Carver& carver) {
    Own w;
    w.a = carver.take<uint16_t>(s.in_place ? 0 : s.rows * 2 * pairs_of(p.k));
    w.rows_made = carver.take<float>(p.source ? kTileRows * p.k : 0);
    w.tile = carver.take<float>(kTileRows * kTileCols);
    w.rows = carver.take<float>(p.sink ? s.rows * round_up(p.n, kTileCols) : 0);
    return w;
  }
};

bool turns(const RowsProduct& p) { return p.b_row == 1 && p.b_col != 1; }

Buffers carve(const RowsProduct& p, const Blocks& s, int workers, Carver& carver) {
  Buffers f;
  f.b = carver.take<uint32_t>(packed_size(pairs_of(p.k), p.n));
  f.turned_size = turns(p) ? round_up(2 * pairs_of(p.k) * kTileCols, 64) : 0;
  f.turned = carver.take<uint16_t>(f.turned_size * workers);
  Carver one(nullptr);
  Buffers::take(p, s, one);
  f.own_size = round_up(one.used(), 64);
  f.own = carver.take<char>(f.own_size * workers);
  return f;
}

void pack_columns(const RowsProduct& p, const Buffers& f, int64_t panel, int worker) {
  const int64_t n = panel * kTileCols, cols = std::min<int64_t>(kTileCols, p.n - n), width = panel_width(p.n, n);
  const int64_t pairs = pairs_of(p.k);
  uint32_t* const dst = f.b + n * pairs;
  if (cols < width) std::fill(dst, dst + pairs * width, 0u);
  if (turns(p)) {
    uint16_t* const rows = f.turned + worker * f.turned_size;
    for (int64_t j = 0; j < cols; ++j) round_row(p.b + (n + j) * p.b_col, p.alpha, p.k, rows + j * 2 * pairs);
    return transpose(reinterpret_cast<const float*>(rows), pairs, cols, pairs, reinterpret_cast<float*>(dst), width);
  }
  for (int64_t i = 0; i < pairs; ++i) {
    const float* const low = p.b + 2 * i * p.b_row + n * p.b_col;
    const float* const high = 2 * i + 1 < p.k ? low + p.b_row : nullptr;
    if (p.b_col == 1) {
      pair_rows(low, high, p.alpha, cols, dst + i * width);
    } else {
      for (int64_t j = 0; j < cols; ++j) pair_rows(low + j * p.b_col, high ? high + j * p.b_col : nullptr, p.alpha, 1, dst + i * width + j);
    }
  }
}

// Rows m0..m0+mc of A, rounded.
void round_rows(const RowsProduct& p, const Own& own, int64_t m0, int64_t mc) {
  const int64_t row = 2 * pairs_of(p.k);
  for (int64_t i = 0; i < mc; ++i) {
    uint16_t* const to = own.a + i * row;
    if (p.source) {
      const int64_t within = i % kTileRows;
      if (within == 0 && p.k > 0) p.source->rows(m0 + i, std::min<int64_t>(kTileRows, mc - i), 0, p.k, own.rows_made, p.k);
      round_row(own.rows_made + within * p.k, 1, p.k, to);
    } else if (p.bf16 & CT_BF16_X) {
      const uint16_t* const from = reinterpret_cast<const uint16_t*>(p.a) + (m0 + i) * p.a_row;
      std::copy(from, from + p.k, to);
      if (p.k % 2) to[p.k] = 0;
    } else {
      round_row(p.a + (m0 + i) * p.a_row, 1, p.k, to);
    }
  }
}

template <class Lanes>
vf operand(const float* x, bool bf16, int64_t at, Lanes lanes) {
  return bf16 ? load_bf16(reinterpret_cast<const uint16_t*>(x) + at, lanes) : load_some(x + at, lanes);
}

// Sums of a tile go to c with everything that follows them.
void finish(const RowsProduct& p, const float* tile, int64_t m, int rows, int64_t n, int64_t cols, bool past) {
  const Clamp act = clamp_of(p.act), mask = clamp_of(p.out_mask_act);
  for (int64_t i = 0; i < rows; ++i) {
    each_vector(cols, [&](int64_t j, auto lanes) {
      const int64_t at = (m + i) * p.c_row + n + j;
      vf v = load_some(tile + i * kTileCols + j, lanes);
      if (p.accumulate) v += load_some(p.c + at, lanes);
      if (p.bias) v += load_some(p.bias + n + j, lanes);
      if (p.add) v += operand(p.add, p.bf16 & CT_BF16_ADD, at, lanes);
      if (p.act != CT_ACT_NONE) v = activate(v, act);
      if (p.out_mask) v = masked(v, operand(p.out_mask, p.bf16 & CT_BF16_MASK, at, lanes), mask);
      if (p.bf16 & CT_BF16_Y) return store_bf16(reinterpret_cast<uint16_t*>(p.c) + at, v, lanes);
      if (past && lanes == W) return store_past(p.c + at, v);
      store_some(p.c + at, v, lanes);
    });
  }
}

void run_block(const RowsProduct& p, const Blocks& s, const Buffers& f, const Own& own, int64_t m0, int64_t n0) {
  const int64_t mc = std::min(s.rows, p.m - m0), n1 = std::min(n0 + s.cols, p.n), pairs = pairs_of(p.k);
  const bool past = !p.sink && !p.accumulate && !(p.bf16 & CT_BF16_Y) && is_large(p.c, p.c_row, p.m * p.n, W);
  if (!s.in_place) round_rows(p, own, m0, mc);
  PairTile t;
  t.a_row = s.in_place ? p.a_row : 2 * pairs;
  t.a_step = 2;
  t.pairs = pairs;
  t.load_c = false;
  const uint16_t* const a = s.in_place ? reinterpret_cast<const uint16_t*>(p.a) + m0 * p.a_row : own.a;
  const int64_t sink_row = round_up(p.n, kTileCols);
  for (int64_t n = n0; n < n1; n += kTileCols) {
    const int64_t cols = std::min<int64_t>(kTileCols, n1 - n);
    t.b_row = panel_width(p.n, n);
    t.b = f.b + n * pairs;
    for (int64_t i = 0; i < mc; i += kTileRows) {
      const int rows = int(std::min<int64_t>(kTileRows, mc - i));
      t.a = a + i * t.a_row;
      t.c = p.sink ? own.rows + i * sink_row + n : own.tile;
      t.c_row = p.sink ? sink_row : kTileCols;
      pair_tile_for(rows, cols > W ? 2 : 1)(t);
      if (!p.sink) finish(p, own.tile, m0 + i, rows, n, cols, past);
    }
  }
  if (p.sink) p.sink->rows(m0, mc, own.rows, sink_row);
  if (past) finish_stores_past();
}

}  // namespace

int64_t rounded_rows_scratch(const RowsProduct& p, int workers) {
  Carver carver(nullptr);
  carve(p, plan(p), workers, carver);
  return carver.used();
}

void run_rounded_rows(Context& context, const RowsProduct& p, char* scratch) {
  const Blocks s = plan(p);
  Carver carver(scratch);
  const Buffers f = carve(p, s, context.workers(), carver);
  context.parallel(ceil_div(p.n, kTileCols), double(p.k) * p.n * 0.3, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) pack_columns(p, f, i, worker);
  });
  context.parallel(s.row_units * s.col_units, double(p.m) * p.n * p.k / 180.0, [&](int worker, int64_t begin, int64_t end) {
    const Own own = f.of(p, s, worker);
    for (int64_t unit = begin; unit < end; ++unit) run_block(p, s, f, own, unit / s.col_units * s.rows, unit % s.col_units * s.cols);
  });
}

}  // namespace CT_TIER
}  // namespace ct
