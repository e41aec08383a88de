// CONV_2D's gradients for weights and bias: dy^T against gathered windows, summed over pixels.
#include "conv/conv_cells.h"
#include "conv/conv_groups.h"
#include "conv/conv_narrow.h"
#include "conv/conv_outs.h"
#include "conv/conv_shape.h"
#include "product/dense.h"
#include "product/gemm.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

template <class F>
void with_group(const ct_conv_grad_w_args& t, int64_t group, F f) {
  const ct_conv_shape& s = t.shape;
  const int64_t outputs = s.out_c / s.groups, inputs = s.in_c / s.groups;
  const DenseMatrix dy(t.dy + group * outputs, s.out_c);
  Windows windows;
  windows.x = t.x + group * inputs, windows.s = &s, windows.channels = inputs;
  const int64_t size = s.kernel_h * s.kernel_w * inputs;
  SumProduct p;
  p.k = out_pixels(s);
  p.bf16 = t.bf16;
  // Gathering windows into more than one panel would take them apart.
  p.transposed = size <= 12 && suits_transposed(outputs, size);
  if (p.transposed) {
    p.m = size, p.n = outputs;
    p.a = &windows, p.b = &dy;
    p.b_dense = dy.x, p.b_row = s.out_c;
  } else {
    p.m = outputs, p.n = size;
    p.a = &dy, p.b = &windows;
    p.a_dense = dy.bf16 || s.groups != 1 ? nullptr : dy.x;
  }
  const ct_update w = shifted(t.w, group * outputs * size), b = shifted(t.b, group * outputs);
  p.w = t.has_w ? &w : nullptr;
  p.bias = t.has_b ? &b : nullptr;
  f(p);
}

ct_matmul_grad_w_args pointwise(const ct_conv_grad_w_args& t) {
  return {t.dy, t.x, out_pixels(t.shape), t.shape.out_c, t.shape.in_c, t.w, t.b, t.has_w, t.has_b, t.bf16, {}};
}

}  // namespace

int64_t conv_grad_w_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_grad_w_args*>(opaque);
  if (t.shape.groups > 1 && !t.bf16 && !suits_cells(t)) return groups_scratch(t, threads);
  if (is_pointwise(t.shape)) {
    const ct_matmul_grad_w_args m = pointwise(t);
    return matmul_grad_w_scratch(&m, threads);
  }
  if (suits_cells(t)) return cells_scratch(t, threads);
  if (suits_outs(t)) return outs_scratch(t, threads);
  if (is_narrow(t) && !t.bf16) return narrow_scratch(t, threads);
  int64_t bytes = 0;
  with_group(t, 0, [&](const SumProduct& p) { bytes = sum_scratch(p, threads); });
  return bytes;
}

int32_t conv_grad_w(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_grad_w_args*>(opaque);
  if (t.shape.groups > 1 && !t.bf16 && !suits_cells(t)) return run_groups(context, t);
  if (is_pointwise(t.shape)) {
    const ct_matmul_grad_w_args m = pointwise(t);
    return matmul_grad_w(context, &m);
  }
  if (suits_cells(t)) {
    run_cells(context, t);
    return CT_OK;
  }
  if (suits_outs(t)) {
    run_outs(context, t);
    return CT_OK;
  }
  if (is_narrow(t) && !t.bf16) {
    run_narrow(context, t);
    return CT_OK;
  }
  for (int64_t g = 0; g < t.shape.groups; ++g)
    with_group(t, g, [&](const SumProduct& p) { run_sum(context, p, context.scratch()); });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
