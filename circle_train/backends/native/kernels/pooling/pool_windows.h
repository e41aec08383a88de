// The windows of pools over images, and gradients that gather: each input pixel adds what the windows over it send back.
#pragma once

#include <algorithm>

#include "conv/conv_shape.h"

namespace ct {
namespace CT_TIER {

struct Range {
  int64_t begin, end;
  int64_t count() const { return end - begin; }
};

// The window positions of output `o` that lie inside the image.
inline Range cells_of(int64_t o, int64_t stride, int64_t pad, int64_t kernel, int64_t size) {
  const int64_t first = o * stride - pad;
  const int64_t begin = std::max<int64_t>(0, -first);
  return {begin, std::max(begin, std::min(kernel, size - first))};
}

// The outputs whose window covers input `i`.
inline Range outputs_of(int64_t i, int64_t stride, int64_t pad, int64_t kernel, int64_t outputs) {
  const int64_t low = i + pad - kernel + 1;
  const int64_t begin = low <= 0 ? 0 : ceil_div(low, stride);
  return {begin, std::max(begin, std::min(outputs, (i + pad) / stride + 1))};
}

struct Window {
  int64_t input;   // offset of the window's corner cell (0, 0), possibly outside the image
  int64_t output;
  Range rows, cols;
};

// f(window) for every output pixel of rows begin..end (rows counted over the batch).
template <class F>
void each_window(const ct_conv_shape& s, int64_t begin, int64_t end, F f) {
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = r / s.out_h, oh = r % s.out_h;
    const Range rows = cells_of(oh, s.stride_h, s.pad_top, s.kernel_h, s.in_h);
    for (int64_t ow = 0; ow < s.out_w; ++ow) {
      const Range cols = cells_of(ow, s.stride_w, s.pad_left, s.kernel_w, s.in_w);
      const int64_t h0 = oh * s.stride_h - s.pad_top, w0 = ow * s.stride_w - s.pad_left;
      f(Window{((n * s.in_h + h0) * s.in_w + w0) * s.in_c, (r * s.out_w + ow) * s.in_c, rows, cols});
    }
  }
}

inline double forward_nanoseconds(const ct_conv_shape& s) { return double(out_pixels(s)) * s.in_c * s.kernel_h * s.kernel_w * 0.1; }

template <class Lanes>
vf dy_at(const ct_pool_args& t, const Clamp& act, int64_t at, Lanes lanes) {
  const vf dy = load_some(t.dy + at, lanes);
  return t.act == CT_ACT_NONE ? dy : masked(dy, load_some(t.y + at, lanes), act);
}

// dx of every pixel of rows begin..end: a row adds up what the windows over it send back, one after the other. sent(output offset, window's
// cells inside, lanes) answers what goes to a cell, as a function of it.
template <class Sent>
void add_rows(const ct_pool_args& t, int64_t begin, int64_t end, Sent sent) {
  const ct_conv_shape& s = t.shape;
  const Clamp out_mask = clamp_of(t.out_mask_act);
  for (int64_t r = begin; r < end; ++r) {
    const int64_t n = r / s.in_h, h = r % s.in_h, size = s.in_w * s.in_c;
    float* const row = t.dx + r * size;
    if (!t.accumulate) zero_floats(row, size);
    const Range ohs = outputs_of(h, s.stride_h, s.pad_top, s.kernel_h, s.out_h);
    for (int64_t oh = ohs.begin; oh < ohs.end; ++oh) {
      const int64_t height = cells_of(oh, s.stride_h, s.pad_top, s.kernel_h, s.in_h).count();
      const int64_t first_cell = (h + s.pad_top - oh * s.stride_h) * s.kernel_w;
      for (int64_t ow = 0; ow < s.out_w; ++ow) {
        const Range cols = cells_of(ow, s.stride_w, s.pad_left, s.kernel_w, s.in_w);
        float* const corner = row + (ow * s.stride_w - s.pad_left + cols.begin) * s.in_c;
        each_vector(s.in_c, [&](int64_t c, auto lanes) {
          const auto to = sent(((n * s.out_h + oh) * s.out_w + ow) * s.in_c + c, height * cols.count(), lanes);
          float* at = corner + c;
          for (int64_t kw = cols.begin; kw < cols.end; ++kw, at += s.in_c) store_some(at, load_some(at, lanes) + to(first_cell + kw), lanes);
        });
      }
    }
    if (!t.out_mask_y) continue;
    const float* const y = t.out_mask_y + r * size;
    each_vector(size, [&](int64_t i, auto lanes) {
      store_some(row + i, masked(load_some(row + i, lanes), load_some(y + i, lanes), out_mask), lanes);
    });
  }
}

}  // namespace CT_TIER
}  // namespace ct
