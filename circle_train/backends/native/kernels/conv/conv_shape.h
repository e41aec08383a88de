// Reading images through a convolution window.
#pragma once

#include <algorithm>

#include "vectors/activation.h"
#include "windows/grouped_rows.h"
#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

struct Pixel {
  int64_t n, h, w;
};

inline Pixel pixel_at(int64_t index, int64_t height, int64_t width) {
  return {index / (height * width), index / width % height, index % width};
}

inline void advance(Pixel& p, int64_t height, int64_t width) {
  if (++p.w < width) return;
  p.w = 0;
  if (++p.h < height) return;
  p.h = 0;
  ++p.n;
}

struct Between {
  int64_t begin, end;
};

// The outputs of begin..end whose window's cell lies `offset` after where output 0 begins, and inside.
inline Between inside(Between outputs, int64_t offset, int64_t stride, int64_t size) {
  const int64_t begin = offset < 0 ? ceil_div(-offset, stride) : 0, end = offset < size ? (size - 1 - offset) / stride + 1 : 0;
  return {std::max(outputs.begin, begin), std::min(outputs.end, end)};
}

// Whether windows are the pixels themselves.
inline bool reads_pixels(const ct_conv_shape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 && s.pad_left == 0 &&
         s.out_h == s.in_h && s.out_w == s.in_w;
}
inline bool is_pointwise(const ct_conv_shape& s) { return reads_pixels(s) && s.groups == 1; }

inline ct_conv_shape one_group(const ct_conv_shape& s) {
  ct_conv_shape one = s;
  one.in_c = s.in_c / s.groups, one.out_c = s.out_c / s.groups, one.groups = 1;
  return one;
}

inline int64_t out_pixels(const ct_conv_shape& s) { return s.batch * s.out_h * s.out_w; }
inline int64_t in_pixels(const ct_conv_shape& s) { return s.batch * s.in_h * s.in_w; }
inline bool has_outputs(const ct_conv_shape& s) { return out_pixels(s) > 0 && s.out_c > 0; }
inline bool has_inputs(const ct_conv_shape& s) { return in_pixels(s) > 0 && s.in_c > 0; }

// Short copies dominate here (3 to 64 channels): no call, whole vectors where there are any.
inline void copy_floats(float* to, const float* from, int64_t n) {
  each_vector(n, [&](int64_t i, auto lanes) { store_some(to + i, load_some(from + i, lanes), lanes); });
}
inline void zero_floats(float* to, int64_t n) {
  each_vector(n, [&](int64_t i, auto lanes) { store_some(to + i, vf{}, lanes); });
}

// dx = mask(src + (accumulate ? dx : 0)) for n numbers at `at`; src may be NULL.
inline void put_gradient(const ct_conv_grad_x_args& t, const Clamp& mask, int64_t at, const float* src, int64_t n) {
  each_vector(n, [&](int64_t j, auto lanes) {
    vf v = src ? load_some(src + j, lanes) : vf{};
    if (t.accumulate) v += load_some(t.dx + at + j, lanes);
    if (t.out_mask_y) v = masked(v, load_some(t.out_mask_y + at + j, lanes), mask);
    store_some(t.dx + at + j, v, lanes);
  });
}

// The image rows under `count` output pixels.
inline Reach reach_of(const ct_conv_shape& s, const float* x, int64_t first, int64_t count) {
  const Pixel from = pixel_at(first, s.out_h, s.out_w), to = pixel_at(first + count - 1, s.out_h, s.out_w);
  const auto row = [&](int64_t n, int64_t h) { return x + (n * s.in_h + std::clamp<int64_t>(h, 0, s.in_h)) * s.in_w * s.in_c; };
  const int64_t below = (s.kernel_h - 1) * s.dilation_h + 1;
  return {row(from.n, from.h * s.stride_h - s.pad_top), row(to.n, to.h * s.stride_h - s.pad_top + below)};
}

