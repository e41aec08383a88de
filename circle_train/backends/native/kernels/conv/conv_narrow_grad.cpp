// The gradients of weights and bias.
#include "conv/conv_narrow.h"

#include <algorithm>

#include "product/walk.h"
#include "product/dense.h"
#include "product/narrow_rows.h"
#include "update/optimizer.h"
#include "product/pack.h"
#include "pooling/pool_rows.h"
#include "run/table.h"
#include "product/tile.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kLeastParts = 4, kMostParts = 16;
constexpr int64_t kMostFloats = 1 << 18;  // of all parts, where there are more than the least

struct Sums {
  int64_t cols;      // outputs, up to whole vectors
  int64_t size;      // floats of a window
  int64_t parts;     // a function of the problem alone
  float *parts_at, *biases_at, *turned, *workers;
  int64_t padded, gathered, dy, band;  // floats of one worker
  int64_t own() const { return padded + gathered + dy + band; }
};

Sums carve(Carver& carver, const ct_conv_grad_w_args& t, const ct_conv_shape* pool, int workers) {
  const ct_conv_shape& s = t.shape;
  Sums f;
  f.cols = round_up(s.out_c, W);
  f.size = window_floats(s);
  const int64_t most = std::clamp(kMostFloats / std::max<int64_t>(1, f.size * f.cols), kLeastParts, kMostParts);
  f.parts = std::max<int64_t>(1, std::min(most, s.batch * (pool ? pool->out_h : s.out_h)));
  f.parts_at = carver.take<float>(f.parts * f.size * f.cols);
  f.biases_at = carver.take<float>(f.parts * f.cols);
  f.turned = carver.take<float>(f.size * s.out_c);
  f.padded = row_floats(s), f.gathered = gathered_floats(s);
  f.dy = f.cols != s.out_c ? round_up(s.out_w * f.cols, kApart) : 0;
  f.band = pool ? round_up(pool->kernel_h * s.out_w * s.out_c, kApart) : 0;
  f.workers = carver.take<float>(f.own() * workers);
  return f;
}

// A row of dy: its pixels are `step` floats from each other, and those up to whole vectors may be read, whatever they hold.
struct Row {
  const float* at;
  int64_t step;
};

// c (window cells x outputs) += the product of an output row's windows and its dy.
void add_products(const ct_conv_shape& s, const Sums& f, const float* windows, int64_t step, int64_t cells, const Row& dy, float* c) {
  for (int64_t j = 0; j < f.cols; j += kTileCols) {
    const int vectors = f.cols - j > W ? 2 : 1;
    for (int64_t i = 0; i < cells; i += kTileRows) {
      const int rows = int(std::min<int64_t>(kTileRows, cells - i));
      const TileEnd end{c + i * f.cols + j, f.cols, nullptr, 0, 0, true, false, false};
      tile_for(rows, vectors)(windows + i, 1, step, dy.at + j, dy.step, s.out_w, end);
    }
  }
}

// dy's row; the last one, behind which nothing may be read, in a copy up to whole vectors.
Row row_of(const ct_conv_grad_w_args& t, const Sums& f, int64_t out_row, float* made) {
  const ct_conv_shape& s = t.shape;
  const float* const dy = t.dy + out_row * s.out_w * s.out_c;
  if ((s.batch * s.out_h - 1 - out_row) * s.out_w * s.out_c >= f.cols - s.out_c) return {dy, s.out_c};
  for (int64_t i = 0; i < s.out_w; ++i)
    each_vector(s.out_c, [&](int64_t j, auto lanes) { store(made + i * f.cols + j, load_some(dy + i * s.out_c + j, lanes)); });
  return {made, f.cols};
}

// One output row's share of the weights' gradient and of the bias's.
void add_row(const ct_conv_grad_w_args& t, const Sums& f, int64_t out_row, const Row& dy, int64_t part, float* own) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = run_floats(s);
  float *const padded = own, *const windows = own + f.padded, *const c = f.parts_at + part * f.size * f.cols;
  if (t.has_b) add_row_sums(dy.at, dy.step, s.out_w, f.cols, f.biases_at + part * f.cols);
  if (!t.has_w) return;
  if (gathers(s)) {
    gather_windows(s, t.x, out_row, padded, windows);
    return add_products(s, f, windows, f.size, f.size, dy, c);
  }
  each_kernel_row(s, t.x, out_row, padded, [&](int64_t kh, const float* x) {
    add_products(s, f, x, s.stride_w * s.in_c, run, dy, c + kh * run * f.cols);
  });
}

// add(row, part, own) for all rows, in parts; then the parts become the gradients.
template <class Add>
void sum_parts(Context& context, const ct_conv_grad_w_args& t, const Sums& f, int64_t rows, Add add) {
  const double work = double(out_pixels(t.shape)) * t.shape.out_c * (f.size / 60.0 + 0.1);
  context.parallel(f.parts, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::fill_n(f.parts_at + part * f.size * f.cols, f.size * f.cols, 0.0f);
      std::fill_n(f.biases_at + part * f.cols, f.cols, 0.0f);
      for (int64_t row = rows * part / f.parts; row < rows * (part + 1) / f.parts; ++row) add(row, part, f.workers + worker * f.own());
    }
  });
  const int64_t outputs = t.shape.out_c;
  if (t.has_b) {
    add_parts(f.biases_at, f.parts, f.cols);
    apply_update(t.b, 0, f.biases_at, outputs);
  }
  if (!t.has_w) return;
  add_parts(f.parts_at, f.parts, f.size * f.cols);
  transpose(f.parts_at, f.cols, f.size, outputs, f.turned, f.size);
  apply_update(t.w, 0, f.turned, f.size * outputs);
}

}  // namespace

bool is_narrow(const ct_conv_grad_w_args& t) { return is_narrow(t.shape); }

int64_t narrow_scratch(const ct_conv_grad_w_args& t, int workers) {
  Carver carver(nullptr);
  carve(carver, t, nullptr, workers);
  return carver.used();
}

void run_narrow(Context& context, const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  Carver carver(context.scratch());
  const Sums f = carve(carver, t, nullptr, context.workers());
  sum_parts(context, t, f, s.batch * s.out_h, [&](int64_t row, int64_t part, float* own) {
    float* const made = own + f.padded + f.gathered;
    add_row(t, f, row, row_of(t, f, row, made), part, own);
  });
}

int64_t pool_conv_grad_w_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_pool_conv_grad_w_args*>(opaque);
  Carver carver(nullptr);
  carve(carver, t.conv, &t.pool.shape, threads);
  return carver.used();
}

int32_t pool_conv_grad_w(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_conv_grad_w_args*>(opaque);
  const ct_conv_shape& s = t.conv.shape;
  Carver carver(context.scratch());
  const Sums f = carve(carver, t.conv, &t.pool.shape, context.workers());
  sum_parts(context, t.conv, f, s.batch * t.pool.shape.out_h, [&](int64_t row, int64_t part, float* own) {
    float* const band = own + f.padded + f.gathered + f.dy;
    const RowsBelow below = rows_below(t.pool.shape, row);
    scatter_row(t.pool, row, band);
    for (int64_t i = 0; i < below.count; ++i) add_row(t.conv, f, below.first + i, {band + i * s.out_w * s.out_c, s.out_c}, part, own);
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
