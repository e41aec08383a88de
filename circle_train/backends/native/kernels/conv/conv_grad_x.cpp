// CONV_2D's gradient for its input. Input pixels of one phase (position modulo the stride) see the same kernel taps, so each phase is
// one product of gathered dy against its taps' weights. With stride 1 there is one, a convolution with the kernel turned round.
#include "conv/conv_groups.h"
#include "conv/conv_planar.h"
#include "conv/conv_shape.h"
#include "vectors/stored.h"
#include "product/gemm.h"
#include "product/pack.h"
#include "windows/few_outputs.h"
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
  int64_t h0, w0;           // first pixel of the phase
  int64_t height, width;    // pixels of the phase in one image
  Taps rows, cols;
  int64_t inputs, outputs;  // channels of one group
  int64_t depth() const { return rows.count * cols.count * outputs; }
};

Phase phase_at(const ct_conv_grad_x_args& t, int64_t h0, int64_t w0) {
  const ct_conv_shape& s = t.shape;
  Phase p;
  p.t = &t, p.h0 = h0, p.w0 = w0;
  p.height = ceil_div(s.in_h - h0, s.stride_h), p.width = ceil_div(s.in_w - w0, s.stride_w);
  p.rows = Taps::of(s.kernel_h, s.stride_h, s.dilation_h, s.pad_top, h0);
  p.cols = Taps::of(s.kernel_w, s.stride_w, s.dilation_w, s.pad_left, w0);
  p.inputs = s.in_c / s.groups, p.outputs = s.out_c / s.groups;
  return p;
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

PlanarConv planar_of(const ct_conv_grad_x_args& t) {
  PlanarConv v{turned_shape(t.shape), t.dy, t.w, true, t.dx};
  v.out_mask = t.out_mask_y, v.out_mask_act = t.out_mask_act;
  v.accumulate = t.accumulate != 0;
  return v;
}

bool is_planar(const ct_conv_grad_x_args& t) {
  return turns_round(t) && !t.bf16 && suits_planar(turned_shape(t.shape)) && !suits_winograd(t.shape);
}

// Groups that have a faster way as convolutions of their own are put side by side; others are products of what lies apart.
bool lie_apart(const ct_conv_grad_x_args& t) {
  ct_conv_grad_x_args one = t;
  one.shape = one_group(t.shape);
  return t.shape.groups > 1 && !t.bf16 && !is_planar(one) && !suits_winograd(one.shape);
}

// Those that have pixels: a stride may be longer than the image.
template <class F>
void each_phase(const ct_conv_grad_x_args& t, F f) {
  const ct_conv_shape& s = t.shape;
  for (int64_t h = 0; h < std::min(s.stride_h, s.in_h); ++h)
    for (int64_t w = 0; w < std::min(s.stride_w, s.in_w); ++w) f(phase_at(t, h, w));
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

// Puts the phase's rows where its pixels are, with accumulation and the producer's mask: one group's channels, or all of them.
struct PhaseSink final : RowSink {
  const Phase* p;
  int64_t first, channels;
  void rows(int64_t m0, int64_t mc, const float* src, int64_t src_row) const override {
    const ct_conv_grad_x_args& t = *p->t;
    const ct_conv_shape& s = t.shape;
    const Clamp mask = clamp_of(t.out_mask_act);
    Pixel pixel = pixel_at(m0, p->height, p->width);
    for (int64_t i = 0; i < mc; ++i, advance(pixel, p->height, p->width)) {
      const int64_t h = p->h0 + pixel.h * s.stride_h, w = p->w0 + pixel.w * s.stride_w;
      put_gradient(t, mask, ((pixel.n * s.in_h + h) * s.in_w + w) * s.in_c + first, src ? src + i * src_row : nullptr, channels);
    }
  }
};

// The taps' weights as B(k = (tap, o), i), dense, of one group behind the other.
void gather_weights(Context& context, const Phase& p, float* to) {
  const ct_conv_shape& s = p.t->shape;
  const int64_t cell = s.kernel_h * s.kernel_w, depth = p.depth();
  context.parallel(s.groups * depth, double(s.groups) * depth * p.inputs * 0.2, [&](int, int64_t begin, int64_t end) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t tap = k % depth / p.outputs, o = k / depth * p.outputs + k % p.outputs;
      const int64_t from = p.rows.at(tap / p.cols.count) * s.kernel_w + p.cols.at(tap % p.cols.count);
      copy_floats(to + k * p.inputs, p.t->w + (o * cell + from) * p.inputs, p.inputs);
    }
  });
}

template <class F>
void with_phase(const Phase& p, int64_t group, const float* weights, F f) {
  const ct_conv_grad_x_args& t = *p.t;
  const ct_conv_shape shape = shape_of(p);
  Windows windows;
  windows.s = &shape;
  windows.channels = p.outputs;
  windows.x = t.dy + group * p.outputs;
  PhaseSink sink;
  sink.p = &p;
  sink.first = lie_apart(t) ? 0 : group * p.inputs, sink.channels = lie_apart(t) ? t.shape.in_c : p.inputs;
  RowsProduct product;
  product.m = t.shape.batch * p.height * p.width, product.n = p.inputs, product.k = p.depth();
  if (reads_pixels(t.shape)) {
    product.a = windows.x, product.a_row = shape.in_c;
  } else {
    product.source = &windows;
  }
  if (turns_round(t)) {
    product.c = t.dx + group * p.inputs, product.c_row = t.shape.in_c;
    product.out_mask = t.out_mask_y ? t.out_mask_y + group * p.inputs : nullptr, product.out_mask_act = t.out_mask_act;
    product.accumulate = t.accumulate != 0;
  } else {
    product.sink = &sink;
  }
  product.b = weights + group * p.depth() * p.inputs, product.b_row = p.inputs;
  product.bf16 = t.bf16;
  f(product);
}

