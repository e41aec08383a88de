#include "conv_narrow.h"

#include <algorithm>

#include "conv_shape.h"
#include "dense.h"
#include "optimizer.h"
#include "pack.h"
#include "tile.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kMostChannels = 4;
constexpr int64_t kMostParts = 16;
constexpr int64_t kApart = 1024;  // floats: a page each, so that no worker's stores take a line, or its neighbour, from another

bool is_narrow(const ct_conv_shape& s) {
  return s.groups == 1 && s.dilation_w == 1 && s.in_c <= kMostChannels && s.kernel_w > 1 && s.out_c >= W;
}

// Pixels between the first and the last that an output row reads, padding included.
int64_t row_pixels(const ct_conv_shape& s) { return (s.out_w - 1) * s.stride_w + s.kernel_w; }
bool is_padded(const ct_conv_shape& s) { return s.pad_left != 0 || row_pixels(s) > s.in_w; }
int64_t row_floats(const ct_conv_shape& s) { return is_padded(s) ? round_up(row_pixels(s) * s.in_c, kApart) : 0; }
int64_t run_floats(const ct_conv_shape& s) { return s.kernel_w * s.in_c; }

// f(kh, the image row under it with its padding) for the kernel rows that meet the image.
template <class F>
void each_kernel_row(const ct_conv_shape& s, const float* x, int64_t out_row, float* padded, F f) {
  const int64_t n = out_row / s.out_h, h0 = out_row % s.out_h * s.stride_h - s.pad_top;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const int64_t h = h0 + kh * s.dilation_h;
    if (h < 0 || h >= s.in_h) continue;
    const float* const row = x + (n * s.in_h + h) * s.in_w * s.in_c;
    if (!is_padded(s)) {
      f(kh, row);
      continue;
    }
    const int64_t left = std::min(s.pad_left, row_pixels(s));
    const int64_t inside = std::min(s.in_w, row_pixels(s) - left), right = row_pixels(s) - left - inside;
    zero_floats(padded, left * s.in_c);
    copy_floats(padded + left * s.in_c, row, inside * s.in_c);
    zero_floats(padded + (left + inside) * s.in_c, right * s.in_c);
    f(kh, padded);
  }
}

// A whole output row, kernel row by kernel row; the last adds what follows the sum.
void forward_row(const ct_conv_args& t, const float* weights, int64_t out_row, float* padded) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = run_floats(s), step = s.stride_w * s.in_c, top = out_row % s.out_h * s.stride_h - s.pad_top;
  float* const y = t.y + out_row * s.out_w * s.out_c;
  int64_t last = -1;
  for (int64_t kh = 0; kh < s.kernel_h; ++kh)
    if (const int64_t h = top + kh * s.dilation_h; h >= 0 && h < s.in_h) last = kh;
  const Clamp act = clamp_of(t.act);
  if (last < 0) {
    for (int64_t i = 0; i < s.out_w; ++i)
      for (int64_t j = 0; j < s.out_c; j += W) store(y + i * s.out_c + j, activate(t.b ? load(t.b + j) : vf{}, act));
    return;
  }
  bool first = true;
  each_kernel_row(s, t.x, out_row, padded, [&](int64_t kh, const float* x) {
    for (int64_t j = 0; j < s.out_c; j += kTileCols) {
      const int vectors = s.out_c - j > W ? 2 : 1;
      const bool ends = kh == last;
      for (int64_t i = 0; i < s.out_w; i += kTileRows) {
        const int rows = int(std::min<int64_t>(kTileRows, s.out_w - i));
        const TileEnd end{y + i * s.out_c + j, s.out_c, ends && t.b ? t.b + j : nullptr, act.low, act.high,
                          !first, ends && t.act != CT_ACT_NONE, false};
        tile_for(rows, vectors)(x + i * step, step, 1, weights + kh * run * s.out_c + j, s.out_c, run, end);
      }
    }
    first = false;
  });
}

struct Sums {
  int64_t cols;      // outputs, up to whole vectors
  int64_t size;      // floats of a window
  int64_t parts;     // a function of the problem alone
  float *parts_at, *biases_at, *turned, *workers;
  int64_t padded, dy;  // floats of one worker
};

Sums carve(Carver& carver, const ct_conv_grad_w_args& t, int workers) {
  const ct_conv_shape& s = t.shape;
  Sums f;
  f.cols = round_up(s.out_c, W);
  f.size = s.kernel_h * run_floats(s);
  f.parts = std::min(kMostParts, s.batch * s.out_h);
  f.parts_at = carver.take<float>(f.parts * f.size * f.cols);
  f.biases_at = carver.take<float>(f.parts * f.cols);
  f.turned = carver.take<float>(f.size * s.out_c);
  f.padded = row_floats(s);
  f.dy = (t.y && t.act != CT_ACT_NONE) || f.cols != s.out_c ? round_up(s.out_w * f.cols, kApart) : 0;
  f.workers = carver.take<float>((f.padded + f.dy) * workers);
  return f;
}

