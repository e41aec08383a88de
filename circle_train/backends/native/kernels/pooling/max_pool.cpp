// MAX_POOL_2D and its gradient.
#include <algorithm>

#include "pooling/pool_rows.h"
#include "pooling/pool_windows.h"
#include "run/split.h"
#include "run/table.h"
#include "vectors/halves.h"

namespace ct {
namespace CT_TIER {
namespace {

typedef uint8_t vb __attribute__((vector_size(W)));

// A few bytes one by one: a call of memcpy takes longer.
template <class Lanes>
void store_index(uint8_t* to, vi index, Lanes lanes) {
  const vb bytes = __builtin_convertvector(index, vb);
  if (lanes == W) return void(std::memcpy(to, &bytes, W));
#if defined(__AVX512F__)
  _mm_mask_storeu_epi8(to, __mmask16((1u << lanes) - 1), (__m128i)bytes);
#else
  for (int i = 0; i < lanes; ++i) to[i] = bytes[i];
#endif
}

template <class Lanes>
vi load_index(const uint8_t* from, Lanes lanes) {
  vb bytes{};
  if (lanes == W) {
    std::memcpy(&bytes, from, W);
    return __builtin_convertvector(bytes, vi);
  }
#if defined(__AVX512F__)
  bytes = (vb)_mm_maskz_loadu_epi8(__mmask16((1u << lanes) - 1), from);
#else
  for (int i = 0; i < lanes; ++i) bytes[i] = from[i];
#endif
  return __builtin_convertvector(bytes, vi);
}

// W / 2 of them, twice.
inline vi load_index_twice(const uint8_t* from) {
  vb bytes;
  std::memcpy(&bytes, from, W / 2);
  std::memcpy(reinterpret_cast<char*>(&bytes) + W / 2, from, W / 2);
  return __builtin_convertvector(bytes, vi);
}

inline void take_larger(vf v, int64_t cell, vf& best, vi& where) {
  const vi better = (v > best) | (v != v);
  best = better ? v : best;
  where = better ? vi{} + int32_t(cell) : where;
}

// Most windows are 2 x 2, side by side and all inside: below one row of those are two of pixels, in pairs.
bool is_pairs(const ct_pool_args& row) {
  const ct_conv_shape& s = row.shape;
  return s.kernel_h == 2 && s.kernel_w == 2 && s.stride_w == 2 && s.in_h == 2 && s.pad_left == 0 && s.out_w * 2 <= s.in_w &&
         row.index;
}

// Two windows at a time, where a pixel's channels fill half a vector; answers how many windows are done.
int64_t max_halves(const ct_pool_args& row, const Clamp& act) {
  const ct_conv_shape& s = row.shape;
  const float *above = row.x, *below = row.x + s.in_w * s.in_c;
  int64_t ow = 0;
  for (; ow + 2 <= s.out_w; ow += 2, above += 2 * W, below += 2 * W) {
    const vf a = load(above), b = load(above + W), c = load(below), d = load(below + W);
    vf best = low_halves(a, b);
    vi where{};
    take_larger(high_halves(a, b), 1, best, where);
    take_larger(low_halves(c, d), 2, best, where);
    take_larger(high_halves(c, d), 3, best, where);
    store(row.y + ow * s.in_c, activate(best, act));
    store_index(row.index + ow * s.in_c, where, Whole());
  }
  return ow;
}

void max_pairs(const ct_pool_args& row, const Clamp& act) {
  const ct_conv_shape& s = row.shape;
  const int64_t channels = s.in_c, below = s.in_w * channels;
  const int64_t done = kHasHalves && 2 * channels == W ? max_halves(row, act) : 0;
  const float* x = row.x + done * 2 * channels;
  float* y = row.y + done * channels;
  uint8_t* index = row.index + done * channels;
  for (int64_t ow = done; ow < s.out_w; ++ow, x += 2 * channels, y += channels, index += channels)
    each_vector(channels, [&](int64_t c, auto lanes) {
      vf best = load_some(x + c, lanes);
      vi where{};
      take_larger(load_some(x + channels + c, lanes), 1, best, where);
      take_larger(load_some(x + below + c, lanes), 2, best, where);
      take_larger(load_some(x + below + channels + c, lanes), 3, best, where);
      store_some(y + c, activate(best, act), lanes);
      store_index(index + c, where, lanes);
    });
}

void max_window(const ct_pool_args& t, const Window& w, const Clamp& act) {
  const ct_conv_shape& s = t.shape;
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    vf best = splat(-std::numeric_limits<float>::infinity());
    vi where = vi{} + int32_t(w.rows.begin * s.kernel_w + w.cols.begin);
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw)
        take_larger(load_some(t.x + w.input + (kh * s.in_w + kw) * s.in_c + c, lanes), kh * s.kernel_w + kw, best, where);
    store_some(t.y + w.output + c, activate(best, act), lanes);
    if (t.index) store_index(t.index + w.output + c, where, lanes);
  });
}

