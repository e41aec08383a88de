// Rows of images with few channels, and the windows over them.
#pragma once

#include <algorithm>
#include <cstring>

#include "conv/conv_shape.h"
#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

constexpr int kFewCells = 36;     // floats of a window: few are gathered into one sum, more are summed kernel row by kernel row
constexpr int kShortRun = 16;     // floats of a kernel row that are gathered
constexpr int kFour = 4;
constexpr int64_t kApart = 1024;  // floats: a page each, so that no worker's stores take a line, or its neighbour, from another

inline bool is_narrow(const ct_conv_shape& s) {
  return s.groups == 1 && s.dilation_w == 1 && s.in_c > 0 && s.in_c <= CT_NARROW_CHANNELS && s.kernel_w > 1 && s.out_c >= kFour;
}

// Pixels between the first and the last that an output row reads, padding included.
inline int64_t row_pixels(const ct_conv_shape& s) { return (s.out_w - 1) * s.stride_w + s.kernel_w; }
inline bool is_padded(const ct_conv_shape& s) { return s.pad_left != 0 || row_pixels(s) > s.in_w; }
inline int64_t run_floats(const ct_conv_shape& s) { return s.kernel_w * s.in_c; }
inline int64_t window_floats(const ct_conv_shape& s) { return s.kernel_h * run_floats(s); }
inline bool gathers(const ct_conv_shape& s) { return window_floats(s) <= kFewCells && run_floats(s) <= kShortRun; }
// Room for one image row with its padding, or, to gather from, for as many as the kernel has, `row_step` apart.
inline int64_t row_step(const ct_conv_shape& s) { return round_up(row_pixels(s) * s.in_c + kFour, 16); }
inline int64_t row_floats(const ct_conv_shape& s) {
  return gathers(s) ? round_up(s.kernel_h * row_step(s), kApart) : is_padded(s) ? round_up(row_pixels(s) * s.in_c, kApart) : 0;
}
inline int64_t gathered_floats(const ct_conv_shape& s) { return gathers(s) ? round_up(s.out_w * window_floats(s) + kFour, kApart) : 0; }

// The image row under kernel row kh of an output row; NULL where that is padding.
inline const float* image_row(const ct_conv_shape& s, const float* x, int64_t out_row, int64_t kh) {
  const int64_t h = out_row % s.out_h * s.stride_h - s.pad_top + kh * s.dilation_h;
  return h < 0 || h >= s.in_h ? nullptr : x + (out_row / s.out_h * s.in_h + h) * s.in_w * s.in_c;
}

inline void pad_row(const ct_conv_shape& s, const float* row, float* to) {
  const int64_t left = std::min(s.pad_left, row_pixels(s));
  const int64_t inside = std::min(s.in_w, row_pixels(s) - left), right = row_pixels(s) - left - inside;
  zero_floats(to, left * s.in_c);
  copy_floats(to + left * s.in_c, row, inside * s.in_c);
  zero_floats(to + (left + inside) * s.in_c, right * s.in_c);
}

// f(kh, the image row under it with its padding) for the kernel rows that meet the image.
template <class F>
inline void each_kernel_row(const ct_conv_shape& s, const float* x, int64_t out_row, float* padded, F f) {
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    const float* const row = image_row(s, x, out_row, kh);
    if (!row) continue;
    if (is_padded(s)) pad_row(s, row, padded);
    f(kh, is_padded(s) ? padded : row);
  }
}

// The windows of an output row, each in one piece. Copies are whole fours: what they write too much the next overwrites.
template <int Fours>
void gather_windows(const ct_conv_shape& s, const float* rows, float* windows) {
  const int64_t run = run_floats(s), row = row_step(s), step = s.stride_w * s.in_c;
  for (int64_t i = 0; i < s.out_w; ++i, rows += step)
    for (int64_t kh = 0; kh < s.kernel_h; ++kh, windows += run) std::memcpy(windows, rows + kh * row, Fours * kFour * sizeof(float));
}

inline void gather_windows(const ct_conv_shape& s, const float* x, int64_t out_row, float* rows, float* windows) {
  for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
    float* const to = rows + kh * row_step(s);
    const float* const row = image_row(s, x, out_row, kh);
    row ? pad_row(s, row, to) : zero_floats(to, row_pixels(s) * s.in_c);
  }
  using Gather = void (*)(const ct_conv_shape&, const float*, float*);
  constexpr Gather by_fours[kShortRun / kFour] = {gather_windows<1>, gather_windows<2>, gather_windows<3>, gather_windows<4>};
  by_fours[(run_floats(s) - 1) / kFour](s, rows, windows);
}

}  // namespace CT_TIER
}  // namespace ct
