#include <algorithm>

#include "vectors/ahead.h"
#include "product/bf16_tile.h"
#include "product/gemm.h"
#include "update/optimizer.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kDepth = 256;        // k rows of a chunk, at most: a strip of B fits in the first-level cache
constexpr int64_t kLeastSplit = 384;   // and of a part, at least
constexpr int64_t kMostRows = 288;     // rows of a unit
constexpr int64_t kCols = 256;          // and columns
constexpr int64_t kEnough = 6;         // units to share among threads
constexpr int64_t kMaxTransposed = 64;  // rows of a transposed result
constexpr int64_t kShortSum = 64;       // below, the update is most of the work: whole stretches of the weights, evenly dealt
constexpr int64_t kStretch = 1024;
constexpr int64_t kApart = 8192;        // floats between workers' memory, so that no prefetching takes a line from another

struct Blocks {
  int64_t rows, row_units;
  int64_t cols, col_units;
  int64_t split_k, splits;   // k rows of one part, parts
  int64_t depth;             // and of one chunk of a part
};

// Units are a function of the problem alone; a result without rows or columns has one, as the bias may still be wanted.
Blocks plan(const SumProduct& p) {
  Blocks s;
  const int64_t m = std::max<int64_t>(1, p.m), n = std::max<int64_t>(1, p.n);
  const bool is_short = p.k < kShortSum && !p.transposed && m >= kTileRows;
  const int64_t most_rows = ceil_div(m, kMostRows) * ceil_div(n, kCols) >= kEnough ? kMostRows : kMostRows / 2;
  const int64_t row_parts = is_short ? round_up(ceil_div(m, kTileRows), 4) : ceil_div(m, most_rows);
  s.rows = is_short ? ceil_div(m, row_parts) : round_up(ceil_div(m, row_parts), kTileRows);
  s.row_units = ceil_div(m, s.rows);
  const int64_t widest = is_short ? kStretch : p.k < kShortSum ? 3 * kTileCols : kCols;
  const int64_t col_parts = n <= 320 && p.k >= kShortSum ? 1 : ceil_div(n, widest);
  s.cols = round_up(ceil_div(n, col_parts), kTileCols);
  s.col_units = ceil_div(n, s.cols);
  const int64_t units = s.row_units * s.col_units;
  const int64_t most = std::max<int64_t>(1, p.k / kLeastSplit);
  const int64_t splits = std::min(most, units >= kEnough ? 1 : ceil_div(2 * kEnough, units));
  s.split_k = ceil_div(p.k, splits);
  s.splits = splits == 1 ? 1 : ceil_div(p.k, s.split_k);
  s.depth = std::max<int64_t>(1, ceil_div(s.split_k, std::max<int64_t>(1, ceil_div(s.split_k, kDepth))));
  return s;
}

// A row length whose rows do not meet in the same cache sets.
int64_t spread(int64_t cols) { return (cols / W) % 2 == 0 ? cols + W : cols; }

// Whether so many columns of B can be read where they lie.
bool lies_ready(const SumProduct& p, int64_t cols) { return p.b_dense && cols % W == 0; }

bool is_rounded(const SumProduct& p) { return p.bf16 & CT_BF16_OPERANDS; }

// Rows of A are read in place, to be rounded or whole. A part of each is a strided read, whose lines meet in the cache's sets: rather
// gathered, unless so few columns are made of it that this costs more.
bool a_lies_ready(const SumProduct& p) {
  return p.a_dense && (is_rounded(p) || (!p.a_bf16 && (p.m <= kMostRows || p.n < 2 * kTileCols)));
}

struct Buffers {
  float* parts;       // splits x m x n, when there are several
  float* sums;        // splits x (outputs of the bias)
  float* workers;
  int64_t a, b, c;    // floats of one worker
  int64_t pairs_a, pairs_b;  // and words, where operands are rounded
  int64_t a_row, b_row;
  int64_t own() const { return a + b + c + pairs_a + pairs_b + kApart; }
};

int64_t bias_size(const SumProduct& p) { return p.transposed ? p.n : p.m; }