// Windows that neither overlap nor leave anything out: each output pixel writes its own cells.
bool windows_tile(const ct_conv_shape& s) {
  return s.kernel_h == s.stride_h && s.kernel_w == s.stride_w && s.out_h * s.stride_h - s.pad_top >= s.in_h &&
         s.out_w * s.stride_w - s.pad_left >= s.in_w;
}

// The same where a pixel's channels fill half a vector: both cells of a window's row are one.
template <bool Masked>
void scatter_halves(const ct_pool_args& row, const Clamp& act, const Clamp& out_mask) {
  const ct_conv_shape& s = row.shape;
  const int64_t outputs = s.out_w * s.in_c, below = s.in_w * s.in_c;
  const bool has_act = row.act != CT_ACT_NONE;
  vi left_right{};
  for (int i = W / 2; i < W; ++i) left_right[i] = 1;
  float* dx = row.dx;
  const float* y = row.out_mask_y;
  for (int64_t i = 0; i < outputs; i += W / 2, dx += W, y += Masked ? W : 0) {
    const vf dy = load_twice(row.dy + i), sent = has_act ? masked(dy, load_twice(row.y + i), act) : dy;
    const vi where = load_index_twice(row.index + i);
    const vf above = where == left_right ? sent : vf{}, under = where == left_right + 2 ? sent : vf{};
    store(dx, Masked ? masked(above, load(y), out_mask) : above);
    store(dx + below, Masked ? masked(under, load(y + below), out_mask) : under);
  }
}

template <bool Masked>
void scatter_pairs(const ct_pool_args& row, const Clamp& act, const Clamp& out_mask) {
  const ct_conv_shape& s = row.shape;
  const int64_t channels = s.in_c, below = s.in_w * channels, at[4] = {0, channels, below, below + channels};
  if (kHasHalves && 2 * channels == W) return scatter_halves<Masked>(row, act, out_mask);
  float* dx = row.dx;
  const float* y = row.out_mask_y;
  for (int64_t output = 0; output < s.out_w * channels; output += channels, dx += 2 * channels, y += Masked ? 2 * channels : 0)
    each_vector(channels, [&](int64_t c, auto lanes) {
      const vf dy = dy_at(row, act, output + c, lanes);
      const vi where = load_index(row.index + output + c, lanes);
#pragma GCC unroll 4
      for (int cell = 0; cell < 4; ++cell) {
        const vf v = where == vi{} + cell ? dy : vf{};
        store_some(dx + at[cell] + c, Masked ? masked(v, load_some(y + at[cell] + c, lanes), out_mask) : v, lanes);
      }
    });
}

template <class Lanes>
void put(const ct_pool_args& t, const Clamp& out_mask, int64_t at, vf v, Lanes lanes) {
  if (t.accumulate) v += load_some(t.dx + at, lanes);
  if (t.out_mask_y) v = masked(v, load_some(t.out_mask_y + at, lanes), out_mask);
  store_some(t.dx + at, v, lanes);
}

void send_back(const ct_pool_args& t, const Window& w, const Clamp& act, const Clamp& out_mask) {
  const ct_conv_shape& s = t.shape;
  each_vector(s.in_c, [&](int64_t c, auto lanes) {
    const vf dy = dy_at(t, act, w.output + c, lanes);
    const vi where = load_index(t.index + w.output + c, lanes);
    for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
      for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw) {
        const vf v = where == vi{} + int32_t(kh * s.kernel_w + kw) ? dy : vf{};
        put(t, out_mask, w.input + (kh * s.in_w + kw) * s.in_c + c, v, lanes);
      }
  });
}

// The row of outputs as a pool of its own, over those rows of the image that its windows meet.
ct_pool_args alone(const ct_pool_args& t, int64_t out_row) {
  const ct_conv_shape& s = t.shape;
  const RowsBelow below = rows_below(s, out_row);
  const int64_t output = out_row * s.out_w * s.in_c;
  ct_pool_args row = t;
  row.shape.batch = row.shape.out_h = 1, row.shape.in_h = below.count;
  row.shape.pad_top = cells_of(split(out_row, s.out_h).rest, s.stride_h, s.pad_top, s.kernel_h, s.in_h).begin;
  if (row.index) row.index += output;
  if (row.y) row.y += output;
  if (row.dy) row.dy += output;
  if (row.out_mask_y) row.out_mask_y += below.first * s.in_w * s.in_c;
  return row;
}

