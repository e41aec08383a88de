// Attention, some rows at a time: their scores and probabilities stay in the caches and are made again for the gradients.
#include <algorithm>
#include <cmath>

#include "elementwise/softmax.h"
#include "product/gemm.h"
#include "product/pack.h"
#include "product/tile.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

// As many rows as a product takes without packing its right side, which is turned once for all of them.
constexpr int64_t kRows = 4 * kTileRows;

// One entry's matrices.
struct Matrix {
  float* at;
  int64_t row;
  float* from(int64_t i) const { return at + i * row; }
};

Matrix entry_of(const ct_matrices& m, int64_t p, int64_t q) {
  return {m.at ? m.at + p * m.batch0 + q * m.batch1 : nullptr, m.row};
}

RowsProduct product(const float* a, int64_t a_row, const float* b, int64_t b_row, int64_t m, int64_t n, int64_t k, Matrix c) {
  RowsProduct p;
  p.m = m, p.n = n, p.k = k;
  p.a = a, p.a_row = a_row;
  p.b = b, p.b_row = b_row;
  p.c = c.at, p.c_row = c.row;
  return p;
}

void clear(const Matrix& m, int64_t rows, int64_t cols) {
  for (int64_t i = 0; m.at && i < rows; ++i) std::fill_n(m.from(i), cols, 0.0f);
}

// At most this much below a row's largest score an exponential is 0.
constexpr float kVanishes = 110;

// The longest of so many rows.
float longest(const Matrix& x, int64_t rows, int64_t cols) {
  float most = 0;
  for (int64_t i = 0; i < rows; ++i) {
    vf total{};
    each_vector(cols, [&](int64_t j, auto lanes) { total += load_some(x.from(i) + j, lanes) * load_some(x.from(i) + j, lanes); });
    const float length = std::sqrt(sum(total));
    if (length > most || length != length) most = length;
  }
  return most;
}

// What a worker works in.
struct Own {
  const ct_attention_args& t;
  int64_t row;                 // of scores: whole vectors, rows that do not meet in the cache's sets
  float *keys, *values;        // turned round: depth x row, width x row
  Matrix scores, slopes;       // kRows x row
  char* scratch;               // of the products

  Own(const ct_attention_args& args, Carver& carver) : t(args), row(round_up(args.cols, 2 * W) + W) {
    const bool back = t.dy.at;
    keys = carver.take<float>(t.depth * row);
    values = carver.take<float>(back ? t.width * row : 0);
    scores = {carver.take<float>(kRows * row), row};
    slopes = {carver.take<float>(back ? kRows * row : 0), row};
    const int64_t m = std::min(kRows, t.rows);
    const RowsProduct products[] = {
        product(nullptr, t.q.row, nullptr, row, m, row, t.depth, scores), product(nullptr, row, nullptr, t.v.row, m, t.width, t.cols, scores),
        product(nullptr, t.dy.row, nullptr, row, m, row, t.width, scores), product(nullptr, row, nullptr, t.k.row, m, t.depth, t.cols, scores)};
    int64_t most = 0;
    for (const RowsProduct& p : products) most = std::max(most, rows_alone_scratch(p));
    scratch = carver.take<char>(most);
  }

  // Turned round, with zeros behind.
  void turn(const Matrix& x, int64_t columns, float* to) const {
    for (int64_t i = 0; i < columns; ++i) std::fill(to + i * row + t.cols, to + (i + 1) * row, 0.0f);
    transpose(x.at, x.row, t.cols, columns, to, row);
  }

  // Up to which column a mask leaves any of the rows r0..r0+m a probability: in causal attention half of all columns lie behind.
  // Theirs are exactly 0, as no product of a query and a key is larger than the lengths of both.
  int64_t seen(const Matrix& q, const Matrix& mask, float key, int64_t r0, int64_t m) const {
    if (!mask.at || !(t.mask_scale > 0)) return t.cols;
    const float apart = (2.001f * std::fabs(t.scale) * longest({q.from(r0), q.row}, m, t.depth) * key + kVanishes) / t.mask_scale;
    int64_t end = 0;
    for (int64_t i = r0; i < r0 + m; ++i) {
      const float* const add = mask.from(i);
      const float low = row_maximum(add, t.cols) - apart;
      int64_t j = round_up(t.cols, kTileCols) - kTileCols;
      while (j >= end && row_maximum(add + j, std::min<int64_t>(kTileCols, t.cols - j)) < low) j -= kTileCols;
      end = std::max(end, j + kTileCols);
    }
    return std::min(end, t.cols);
  }

  // scores = softmax(scale q k^T + mask_scale mask) of rows r0..r0+m and the first columns.
  void probabilities(const Matrix& q, const Matrix& mask, int64_t r0, int64_t m, int64_t cols) const {
    run_rows_alone(product(q.from(r0), q.row, keys, row, m, round_up(cols, W), t.depth, scores), scratch);
    for (int64_t i = 0; i < m; ++i) {
      float* const z = scores.from(i);
      const float* const add = mask.at ? mask.from(r0 + i) : nullptr;
      each_vector(cols, [&](int64_t j, auto lanes) {
        vf s = load_some(z + j, lanes) * t.scale;
        if (add) s += load_some(add + j, lanes) * t.mask_scale;
        store_some(z + j, s, lanes);
      });
      softmax_row(z, z, cols, 1, row_maximum(z, cols));
    }
  }
};

// Rows first..last of c = a^T b over the k rows of a block, added to what other blocks gave where there were any.
void add_turned(const Matrix& a, const Matrix& b, int64_t k, int64_t first, int64_t last, int64_t cols, const Matrix& c, bool adds) {
  for (int64_t n = 0; n < cols; n += kTileCols) {
    const int vectors = cols - n > W ? 2 : 1;
    for (int64_t i = first; i < last; i += kTileRows) {
      TileEnd end{c.from(i) + n, c.row, nullptr, 0, 0, adds, false, false};
      tile_for(int(std::min<int64_t>(kTileRows, last - i)), vectors)(a.at + i, 1, a.row, b.at + n, b.row, k, end);
    }
  }
}

