// CONV_2D forward: a product whose rows are windows of the image, gathered block by block.
#include <algorithm>

#include "conv_shape.h"
#include "gemm.h"
#include "table.h"

namespace ct {
namespace CT_TIER {
namespace {

// Row m is output pixel m, column (kh, kw, c) what the window's cell holds (0 outside the image).
struct Windows final : RowSource {
  const float* x;
  const ct_conv_shape* s;
  int64_t channels;  // of one group

  void rows(int64_t m0, int64_t mc, int64_t k0, int64_t kc, float* dst) const override {
    Pixel p = pixel_at(m0, s->out_h, s->out_w);
    for (int64_t i = 0; i < mc; ++i, advance(p, s->out_h, s->out_w)) row(p, k0, kc, dst + i * kc);
  }

 private:
  // One kernel row's cells lie side by side in the image when nothing separates them.
  bool joined() const { return s->dilation_w == 1 && channels == s->in_c; }

  void row(const Pixel& p, int64_t k0, int64_t kc, float* dst) const {
    const int64_t h0 = p.h * s->stride_h - s->pad_top, w0 = p.w * s->stride_w - s->pad_left;
    const float* const image = x + p.n * s->in_h * s->in_w * s->in_c;
    const bool wide = joined() && w0 >= 0 && w0 + s->kernel_w <= s->in_w;
    const int64_t run = wide ? s->kernel_w * channels : channels;
    for (int64_t k = k0; k < k0 + kc;) {
      const int64_t within = k % run, count = std::min(run - within, k0 + kc - k);
      const int64_t kh = k / (s->kernel_w * channels);
      const int64_t kw = wide ? 0 : k / channels % s->kernel_w;
      const int64_t h = h0 + kh * s->dilation_h, w = w0 + kw * s->dilation_w;
      float* const to = dst + (k - k0);
      if (h < 0 || h >= s->in_h || w < 0 || w >= s->in_w) {
        zero_floats(to, count);
      } else {
        copy_floats(to, image + (h * s->in_w + w) * s->in_c + within, count);
      }
      k += count;
    }
  }
};

RowsProduct product_of(const ct_conv_args& t, int64_t group) {
  const ct_conv_shape& s = t.shape;
  const int64_t outputs = s.out_c / s.groups, inputs = s.in_c / s.groups;
  RowsProduct p;
  p.m = out_pixels(s), p.n = outputs, p.k = s.kernel_h * s.kernel_w * inputs;
  p.a = t.x, p.a_row = s.in_c;
  p.b = t.w + group * outputs * p.k, p.b_row = 1, p.b_col = p.k;
  p.c = t.y + group * outputs, p.c_row = s.out_c;
  p.bias = t.b ? t.b + group * outputs : nullptr;
  p.add = t.add ? t.add + group * outputs : nullptr;
  p.act = t.act;
  return p;
}

template <class F>
void with_group(const ct_conv_args& t, int64_t group, F f) {
  RowsProduct p = product_of(t, group);
  Windows windows;
  windows.s = &t.shape;
  windows.channels = t.shape.in_c / t.shape.groups;
  windows.x = t.x + group * windows.channels;
  if (!is_pointwise(t.shape)) p.source = &windows;
  f(p);
}

}  // namespace

int64_t conv_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  int64_t bytes = 0;
  with_group(t, 0, [&](const RowsProduct& p) { bytes = rows_scratch(p, threads); });
  return bytes;
}

int32_t conv(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  for (int64_t g = 0; g < t.shape.groups; ++g)
    with_group(t, g, [&](const RowsProduct& p) { run_rows(context, p, context.scratch()); });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