auto grouped(const Phase& p, const float* weights) {
  const ct_conv_shape& s = p.t->shape;
  const auto with = [&p, weights](int64_t group, auto f) { with_phase(p, group, weights, f); };
  const auto reach = [&p, shape = shape_of(p)](int64_t first, int64_t rows) { return reach_of(shape, p.t->dy, first, rows); };
  return GroupedRows(s.groups, s.out_c + s.in_c, with, reach);
}

// All of a phase's pixels to where they belong: zeros where no tap reaches them (NULL).
void put_phase(Context& context, const Phase& p, const float* pixels) {
  constexpr int64_t kPixels = 256;
  const ct_conv_shape& s = p.t->shape;
  const int64_t count = s.batch * p.height * p.width;
  context.parallel(ceil_div(count, kPixels), double(count) * s.in_c * 0.2, [&](int, int64_t begin, int64_t end) {
    const int64_t first = begin * kPixels;
    PhaseSink sink;
    sink.p = &p, sink.first = 0, sink.channels = s.in_c;
    sink.rows(first, std::min(end * kPixels, count) - first, pixels ? pixels + first * s.in_c : nullptr, s.in_c);
  });
}

// A phase by itself is a convolution of dy. Where it has hardly any channels, dots make its pixels aside, from weights turned.
struct Thin {
  Thin(const Phase& phase, char* scratch) : p(phase) {
    conv.x = p.t->dy, conv.shape = shape_of(p), conv.bf16 = p.t->bf16;
    Carver carver(scratch);
    conv.w = turned = carver.take<float>(p.depth() * p.inputs);
    conv.y = carver.take<float>(out_pixels(conv.shape) * p.inputs);
    size = carver.used();
  }
  bool suits() const { return p.depth() > 0 && has_few_outputs(conv); }
  void run(Context& context, const float* weights) const {
    transpose(weights, p.inputs, p.depth(), p.inputs, turned, p.depth());
    run_few_outputs(context, conv), put_phase(context, p, conv.y);
  }
  const Phase& p;
  ct_conv_args conv{};
  float* turned;
  int64_t size;
};

int64_t phase_scratch(const Phase& p, int threads) {
  Carver carver(nullptr);
  carver.take<float>(p.t->shape.groups * p.depth() * p.inputs);
  int64_t bytes = 0;
  if (const Thin thin(p, nullptr); thin.suits()) return carver.used() + thin.size;
  if (lie_apart(*p.t)) return carver.used() + grouped(p, nullptr).scratch(threads);
  with_phase(p, 0, nullptr, [&](const RowsProduct& product) { bytes = rows_scratch(product, threads); });
  return carver.used() + bytes;
}

void run_phase(Context& context, const Phase& p) {
  if (p.depth() == 0 && !turns_round(*p.t)) return put_phase(context, p, nullptr);
  const int64_t groups = p.t->shape.groups;
  Carver carver(context.scratch());
  float* const weights = carver.take<float>(groups * p.depth() * p.inputs);
  char* const rest = context.scratch() + carver.used();
  gather_weights(context, p, weights);
  if (const Thin thin(p, rest); thin.suits()) return thin.run(context, weights);
  if (lie_apart(*p.t)) return grouped(p, weights).run(context, rest);
  for (int64_t g = 0; g < groups; ++g)
    with_phase(p, g, weights, [&](const RowsProduct& product) { run_rows(context, product, rest); });
}

WinogradConv winograd_of(const ct_conv_grad_x_args& t) {
  WinogradConv v{turned_shape(t.shape), t.dy, t.w, true, t.dx};
  v.out_mask = t.out_mask_y, v.out_mask_act = t.out_mask_act;
  v.accumulate = t.accumulate != 0;
  return v;
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
  if (t.shape.groups > 1 && !t.bf16 && !lie_apart(t)) return groups_scratch(t, threads);
  if (is_pointwise(t.shape)) {
    const ct_matmul_args m = pointwise(t);
    return matmul_scratch(&m, threads);
  }
  if (is_planar(t)) return planar_scratch(planar_of(t), threads);
  if (turns_round(t) && !t.bf16 && suits_winograd(t.shape)) return winograd_scratch(winograd_of(t), threads);
  if (lie_side_by_side(t.shape)) return side_by_side_scratch(t, threads);
  int64_t most = 0;
  each_phase(t, [&](const Phase& p) { most = std::max(most, phase_scratch(p, threads)); });
  return most;
}

int32_t conv_grad_x(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_grad_x_args*>(opaque);
  if (!has_inputs(t.shape)) return CT_OK;
  if (t.stored.x && !is_pointwise(t.shape)) return run_widened(context, t, &ct_conv_grad_x_args::w, conv_grad_x);
  if (t.shape.groups > 1 && !t.bf16 && !lie_apart(t)) return run_groups(context, t);
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
  each_phase(t, [&](const Phase& p) { run_phase(context, p); });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
