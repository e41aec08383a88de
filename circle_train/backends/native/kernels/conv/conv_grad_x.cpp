// CONV_2D's gradient for its input. With stride 1 it is a convolution with the kernel turned round. In general, input pixels of
// one phase (position modulo the stride) see the same kernel taps, so each phase is one product of gathered dy against its
// taps' weights.
#include <algorithm>

#include "conv/conv_groups.h"
#include "conv/conv_planar.h"
#include "conv/conv_shape.h"
#include "vectors/stored.h"
#include "product/gemm.h"
#include "windows/side_by_side.h"
#include "winograd/winograd.h"

namespace ct {
namespace CT_TIER {
namespace {

// The kernel positions that reach pixels congruent to `phase` along one axis, from the last to the first: tap i of pixel p of the
// phase meets dy at p + lead + i*ahead.
struct Taps {
  int64_t count = 0;
  int64_t first = 0;  // tap i is kernel position first - i*step
  int64_t step = 1;
  int64_t lead = 0, ahead = 1;
  static Taps of(int64_t kernel, int64_t stride, int64_t dilation, int64_t pad, int64_t phase) {
    Taps t;
    for (int64_t k = kernel - 1; k >= 0; --k) {
      if ((phase + pad - k * dilation) % stride != 0) continue;
      if (t.count == 0) t.first = k;
      if (t.count == 1) t.step = t.first - k;
      ++t.count;
    }
    t.lead = (phase + pad - t.first * dilation) / stride;
    t.ahead = t.count > 1 ? t.step * dilation / stride : 1;
    return t;
  }
  int64_t at(int64_t i) const { return first - i * step; }
};

struct Phase {
  const ct_conv_grad_x_args* t;
  int64_t group, h0, w0;    // first pixel of the phase
  int64_t height, width;    // pixels of the phase in one image
  Taps rows, cols;
  int64_t inputs, outputs;  // channels of one group
  int64_t depth() const { return rows.count * cols.count * outputs; }
};

Phase phase_at(const ct_conv_grad_x_args& t, int64_t group, int64_t h0, int64_t w0) {
  const ct_conv_shape& s = t.shape;
  Phase p;
  p.t = &t, p.group = group, p.h0 = h0, p.w0 = w0;
  p.height = ceil_div(s.in_h - h0, s.stride_h), p.width = ceil_div(s.in_w - w0, s.stride_w);
  p.rows = Taps::of(s.kernel_h, s.stride_h, s.dilation_h, s.pad_top, h0);
  p.cols = Taps::of(s.kernel_w, s.stride_w, s.dilation_w, s.pad_left, w0);
  p.inputs = s.in_c / s.groups, p.outputs = s.out_c / s.groups;
  return p;
}

// Those that have pixels: a stride may be longer than the image.
template <class F>
void each_phase(const ct_conv_grad_x_args& t, int64_t group, F f) {
  const ct_conv_shape& s = t.shape;
  for (int64_t h = 0; h < std::min(s.stride_h, s.in_h); ++h)
    for (int64_t w = 0; w < std::min(s.stride_w, s.in_w); ++w) f(phase_at(t, group, h, w));
}

// What a phase reads of dy are the windows of a convolution with stride 1.
ct_conv_shape shape_of(const Phase& p) {
  const ct_conv_shape& s = p.t->shape;
  ct_conv_shape r = s;
  r.in_h = s.out_h, r.in_w = s.out_w, r.in_c = s.out_c;
  r.out_h = p.height, r.out_w = p.width, r.out_c = s.in_c;
  r.kernel_h = p.rows.count, r.kernel_w = p.cols.count;
  r.stride_h = r.stride_w = 1;
  r.dilation_h = p.rows.ahead, r.dilation_w = p.cols.ahead;
  r.pad_top = -p.rows.lead, r.pad_left = -p.cols.lead;
  return r;
}

// Puts the phase's rows where its pixels are, with accumulation and the producer's mask.
struct PhaseSink final : RowSink {
  const Phase* p;
  void rows(int64_t m0, int64_t mc, const float* src, int64_t src_row) const override {
    const ct_conv_grad_x_args& t = *p->t;
    const ct_conv_shape& s = t.shape;
    const Clamp mask = clamp_of(t.out_mask_act);
    Pixel pixel = pixel_at(m0, p->height, p->width);
    for (int64_t i = 0; i < mc; ++i, advance(pixel, p->height, p->width)) {
      const int64_t h = p->h0 + pixel.h * s.stride_h, w = p->w0 + pixel.w * s.stride_w;
      const int64_t at = ((pixel.n * s.in_h + h) * s.in_w + w) * s.in_c + p->group * p->inputs;
      put_gradient(t, mask, at, src ? src + i * src_row : nullptr, p->inputs);
    }
  }
};

// The taps' weights as B(k = (tap, o), i), dense.
void gather_weights(Context& context, const Phase& p, float* to) {
  const ct_conv_shape& s = p.t->shape;
  const int64_t cell = s.kernel_h * s.kernel_w, depth = p.depth();
  context.parallel(depth, double(depth) * p.inputs * 0.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t tap = k / p.outputs, o = k % p.outputs;
      const int64_t from = p.rows.at(tap / p.cols.count) * s.kernel_w + p.cols.at(tap % p.cols.count);
      copy_floats(to + k * p.inputs, p.t->w + ((p.group * p.outputs + o) * cell + from) * p.inputs, p.inputs);
    }
  });
}

template <class F>
void with_phase(const Phase& p, F f) {
  const ct_conv_grad_x_args& t = *p.t;
  const ct_conv_shape shape = shape_of(p);
  Windows windows;
  windows.s = &shape;
  windows.channels = p.outputs;
  windows.x = t.dy + p.group * p.outputs;
  PhaseSink sink;
  sink.p = &p;
  RowsProduct product;
  product.m = t.shape.batch * p.height * p.width, product.n = p.inputs, product.k = p.depth();
  product.source = &windows, product.sink = &sink;
  product.b_row = p.inputs;
  product.bf16 = t.bf16;
  f(product, sink);
}

void run_phase(Context& context, const Phase& p) {
  Carver carver(context.scratch());
  float* const weights = carver.take<float>(p.depth() * p.inputs);
  with_phase(p, [&](RowsProduct& product, const PhaseSink& sink) {
    if (p.depth() == 0) return sink.rows(0, product.m, nullptr, 0);
    gather_weights(context, p, weights);
    product.b = weights;
    run_rows(context, product, context.scratch() + carver.used());
  });
}

// With stride 1 the gradient is a convolution of dy with the kernel turned round.
bool turns_round(const ct_conv_grad_x_args& t) { return t.shape.stride_h == 1 && t.shape.stride_w == 1; }

ct_conv_shape turned_shape(const ct_conv_shape& s) {
  ct_conv_shape r = s;
  r.in_h = s.out_h, r.in_w = s.out_w, r.in_c = s.out_c;
  r.out_h = s.in_h, r.out_w = s.in_w, r.out_c = s.in_c;
  r.pad_top = (s.kernel_h - 1) * s.dilation_h - s.pad_top;
  r.pad_left = (s.kernel_w - 1) * s.dilation_w - s.pad_left;
  return r;
}

// The kernel turned round as B(k = (kh, kw, o), i), dense.
void turn_weights(Context& context, const ct_conv_grad_x_args& t, int64_t group, float* to) {
  const ct_conv_shape& s = t.shape;
  const int64_t cells = s.kernel_h * s.kernel_w, outputs = s.out_c / s.groups, inputs = s.in_c / s.groups;
  context.parallel(cells * outputs, double(cells) * outputs * inputs * 0.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t cell = cells - 1 - k / outputs, o = group * outputs + k % outputs;
      copy_floats(to + k * inputs, t.w + (o * cells + cell) * inputs, inputs);
    }
  });
}

