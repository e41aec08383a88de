#include "windows/side_by_side.h"

#include "conv/conv_shape.h"
#include "product/gemm.h"

namespace ct {
namespace CT_TIER {
namespace {

struct WindowSink final : RowSink {
  const ct_conv_grad_x_args* t;
  void rows(int64_t m0, int64_t mc, const float* src, int64_t src_row) const override {
    const ct_conv_shape& s = t->shape;
    const Clamp mask = clamp_of(t->out_mask_act);
    const int64_t run = s.kernel_w * s.in_c;
    Pixel pixel = pixel_at(m0, s.out_h, s.out_w);
    for (int64_t i = 0; i < mc; ++i, advance(pixel, s.out_h, s.out_w))
      for (int64_t kh = 0; kh < s.kernel_h; ++kh) {
        const int64_t row = pixel.n * s.in_h + pixel.h * s.kernel_h + kh;
        put_gradient(*t, mask, (row * s.out_w + pixel.w) * run, src + i * src_row + kh * run, run);
      }
  }
};

template <class F>
void with_product(const ct_conv_grad_x_args& t, F f) {
  const ct_conv_shape& s = t.shape;
  WindowSink sink;
  sink.t = &t;
  RowsProduct p;
  p.m = out_pixels(s), p.n = s.kernel_h * s.kernel_w * s.in_c, p.k = s.out_c;
  p.a = t.dy, p.a_row = s.out_c;
  p.b = t.w, p.b_row = p.n;
  p.sink = &sink;
  p.bf16 = t.bf16;
  f(p);
}

}  // namespace

bool lie_side_by_side(const ct_conv_shape& s) {
  return s.groups == 1 && s.kernel_h == s.stride_h && s.kernel_w == s.stride_w && s.dilation_h == 1 && s.dilation_w == 1 &&
         s.pad_top == 0 && s.pad_left == 0 && s.in_h == s.out_h * s.stride_h && s.in_w == s.out_w * s.stride_w;
}

int64_t side_by_side_scratch(const ct_conv_grad_x_args& t, int workers) {
  int64_t bytes = 0;
  with_product(t, [&](const RowsProduct& p) { bytes = rows_scratch(p, workers); });
  return bytes;
}

void run_side_by_side(Context& context, const ct_conv_grad_x_args& t) {
  with_product(t, [&](const RowsProduct& p) { run_rows(context, p, context.scratch()); });
}

}  // namespace CT_TIER
}  // namespace ct