// The matrix of windows: row m is output pixel m, column (kh, kw, c) what the window's cell holds (0 outside the image).
struct Windows final : RowSource, PanelSource {
  const float* x;
  const ct_conv_shape* s;
  int64_t channels;  // of one group

  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst, int64_t dst_row) const override {
    const int64_t cell = k0 / channels;
    const Cell first{cell / s->kernel_w, cell % s->kernel_w, k0 % channels};
    const bool all = k0 == 0 && kc == s->kernel_h * s->kernel_w * channels, joined = s->dilation_w == 1 && channels == s->in_c;
    if (all && !joined) return cells(m0, mc, dst, dst_row);
    Pixel p = pixel_at(m0, s->out_h, s->out_w);
    for (int64_t i = 0; i < mc; ++i, advance(p, s->out_h, s->out_w)) {
      const int64_t h0 = p.h * s->stride_h - s->pad_top, w0 = p.w * s->stride_w - s->pad_left;
      const float* const image = x + p.n * s->in_h * s->in_w * s->in_c;
      if (all && is_inside(h0, w0)) {
        whole_row(image + (h0 * s->in_w + w0) * s->in_c, dst + i * dst_row);
      } else {
        row(image, h0, w0, first, kc, dst + i * dst_row);
      }
    }
  }

  void panels(int64_t k0, int64_t kc, int64_t c0, int64_t cols, int64_t width, float* dst) const override {
    for (int64_t j = 0; j < cols; j += width, dst += kc * width) {
      const int64_t n = std::min(width, cols - j);
      if (n < width) zero_floats(dst, kc * width);
      rows(k0, kc, c0 + j, n, dst, width);
    }
  }

 private:
  struct Cell {
    int64_t kh, kw, c;
  };

  bool is_inside(int64_t h0, int64_t w0) const {
    return h0 >= 0 && h0 + (s->kernel_h - 1) * s->dilation_h < s->in_h && w0 >= 0 && w0 + s->kernel_w <= s->in_w;
  }

  // A window that touches no padding, each kernel row one piece: with few channels this is most of the work.
  void whole_row(const float* from, float* to) const {
    const int64_t run = s->kernel_w * channels, step = s->dilation_h * s->in_w * s->in_c;
    for (int64_t kh = 0; kh < s->kernel_h; ++kh, from += step, to += run) copy_floats(to, from, run);
  }

  // Whole windows whose cells lie apart, cell by cell: each is a stretch of pixels along an image row.
  void cells(int64_t m0, int64_t mc, float* dst, int64_t dst_row) const {
    int64_t count = 0;
    for (int64_t done = 0; done < mc; done += count, dst += count * dst_row) {
      const Pixel p = pixel_at(m0 + done, s->out_h, s->out_w);
      count = std::min(mc - done, s->out_w - p.w);
      const float* const image = x + p.n * s->in_h * s->in_w * s->in_c;
      float* to = dst;
      for (int64_t kh = 0; kh < s->kernel_h; ++kh)
        for (int64_t kw = 0; kw < s->kernel_w; ++kw, to += channels) {
          const int64_t h = p.h * s->stride_h - s->pad_top + kh * s->dilation_h, w = p.w * s->stride_w - s->pad_left + kw * s->dilation_w;
          Between in = inside({0, count}, w, s->stride_w, s->in_w);
          if (h < 0 || h >= s->in_h || in.begin >= in.end) in = {count, count};
          pixels(nullptr, {0, in.begin}, to, dst_row);
          pixels(image + (h * s->in_w + w) * s->in_c, in, to, dst_row);
          pixels(nullptr, {in.end, count}, to, dst_row);
        }
    }
  }

  // Channels of pixels a stride apart; NULL: zeros.
  void pixels(const float* from, Between range, float* to, int64_t dst_row) const {
    const int64_t step = s->stride_w * s->in_c;
    for (int64_t i = range.begin; i < range.end && channels == W; ++i) store(to + i * dst_row, from ? load(from + i * step) : vf{});
    for (int64_t i = range.begin; i < range.end && channels != W; ++i)
      each_vector(channels, [&](int64_t j, auto lanes) {
        store_some(to + i * dst_row + j, from ? load_some(from + i * step + j, lanes) : vf{}, lanes);
      });
  }

  void row(const float* image, int64_t h0, int64_t w0, Cell at, int64_t left, float* to) const {
    // One kernel row's cells lie side by side in the image when nothing separates them and none is padding.
    const bool joined = s->dilation_w == 1 && channels == s->in_c && w0 >= 0 && w0 + s->kernel_w <= s->in_w;
    while (left > 0) {
      const int64_t cells = joined ? s->kernel_w - at.kw : 1;
      const int64_t count = std::min(cells * channels - at.c, left);
      const int64_t h = h0 + at.kh * s->dilation_h, w = w0 + at.kw * s->dilation_w;
      if (h < 0 || h >= s->in_h || w < 0 || w >= s->in_w) {
        zero_floats(to, count);
      } else {
        copy_floats(to, image + (h * s->in_w + w) * s->in_c + at.c, count);
      }
      to += count;
      left -= count;
      at.c = 0;
      at.kw += cells;
      if (at.kw == s->kernel_w) at.kw = 0, ++at.kh;
    }
  }
};

}  // namespace CT_TIER
}  // namespace ct