template <class F>
void with_turned(const ct_conv_grad_x_args& t, int64_t group, F f) {
  const ct_conv_shape shape = turned_shape(t.shape);
  const int64_t inputs = t.shape.in_c / t.shape.groups, outputs = t.shape.out_c / t.shape.groups;
  Windows windows;
  windows.s = &shape;
  windows.channels = outputs;
  windows.x = t.dy + group * outputs;
  RowsProduct p;
  p.m = out_pixels(shape), p.n = inputs, p.k = shape.kernel_h * shape.kernel_w * outputs;
  p.source = &windows;
  p.b_row = inputs;
  p.c = t.dx + group * inputs, p.c_row = shape.out_c;
  p.out_mask = t.out_mask_y ? t.out_mask_y + group * inputs : nullptr;
  p.out_mask_act = t.out_mask_act;
  p.accumulate = t.accumulate != 0;
  p.bf16 = t.bf16;
  f(p);
}

void run_turned(Context& context, const ct_conv_grad_x_args& t, int64_t group) {
  with_turned(t, group, [&](RowsProduct& p) {
    Carver carver(context.scratch());
    float* const weights = carver.take<float>(p.k * p.n);
    turn_weights(context, t, group, weights);
    p.b = weights;
    run_rows(context, p, context.scratch() + carver.used());
  });
}