// Without indices the maxima are found again, one image at a time.
void max_pool_grad_again(const ct_pool_args& t, int64_t image) {
  const ct_conv_shape& s = t.shape;
  const Clamp act = clamp_of(t.act), out_mask = clamp_of(t.out_mask_act);
  const int64_t size = s.in_h * s.in_w * s.in_c;
  if (!t.accumulate) std::fill(t.dx + image * size, t.dx + (image + 1) * size, 0.0f);
  each_window(s, image * s.out_h, (image + 1) * s.out_h, [&](const Window& w) {
    for (int64_t c = 0; c < s.in_c; ++c) {
      int64_t where = -1;
      for (int64_t kh = w.rows.begin; kh < w.rows.end; ++kh)
        for (int64_t kw = w.cols.begin; kw < w.cols.end; ++kw) {
          const int64_t at = w.input + (kh * s.in_w + kw) * s.in_c + c;
          if (where < 0 || t.x[at] > t.x[where] || t.x[at] != t.x[at]) where = at;
        }
      if (where >= 0) t.dx[where] += dy_at(t, act, w.output + c, 1)[0];
    }
  });
  if (!t.out_mask_y) return;
  each_vector(size, [&](int64_t i, auto lanes) {
    const int64_t at = image * size + i;
    store_some(t.dx + at, masked(load_some(t.dx + at, lanes), load_some(t.out_mask_y + at, lanes), out_mask), lanes);
  });
}

}  // namespace

RowsBelow rows_below(const ct_conv_shape& s, int64_t out_row) {
  const Split row = split(out_row, s.out_h);
  const int64_t oh = row.rest, image = row.whole * s.in_h;
  const Range rows = cells_of(oh, s.stride_h, s.pad_top, s.kernel_h, s.in_h);
  return {image + oh * s.stride_h - s.pad_top + rows.begin, rows.count()};
}

void max_pool_row(const ct_pool_args& t, int64_t out_row, const float* rows) {
  ct_pool_args row = alone(t, out_row);
  row.x = rows;
  const Clamp act = clamp_of(t.act);
  if (is_pairs(row)) return max_pairs(row, act);
  each_window(row.shape, 0, 1, [&](const Window& w) { max_window(row, w, act); });
}

void scatter_row(const ct_pool_args& t, int64_t out_row, float* rows) {
  ct_pool_args row = alone(t, out_row);
  row.dx = rows;
  const ct_conv_shape& s = row.shape;
  if (s.out_w * s.stride_w - s.pad_left < s.in_w && !t.accumulate) zero_floats(rows, s.in_h * s.in_w * s.in_c);
  const Clamp act = clamp_of(t.act), out_mask = clamp_of(t.out_mask_act);
  if (is_pairs(row) && !t.accumulate) return (t.out_mask_y ? scatter_pairs<true> : scatter_pairs<false>)(row, act, out_mask);
  each_window(s, 0, 1, [&](const Window& w) { send_back(row, w, act, out_mask); });
}

int32_t max_pool(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const ct_conv_shape& s = t.shape;
  context.parallel(s.batch * s.out_h, forward_nanoseconds(s), [&](int, int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) max_pool_row(t, row, t.x + rows_below(s, row).first * s.in_w * s.in_c);
  });
  return CT_OK;
}

int32_t max_pool_grad(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_pool_args*>(opaque);
  const double work = double(in_pixels(t.shape)) * t.shape.in_c * 0.3;
  const Clamp act = clamp_of(t.act);
  if (!t.index) {
    context.parallel(t.shape.batch, work * 10, [&](int, int64_t begin, int64_t end) {
      for (int64_t n = begin; n < end; ++n) max_pool_grad_again(t, n);
    });
    return CT_OK;
  }
  if (windows_tile(t.shape)) {
    const ct_conv_shape& s = t.shape;
    context.parallel(s.batch * s.out_h, work, [&](int, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) scatter_row(t, row, t.dx + rows_below(s, row).first * s.in_w * s.in_c);
    });
    return CT_OK;
  }
  context.parallel(t.shape.batch * t.shape.in_h, work, [&](int, int64_t begin, int64_t end) {
    add_rows(t, begin, end, [&](int64_t at, int64_t, auto lanes) {
      const vf dy = dy_at(t, act, at, lanes);
      const vi where = load_index(t.index + at, lanes);
      return [dy, where](int64_t cell) { return where == vi{} + int32_t(cell) ? dy : vf{}; };
    });
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
