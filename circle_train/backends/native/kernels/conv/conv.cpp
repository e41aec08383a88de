// CONV_2D forward: a product whose rows are windows of the image, gathered block by block.
#include "conv/conv_narrow.h"
#include "conv/conv_groups.h"
#include "conv/conv_planar.h"
#include "conv/conv_shape.h"
#include "vectors/stored.h"
#include "product/gemm.h"
#include "windows/few_outputs.h"
#include "winograd/winograd.h"

namespace ct {
namespace CT_TIER {
namespace {

RowsProduct product_of(const ct_conv_args& t, int64_t group) {
  const ct_conv_shape& s = t.shape;
  const int64_t outputs = s.out_c / s.groups, inputs = s.in_c / s.groups;
  RowsProduct p;
  p.m = out_pixels(s), p.n = outputs, p.k = s.kernel_h * s.kernel_w * inputs;
  p.a = t.x + group * inputs, p.a_row = s.in_c;
  p.b = t.w + group * outputs * p.k, p.b_row = 1, p.b_col = p.k;
  p.stored = t.stored.x ? &t.stored : nullptr;
  p.panels = t.panels;
  p.c = t.y + group * outputs, p.c_row = s.out_c;
  p.bias = t.b ? t.b + group * outputs : nullptr;
  p.add = t.add ? t.add + group * outputs : nullptr;
  p.act = t.act;
  p.bf16 = t.bf16;
  return p;
}

template <class F>
void with_group(const ct_conv_args& t, int64_t group, F f) {
  RowsProduct p = product_of(t, group);
  Windows windows;
  windows.s = &t.shape;
  windows.channels = t.shape.in_c / t.shape.groups;
  windows.x = t.x + group * windows.channels;
  if (!reads_pixels(t.shape)) p.source = &windows;
  f(p);
}

WinogradConv winograd_of(const ct_conv_args& t) {
  WinogradConv v{t.shape, t.x, t.w, false, t.y};
  v.bias = t.b, v.add = t.add, v.act = t.act;
  v.panels = t.panels;
  return v;
}

PlanarConv planar_of(const ct_conv_args& t) {
  PlanarConv v{t.shape, t.x, t.w, false, t.y};
  v.b = t.b, v.act = t.act;
  return v;
}

bool is_planar(const ct_conv_args& t) {
  return !has_few_outputs(t) && suits_planar(t.shape) && !suits_winograd(t.shape) && !t.add && !t.bf16;
}

// Groups that have a faster way as convolutions of their own are put side by side; others are products of what lies apart.
bool lies_apart(const ct_conv_args& t) {
  ct_conv_args one = t;
  one.shape = one_group(t.shape);
  return t.shape.groups > 1 && !t.bf16 && !has_few_outputs(one) && !is_planar(one) && !is_narrow(one) && !suits_winograd(one.shape);
}

auto grouped(const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  const auto with = [&t](int64_t group, auto f) { with_group(t, group, f); };
  const auto reach = [&t](int64_t first, int64_t rows) { return reach_of(t.shape, t.x, first, rows); };
  return GroupedRows(s.groups, s.out_c + s.stride_h * s.stride_w * s.in_c, with, reach);
}

// Whether weights are packed into panels as they lie: a plain product's.
bool packs_panels(const ct_conv_args& t) {
  return t.shape.groups == 1 && !t.bf16 && !has_few_outputs(t) && !is_planar(t) && !is_narrow(t) && !suits_winograd(t.shape);
}

// Whether what Winograd's products read of the weights may be made once.
bool keeps_points(const ct_conv_args& t) {
  return t.shape.groups == 1 && !t.bf16 && !t.stored.x && !is_planar(t) && !is_narrow(t) && suits_winograd(t.shape);
}

}  // namespace

int64_t conv_scratch(const void* opaque, int threads) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  if (!has_outputs(t.shape)) return 0;
  if (t.stored.x && !packs_panels(t)) return widened_scratch(t, threads, conv_scratch);
  if (lies_apart(t)) return grouped(t).scratch(threads);
  if (t.shape.groups > 1 && !t.bf16) return groups_scratch(t, threads);
  if (has_few_outputs(t)) return 0;
  if (is_planar(t)) return planar_scratch(planar_of(t), threads);
  if (is_narrow(t) && !t.bf16) return narrow_scratch(t, threads);
  if (suits_winograd(t.shape) && !t.bf16) return winograd_scratch(winograd_of(t), threads);
  int64_t bytes = 0;
  with_group(t, 0, [&](const RowsProduct& p) { bytes = rows_scratch(p, threads); });
  return bytes;
}

int32_t conv(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  if (!has_outputs(t.shape)) return CT_OK;
  if (t.stored.x && !packs_panels(t)) return run_widened(context, t, &ct_conv_args::w, conv);
  if (lies_apart(t)) {
    grouped(t).run(context, context.scratch());
    return CT_OK;
  }
  if (t.shape.groups > 1 && !t.bf16) return run_groups(context, t);
  if (has_few_outputs(t)) {
    run_few_outputs(context, t);
    return CT_OK;
  }
  if (is_planar(t)) {
    run_planar(context, planar_of(t));
    return CT_OK;
  }
  if (is_narrow(t) && !t.bf16) {
    run_narrow(context, t);
    return CT_OK;
  }
  if (suits_winograd(t.shape) && !t.bf16) {
    run_winograd(context, winograd_of(t));
    return CT_OK;
  }
  for (int64_t g = 0; g < t.shape.groups; ++g)
    with_group(t, g, [&](const RowsProduct& p) { run_rows(context, p, context.scratch()); });
  return CT_OK;
}

int64_t conv_panels_scratch(const void* opaque, int) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  if (!has_outputs(t.shape)) return 0;
  if (keeps_points(t)) return winograd_panel_bytes(winograd_of(t));
  if (!packs_panels(t)) return 0;
  int64_t bytes = 0;
  with_group(t, 0, [&](const RowsProduct& p) { bytes = panel_bytes(p); });
  return bytes;
}

int32_t conv_panels(Context& context, const void* opaque) {
  const auto& t = *static_cast<const ct_conv_args*>(opaque);
  if (conv_panels_scratch(opaque, context.workers()) == 0) return CT_OK;
  float* const panels = reinterpret_cast<float*>(context.scratch());
  if (keeps_points(t)) {
    keep_winograd_panels(winograd_of(t), panels);
  } else {
    with_group(t, 0, [&](const RowsProduct& p) { keep_panels(context, p, panels); });
  }
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