Buffers carve(Carver& carver, const SumProduct& p, const Blocks& s, int workers) {
  Buffers f;
  f.parts = carver.take<float>(s.splits > 1 && p.w ? s.splits * p.m * p.n : 0);
  f.sums = carver.take<float>(p.bias ? s.splits * bias_size(p) : 0);
  f.a_row = spread(round_up(s.rows, W));
  f.b_row = spread(s.cols);
  f.a = a_lies_ready(p) ? 0 : round_up(round_up(s.rows, kTileRows) * s.depth, 16);
  f.b = lies_ready(p, p.n) || (is_rounded(p) && p.b_dense) ? 0 : round_up(f.b_row * s.depth, 16);
  f.c = p.w ? round_up(s.rows * s.cols, 16) : 0;
  f.pairs_a = is_rounded(p) ? round_up(std::max(f.a_row, round_up(s.rows, kTileRows)) * pairs_of(s.depth), 16) : 0;
  f.pairs_b = is_rounded(p) ? round_up(f.b_row * pairs_of(s.depth), 16) : 0;
  f.workers = carver.take<float>(f.own() * workers);
  return f;
}

// sums[i] += the panels' column sums. Three vectors hold a whole number of panel rows.
void add_panel_sums(const float* a, int64_t kc, int64_t rows, float* sums) {
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

struct Unit {
  int64_t split, m0, rows, n0, cols;
};

Unit unit_at(const SumProduct& p, const Blocks& s, int64_t index) {
  Unit u;
  u.split = index / (s.row_units * s.col_units);
  const int64_t rest = index % (s.row_units * s.col_units);
  u.m0 = rest / s.col_units * s.rows;
  u.rows = std::min(s.rows, p.m - u.m0);
  u.n0 = rest % s.col_units * s.cols;
  u.cols = std::min(s.cols, p.n - u.n0);
  return u;
}

// Where A(k, i) of a chunk lies: at[i*panel + k*col] for the first i of a tile.
struct Left {
  const float* at;
  int64_t panel, col;
};

// Read in place, or in panels where it is gathered.
Left left_of(const SumProduct& p, const Unit& u, int64_t k0, int64_t kc, float* made) {
  if (a_lies_ready(p)) return {p.a_dense + k0 * p.m + u.m0, 1, p.m};
  if (p.w || !p.transposed) p.a->panels(k0, kc, u.m0, u.rows, kTileRows, made);
  return {made, kc, kTileRows};
}

// One chunk of k rows; B's may be read up to whole vectors.
struct Chunk {
  Left a;
  const float* b;
  int64_t b_row, count;
  bool first;
};

// c = A^T B over the first chunk, c += A^T B over the others.
void add_chunk(const Chunk& chunk, const Unit& u, float* c, int64_t c_row, Ahead& ahead) {
  for (int64_t n = 0; n < u.cols; n += kTileCols) {
    const int vectors = u.cols - n > W ? 2 : 1;
    for (int64_t i = 0; i < u.rows; i += kTileRows) {
      const int rows = int(std::min<int64_t>(kTileRows, u.rows - i));
      TileEnd end{c + i * c_row + n, c_row, nullptr, 0, 0, !chunk.first, false, false};
      end.ask = ahead.step_but(chunk.count);
      end.ask_step = 64;
      tile_for(rows, vectors, end.ask)(chunk.a.at + i * chunk.a.panel, 1, chunk.a.col, chunk.b + n, chunk.b_row, chunk.count, end);
    }
  }
}

// The same of rounded operands, in pairs: A as it lies, in rows or in panels, B in rows.
void add_pairs(const Chunk& chunk, const Unit& u, float* c, int64_t c_row, Ahead& ahead) {
  PairTile t;
  t.pairs = pairs_of(chunk.count);
  t.a_row = 2, t.a_step = 2 * chunk.a.col, t.b_row = chunk.b_row, t.c_row = c_row, t.load_c = !chunk.first;
  for (int64_t n = 0; n < u.cols; n += kTileCols) {
    for (int64_t i = 0; i < u.rows; i += kTileRows) {
      ahead.step();
      t.a = reinterpret_cast<const uint16_t*>(chunk.a.at + i * chunk.a.panel);
      t.b = reinterpret_cast<const uint32_t*>(chunk.b + n);
      t.c = c + i * c_row + n;
      pair_tile_for(int(std::min<int64_t>(kTileRows, u.rows - i)), u.cols - n > W ? 2 : 1)(t);
    }
  }
}

// Rows k0..k0+kc of an operand that lies so, its columns from n on, in pairs.
void pair_dense(const float* x, bool bf16, int64_t x_row, int64_t k0, int64_t kc, int64_t n, int64_t cols, uint32_t* to, int64_t row) {
  for (int64_t k = k0; k < k0 + kc; k += 2, to += row) {
    const int64_t low = k * x_row + n, high = low + x_row;
    const bool alone = k + 1 == k0 + kc;
    if (bf16) {
      const uint16_t* const halves = reinterpret_cast<const uint16_t*>(x);
      pair_rows(halves + low, alone ? nullptr : halves + high, cols, to);
    } else {
      pair_rows(x + low, alone ? nullptr : x + high, 1, cols, to);
    }
  }
}

// A chunk whose operands are rounded aside.
Chunk paired(const SumProduct& p, const Unit& u, const Buffers& f, int64_t k0, const Chunk& chunk, float* a, float* b) {
  uint32_t *const to_a = reinterpret_cast<uint32_t*>(a), *const to_b = reinterpret_cast<uint32_t*>(b);
  const bool rows = a_lies_ready(p);
  if (rows) {
    pair_dense(p.a_dense, p.a_bf16, p.m, k0, chunk.count, u.m0, u.rows, to_a, f.a_row);
  } else {
    pair_panels(chunk.a.at, chunk.count, u.rows, to_a);
  }
  if (p.b_dense) {
    pair_dense(p.b_dense, p.b_bf16, p.b_row, k0, chunk.count, u.n0, u.cols, to_b, f.b_row);
  } else {
    pair_dense(chunk.b, false, chunk.b_row, 0, chunk.count, 0, u.cols, to_b, f.b_row);
  }
  const Left left = rows ? Left{a, 1, f.a_row} : Left{a, pairs_of(chunk.count), kTileRows};
  return {left, b, f.b_row, chunk.count, chunk.first};
}

// Finished rows of the result (m x n, or its transpose) go to the weights.
void deliver(const SumProduct& p, const float* c, int64_t c_row, int64_t m0, int64_t rows, int64_t n0, int64_t cols) {
  if (!p.transposed) {
    for (int64_t i = 0; i < rows; ++i) apply_update(*p.w, (m0 + i) * p.n + n0, c + i * c_row, cols);
    return;
  }
  for (int64_t j = 0; j < cols; ++j) {
    float column[kMaxTransposed];
    for (int64_t i = 0; i < rows; ++i) column[i] = c[i * c_row + j];
    apply_update(*p.w, (n0 + j) * p.m + m0, column, rows);
  }
}

// What is read next is asked for: the rows from k on of the columns that a unit takes.
void ask_ahead(const SumProduct& p, const Unit& u, int64_t k, int64_t count, int64_t steps, Ahead& ahead) {
  const int64_t rows = std::min(count, p.k - k);
  if (p.a_dense && !p.a_bf16) ahead.add_rows(p.a_dense + k * p.m + u.m0, u.rows, p.m, rows, steps);
  if (p.b_dense && !p.b_bf16) ahead.add_rows(p.b_dense + k * p.b_row + u.n0, u.cols, p.b_row, rows, steps);
}

void run_unit(const SumProduct& p, const Blocks& s, const Buffers& f, const Unit& u, const Unit& next, float* own) {
  float *const a = own, *const b_made = own + f.a, *const c = own + f.a + f.b;
  const bool sums = p.bias && (p.transposed ? u.m0 == 0 : u.n0 == 0);
  float* const sum_at = f.sums + u.split * bias_size(p) + (p.transposed ? u.n0 : u.m0);
  if (!p.w && !sums) return;
  if (sums) std::fill(sum_at, sum_at + (p.transposed ? u.cols : u.rows), 0.0f);
  const bool in_place = p.b_dense && (is_rounded(p) || lies_ready(p, u.cols));
  float *const pairs_a = own + f.a + f.b + f.c, *const pairs_b = pairs_a + f.pairs_a;
  const int64_t b_row = in_place ? p.b_row : f.b_row;
  const int64_t k_begin = u.split * s.split_k, k_end = std::min(k_begin + s.split_k, p.k);
  if (p.w && k_begin >= k_end) std::fill(c, c + f.c, 0.0f);
  for (int64_t k0 = k_begin; k0 < k_end; k0 += s.depth) {
    const int64_t kc = std::min(s.depth, k_end - k0);
    const float* const b = in_place ? p.b_dense + k0 * b_row + u.n0 : b_made;
    if (!in_place && (p.w || p.transposed)) p.b->rows(k0, kc, u.n0, u.cols, b_made, b_row);
    if (sums && p.transposed) add_row_sums(b, b_row, kc, u.cols, sum_at);
    const Left left = left_of(p, u, k0, kc, a);
    if (sums && !p.transposed) left.panel == 1 ? add_row_sums(left.at, left.col, kc, u.rows, sum_at) : add_panel_sums(a, kc, u.rows, sum_at);
    Ahead ahead;
    const int64_t steps = std::max<int64_t>(1, ceil_div(u.cols, kTileCols) * ceil_div(u.rows, kTileRows));
    const bool is_last = k0 + kc >= k_end;
    ask_ahead(p, is_last ? next : u, is_last ? next.split * s.split_k : k0 + kc, s.depth, steps, ahead);
    if (!p.w) continue;
    const Chunk chunk{left, b, b_row, kc, k0 == k_begin};
    if (is_rounded(p)) {
      add_pairs(paired(p, u, f, k0, chunk, pairs_a, pairs_b), u, c, s.cols, ahead);
    } else {
      add_chunk(chunk, u, c, s.cols, ahead);
    }
  }
  if (!p.w) return;
  if (s.splits == 1) return deliver(p, c, s.cols, u.m0, u.rows, u.n0, u.cols);
  for (int64_t i = 0; i < u.rows; ++i) {
    float* const part = f.parts + (u.split * p.m + u.m0 + i) * p.n + u.n0;
    std::copy(c + i * s.cols, c + i * s.cols + u.cols, part);
  }
}

// parts[0] += the others, in order
void add_parts(float* parts, int64_t splits, int64_t stride, int64_t n) {
  each_vector(n, [&](int64_t i, auto lanes) {
    vf total = load_some(parts + i, lanes);
    for (int64_t s = 1; s < splits; ++s) total += load_some(parts + s * stride + i, lanes);
    store_some(parts + i, total, lanes);
  });
}

}  // namespace