WinogradConv winograd_of(const ct_conv_grad_x_args& t) {
  WinogradConv v{turned_shape(t.shape), t.dy, t.w, true, t.dx};
  v.out_mask = t.out_mask_y, v.out_mask_act = t.out_mask_act;
  v.accumulate = t.accumulate != 0;
  return v;
}

PlanarConv planar_of(const ct_conv_grad_x_args& t) {
  PlanarConv v{turned_shape(t.shape), t.dy, t.w, true, t.dx};
  v.out_mask = t.out_mask_y, v.out_mask_act = t.out_mask_act;
  v.accumulate = t.accumulate != 0;
  return v;
}

bool is_planar(const ct_conv_grad_x_args& t) {
  return turns_round(t) && !t.bf16 && suits_planar(turned_shape(t.shape)) && !suits_winograd(t.shape);
}

// The pointwise case is the plain product on tensors as they lie.
ct_matmul_args pointwise(const ct_conv_grad_x_args& t) {
  const ct_conv_shape& s = t.shape;
  ct_matmul_args m{};
  m.a = t.dy, m.b = t.w, m.c = t.dx;
  m.out_mask_y = t.out_mask_y, m.out_mask_act = t.out_mask_act;
  m.batch0 = m.batch1 = 1;
  m.m = in_pixels(s), m.n = s.in_c, m.k = s.out_c;
  m.a_row = s.out_c, m.a_col = 1, m.b_row = s.in_c, m.b_col = 1, m.c_row = s.in_c;
  m.alpha = 1;
  m.accumulate = t.accumulate;
  m.bf16 = t.bf16;
  m.stored = t.stored;
  return m;
}

}  // namespace

int64_t conv_grad_x_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_grad_x_args*>(opaque);
  if (!has_inputs(t.shape)) return 0;
  if (t.stored.x && !is_pointwise(t.shape)) return widened_scratch(t, threads, conv_grad_x_scratch);
  if (t.shape.groups > 1 && !t.bf16) return groups_scratch(t, threads);
  if (is_pointwise(t.shape)) {
    const ct_matmul_args m = pointwise(t);
    return matmul_scratch(&m, threads);
  }
  if (is_planar(t)) return planar_scratch(planar_of(t), threads);
  if (turns_round(t) && !t.bf16 && suits_winograd(t.shape)) return winograd_scratch(winograd_of(t), threads);
  if (lie_side_by_side(t.shape)) return side_by_side_scratch(t, threads);
  int64_t most = 0;
  if (turns_round(t)) {
    with_turned(t, 0, [&](const RowsProduct& p) {
      Carver carver(nullptr);
      carver.take<float>(p.k * p.n);
      most = carver.used() + rows_scratch(p, threads);
    });
    return most;
  }
  each_phase(t, 0, [&](const Phase& p) {
    with_phase(p, [&](RowsProduct& product, const PhaseSink&) {
      Carver carver(nullptr);
      carver.take<float>(p.depth() * p.inputs);
      most = std::max(most, carver.used() + rows_scratch(product, threads));
    });
  });
  return most;
}

int32_t conv_grad_x(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_grad_x_args*>(opaque);
  if (!has_inputs(t.shape)) return CT_OK;
  if (t.stored.x && !is_pointwise(t.shape)) return run_widened(context, t, &ct_conv_grad_x_args::w, conv_grad_x);
  if (t.shape.groups > 1 && !t.bf16) return run_groups(context, t);
  if (is_pointwise(t.shape)) {
    const ct_matmul_args m = pointwise(t);
    return matmul(context, &m);
  }
  if (is_planar(t)) {
    run_planar(context, planar_of(t));
    return CT_OK;
  }
  if (turns_round(t) && !t.bf16 && suits_winograd(t.shape)) {
    run_winograd(context, winograd_of(t));
    return CT_OK;
  }
  if (lie_side_by_side(t.shape)) {
    run_side_by_side(context, t);
    return CT_OK;
  }
  for (int64_t g = 0; g < t.shape.groups && turns_round(t); ++g) run_turned(context, t, g);
  if (turns_round(t)) return CT_OK;
  for (int64_t g = 0; g < t.shape.groups; ++g) each_phase(t, g, [&](const Phase& p) { run_phase(context, p); });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
