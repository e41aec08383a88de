// Reading images through a convolution window.
#pragma once

#include "activation.h"
#include "kernel.h"

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

inline bool is_pointwise(const ct_conv_shape& s) {
  return s.kernel_h == 1 && s.kernel_w == 1 && s.stride_h == 1 && s.stride_w == 1 && s.pad_top == 0 && s.pad_left == 0 &&
         s.groups == 1 && s.out_h == s.in_h && s.out_w == s.in_w;
}

inline int64_t out_pixels(const ct_conv_shape& s) { return s.batch * s.out_h * s.out_w; }
inline int64_t in_pixels(const ct_conv_shape& s) { return s.batch * s.in_h * s.in_w; }

// Short copies dominate here (3 to 64 channels): no call, whole vectors where there are any.
inline void copy_floats(float* to, const float* from, int64_t n) {
  each_vector(n, [&](int64_t i, int lanes) { store_some(to + i, load_some(from + i, lanes), lanes); });
}
inline void zero_floats(float* to, int64_t n) {
  each_vector(n, [&](int64_t i, int lanes) { store_some(to + i, vf{}, lanes); });
}

}  // namespace CT_TIER
}  // namespace ct