// The first rows of c, of which so many have something.
void sum_turned(const Matrix& a, const Matrix& b, int64_t k, int64_t rows, int64_t begun, int64_t cols, const Matrix& c) {
  if (!c.at) return;
  add_turned(a, b, k, 0, std::min(rows, begun), cols, c, true);
  add_turned(a, b, k, begun, rows, cols, c, false);
}

void forward(const Own& own, int64_t p, int64_t q) {
  const ct_attention_args& t = own.t;
  const Matrix queries = entry_of(t.q, p, q), keys = entry_of(t.k, p, q), values = entry_of(t.v, p, q);
  const Matrix mask = entry_of(t.mask, p, q), y = entry_of(t.y, p, q);
  if (t.cols == 0) return clear(y, t.rows, t.width);
  own.turn(keys, t.depth, own.keys);
  const float key = longest(keys, t.cols, t.depth);
  for (int64_t r0 = 0; r0 < t.rows; r0 += kRows) {
    const int64_t m = std::min(kRows, t.rows - r0), cols = own.seen(queries, mask, key, r0, m);
    own.probabilities(queries, mask, r0, m, cols);
    const Matrix to{y.from(r0), y.row};
    run_rows_alone(product(own.scores.at, own.row, values.at, values.row, m, t.width, cols, to), own.scratch);
  }
}

// slopes = scale * scores * (slopes - sum(scores * slopes)), row by row
void through_softmax(const Own& own, int64_t m, int64_t cols) {
  for (int64_t i = 0; i < m; ++i) {
    const float* const y = own.scores.from(i);
    float* const d = own.slopes.from(i);
    vf total{};
    each_vector(cols, [&](int64_t j, auto lanes) { total += load_some(y + j, lanes) * load_some(d + j, lanes); });
    const float dot = sum(total);
    each_vector(cols, [&](int64_t j, auto lanes) {
      store_some(d + j, own.t.scale * load_some(y + j, lanes) * (load_some(d + j, lanes) - dot), lanes);
    });
  }
}

void backward(const Own& own, int64_t p, int64_t q) {
  const ct_attention_args& t = own.t;
  const Matrix queries = entry_of(t.q, p, q), keys = entry_of(t.k, p, q), mask = entry_of(t.mask, p, q), dy = entry_of(t.dy, p, q);
  const Matrix dq = entry_of(t.dq, p, q), dk = entry_of(t.dk, p, q), dv = entry_of(t.dv, p, q);
  if (t.rows == 0 || t.cols == 0) {
    clear(dq, t.rows, t.depth), clear(dk, t.cols, t.depth), clear(dv, t.cols, t.width);
    return;
  }
  own.turn(keys, t.depth, own.keys);
  own.turn(entry_of(t.v, p, q), t.width, own.values);
  const float key = longest(keys, t.cols, t.depth);
  int64_t begun = 0;  // rows of dk and dv that have something
  for (int64_t r0 = 0; r0 < t.rows; r0 += kRows) {
    const int64_t m = std::min(kRows, t.rows - r0), cols = own.seen(queries, mask, key, r0, m);
    own.probabilities(queries, mask, r0, m, cols);
    sum_turned(own.scores, {dy.from(r0), dy.row}, m, cols, begun, t.width, dv);
    if (dq.at || dk.at) {
      run_rows_alone(product(dy.from(r0), dy.row, own.values, own.row, m, round_up(cols, W), t.width, own.slopes), own.scratch);
      through_softmax(own, m, cols);
      sum_turned(own.slopes, {queries.from(r0), queries.row}, m, cols, begun, t.depth, dk);
      const Matrix to{dq.at ? dq.from(r0) : nullptr, dq.row};
      if (dq.at) run_rows_alone(product(own.slopes.at, own.row, keys.at, keys.row, m, t.depth, cols, to), own.scratch);
    }
    begun = std::max(begun, cols);
  }
  clear({dk.at ? dk.from(begun) : nullptr, dk.row}, t.cols - begun, t.depth);
  clear({dv.at ? dv.from(begun) : nullptr, dv.row}, t.cols - begun, t.width);
}

template <class F>
int32_t each_entry(Context& context, const ct_attention_args& t, int64_t products, F f) {
  const double work = double(t.batch0) * t.batch1 * t.rows * t.cols * (t.depth + t.width) * products / 100;
  Carver whole(nullptr);
  Own(t, whole);
  const int64_t own = round_up(whole.used(), CT_ALIGNMENT);
  context.parallel(t.batch0 * t.batch1, work, [&](int worker, int64_t begin, int64_t end) {
    Carver carver(context.scratch() + worker * own);
    const Own mine(t, carver);
    for (int64_t i = begin; i < end; ++i) f(mine, i / t.batch1, i % t.batch1);
  });
  return CT_OK;
}

}  // namespace

int64_t attention_scratch(const void* opaque, int threads) {
  Carver carver(nullptr);
  Own(*static_cast<const ct_attention_args*>(opaque), carver);
  return round_up(carver.used(), CT_ALIGNMENT) * threads;
}

int32_t attention(Context& context, const void* opaque) {
  return each_entry(context, *static_cast<const ct_attention_args*>(opaque), 1, forward);
}

int32_t attention_grad(Context& context, const void* opaque) {
  return each_entry(context, *static_cast<const ct_attention_args*>(opaque), 3, backward);
}

}  // namespace CT_TIER
}  // namespace ct