void add_row_sums(const float* b, int64_t b_row, int64_t kc, int64_t cols, float* sums) {
  constexpr int kAtOnce = 4;
  int64_t j = 0;
  for (; j + kAtOnce * W <= cols; j += kAtOnce * W) {
    vf acc[kAtOnce] = {};
    for (int64_t k = 0; k < kc; ++k)
      for (int v = 0; v < kAtOnce; ++v) acc[v] += load(b + k * b_row + j + v * W);
    for (int v = 0; v < kAtOnce; ++v) store(sums + j + v * W, load(sums + j + v * W) + acc[v]);
  }
  each_vector(cols - j, [&](int64_t i, auto lanes) {
    const float* at = b + j + i;
    vf acc[kAtOnce] = {};
    int64_t k = 0;
    for (; k + kAtOnce <= kc; k += kAtOnce)
      for (int r = 0; r < kAtOnce; ++r, at += b_row) acc[r] += load_some(at, lanes);
    for (; k < kc; ++k, at += b_row) acc[0] += load_some(at, lanes);
    store_some(sums + j + i, load_some(sums + j + i, lanes) + ((acc[0] + acc[1]) + (acc[2] + acc[3])), lanes);
  });
}

bool suits_transposed(int64_t outputs, int64_t inputs) { return inputs <= kMaxTransposed && outputs > inputs; }