// One output row's share of the weights' gradient (transposed: window cells x outputs) and of the bias's.
void add_row(const ct_conv_grad_w_args& t, const Sums& f, int64_t out_row, int64_t part, float* own) {
  const ct_conv_shape& s = t.shape;
  const int64_t run = run_floats(s), from = out_row * s.out_w * s.out_c;
  float *const padded = own, *const made = own + f.padded, *const c = f.parts_at + part * f.size * f.cols;
  if (f.dy) {
    const DenseMatrix dy(t.dy, t.y, s.out_c, t.act);
    for (int64_t i = 0; i < s.out_w; ++i) {
      zero_floats(made + i * f.cols + s.out_c / W * W, f.cols - s.out_c / W * W);
      dy.rows(out_row * s.out_w + i, 1, 0, s.out_c, made + i * f.cols, f.cols);
    }
  }
  const float* const dy = f.dy ? made : t.dy + from;
  for (int64_t j = 0; t.has_b && j < f.cols; j += W) {
    vf sum{};
    for (int64_t i = 0; i < s.out_w; ++i) sum += load(dy + i * f.cols + j);
    float* const to = f.biases_at + part * f.cols + j;
    store(to, load(to) + sum);
  }
  if (!t.has_w) return;
  each_kernel_row(s, t.x, out_row, padded, [&](int64_t kh, const float* x) {
    for (int64_t j = 0; j < f.cols; j += kTileCols) {
      const int vectors = f.cols - j > W ? 2 : 1;
      for (int64_t i = 0; i < run; i += kTileRows) {
        const int rows = int(std::min<int64_t>(kTileRows, run - i));
        const TileEnd end{c + (kh * run + i) * f.cols + j, f.cols, nullptr, 0, 0, true, false, false};
        tile_for(rows, vectors)(x + i, 1, s.stride_w * s.in_c, dy + j, f.cols, s.out_w, end);
      }
    }
  });
}

// parts[0] += the others, in order
void add_parts(float* parts, int64_t count, int64_t n) {
  for (int64_t p = 1; p < count; ++p)
    each_vector(n, [&](int64_t i, auto lanes) {
      store_some(parts + i, load_some(parts + i, lanes) + load_some(parts + p * n + i, lanes), lanes);
    });
}

}  // namespace

bool is_narrow(const ct_conv_args& t) {
  return is_narrow(t.shape) && t.shape.out_c % W == 0 && !t.add && t.act != CT_ACT_TANH;
}

int64_t narrow_scratch(const ct_conv_args& t, int workers) {
  return (t.shape.kernel_h * run_floats(t.shape) * t.shape.out_c + row_floats(t.shape) * workers) * int64_t(sizeof(float)) + 64;
}

void run_narrow(Context& context, const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  Carver carver(context.scratch());
  const int64_t size = s.kernel_h * run_floats(s);
  float* const weights = carver.take<float>(size * s.out_c);
  float* const padded = carver.take<float>(row_floats(s) * context.workers());
  transpose(t.w, size, s.out_c, size, weights, s.out_c);
  const double work = double(out_pixels(s)) * s.out_c * (size / 60.0 + 0.1);
  context.parallel(s.batch * s.out_h, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) forward_row(t, weights, row, padded + worker * row_floats(s));
  });
}

bool is_narrow(const ct_conv_grad_w_args& t) { return is_narrow(t.shape); }

int64_t narrow_scratch(const ct_conv_grad_w_args& t, int workers) {
  Carver carver(nullptr);
  carve(carver, t, workers);
  return carver.used();
}

void run_narrow(Context& context, const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  Carver carver(context.scratch());
  const Sums f = carve(carver, t, context.workers());
  const int64_t rows = s.batch * s.out_h;
  const double work = double(out_pixels(s)) * s.out_c * (f.size / 60.0 + 0.1);
  context.parallel(f.parts, work, [&](int worker, int64_t begin, int64_t end) {
    for (int64_t part = begin; part < end; ++part) {
      std::fill_n(f.parts_at + part * f.size * f.cols, f.size * f.cols, 0.0f);
      std::fill_n(f.biases_at + part * f.cols, f.cols, 0.0f);
      for (int64_t row = rows * part / f.parts; row < rows * (part + 1) / f.parts; ++row)
        add_row(t, f, row, part, f.workers + worker * (f.padded + f.dy));
    }
  });
  if (t.has_b) {
    add_parts(f.biases_at, f.parts, f.cols);
    apply_update(t.b, 0, f.biases_at, s.out_c);
  }
  if (!t.has_w) return;
  add_parts(f.parts_at, f.parts, f.size * f.cols);
  transpose(f.parts_at, f.cols, f.size, s.out_c, f.turned, f.size);
  apply_update(t.w, 0, f.turned, f.size * s.out_c);
}

}  // namespace CT_TIER
}  // namespace ct