int64_t sum_scratch(const SumProduct& p, int workers) {
  Carver carver(nullptr);
  carve(carver, p, plan(p), workers);
  return carver.used();
}

void run_sum(Context& context, const SumProduct& p, char* scratch) {
  const Blocks s = plan(p);
  Carver carver(scratch);
  const Buffers f = carve(carver, p, s, context.workers());
  const double work = double(p.m) * p.k * (p.w ? p.n / 100.0 + 0.2 : 0.2) + double(p.m) * p.n * 0.2;
  context.parallel(s.splits * s.row_units * s.col_units, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const Unit u = unit_at(p, s, i), next = unit_at(p, s, std::min(i + 1, end - 1));
      run_unit(p, s, f, u, next, f.workers + worker * f.own());
    }
  });
  if (p.bias) {
    add_parts(f.sums, s.splits, bias_size(p), bias_size(p));
    apply_update(*p.bias, 0, f.sums, bias_size(p));
  }
  if (!p.w || s.splits == 1) return;
  const int64_t size = p.m * p.n, piece = 128, pieces = ceil_div(p.n, piece);
  const int64_t groups = p.transposed ? 1 : p.m, rows = p.transposed ? p.m : 1;
  context.parallel(groups * pieces, double(size) * (0.1 * s.splits + 0.3), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t m0 = i / pieces, n0 = i % pieces * piece, cols = std::min(piece, p.n - n0);
      for (int64_t r = 0; r < rows; ++r) add_parts(f.parts + (m0 + r) * p.n + n0, s.splits, size, cols);
      deliver(p, f.parts + m0 * p.n + n0, p.n, m0, rows, n0, cols);
    }
  });
}

}  // namespace CT_TIER
}  // namespace ct
