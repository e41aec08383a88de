#include "conv/conv_groups.h"

#include <algorithm>

#include "conv/conv_shape.h"
#include "run/table.h"

namespace ct {
namespace CT_TIER {
namespace {

constexpr int64_t kPixels = 512;  // copied at a time

// f(from row, to row) over pixels, some of each of which is `count` floats.
template <class F>
void each_pixel(Context& context, int64_t pixels, int64_t count, F f) {
  context.parallel(ceil_div(pixels, kPixels), double(pixels) * (count * 0.3 + 3), [&](int, int64_t begin, int64_t end) {
    for (int64_t i = begin * kPixels; i < std::min(end * kPixels, pixels); ++i) f(i);
  });
}

void take_channels(Context& context, const float* from, int64_t row, int64_t pixels, int64_t count, float* to) {
  each_pixel(context, pixels, count, [&](int64_t i) { copy_floats(to + i * count, from + i * row, count); });
}

// What the two halves of a group's work hold, and where its own memory begins.
struct Halves {
  float* x;
  float* y;
  int64_t used;
};

Halves carve(char* base, const ct_conv_shape& one) {
  Carver carver(base);
  float* const x = carver.take<float>(in_pixels(one) * one.in_c);
  float* const y = carver.take<float>(out_pixels(one) * one.out_c);
  return {x, y, carver.used()};
}

int64_t weights_of(const ct_conv_shape& one) { return one.out_c * one.kernel_h * one.kernel_w * one.in_c; }

// Every group alike, in the memory `h`; only the parameters' places move.
ct_conv_args group_of(const ct_conv_args& t, const Halves& h, int64_t g) {
  ct_conv_args one = t;
  one.shape = one_group(t.shape);
  one.x = h.x, one.y = h.y, one.add = nullptr;
  one.w = t.w + g * weights_of(one.shape);
  one.b = t.b ? t.b + g * one.shape.out_c : nullptr;
  one.act = t.add ? int32_t(CT_ACT_NONE) : t.act;
  return one;
}

ct_conv_grad_x_args group_of(const ct_conv_grad_x_args& t, const Halves& h, int64_t g) {
  ct_conv_grad_x_args one = t;
  one.shape = one_group(t.shape);
  one.dy = h.y, one.dx = h.x, one.w = t.w + g * weights_of(one.shape);
  one.out_mask_y = nullptr, one.out_mask_act = CT_ACT_NONE, one.accumulate = 0;
  return one;
}

ct_conv_grad_w_args group_of(const ct_conv_grad_w_args& t, const Halves& h, int64_t g) {
  ct_conv_grad_w_args one = t;
  one.shape = one_group(t.shape);
  one.dy = h.y, one.x = h.x;
  one.w = shifted(t.w, g * weights_of(one.shape));
  one.b = shifted(t.b, g * one.shape.out_c);
  return one;
}

// Many groups are shared out, each a worker's own from end to end; of few, every one is computed by all workers.
bool is_shared_out(const ct_conv_shape& s, int workers) { return workers > 1 && s.groups >= 2 * workers; }

template <class Args>
int64_t own_scratch(const Args& t, int workers, int64_t (*inner)(const void*, int)) {
  const Halves h = carve(nullptr, one_group(t.shape));
  const Args one = group_of(t, h, 0);
  return round_up(h.used + inner(&one, workers), CT_ALIGNMENT);
}

template <class Args>
int64_t scratch_of(const Args& t, int workers, int64_t (*inner)(const void*, int)) {
  return is_shared_out(t.shape, workers) ? own_scratch(t, 1, inner) * workers : own_scratch(t, workers, inner);
}

// f(context, group), the context being one worker's where groups are shared out.
template <class Args, class F>
void each_group(Context& context, const Args& t, int64_t (*inner)(const void*, int), F f) {
  const ct_conv_shape& s = t.shape;
  if (!is_shared_out(s, context.workers())) {
    for (int64_t g = 0; g < s.groups; ++g) f(context, g);
    return;
  }
  const int64_t own = own_scratch(t, 1, inner);
  const double work = double(out_pixels(s)) * s.out_c * (s.kernel_h * s.kernel_w * (s.in_c / s.groups) / 50.0 + 1);
  context.parallel(s.groups, work, [&](int worker, int64_t begin, int64_t end) {
    Context alone(nullptr, context.scratch() + worker * own);
    for (int64_t g = begin; g < end; ++g) f(alone, g);
  });
}

}  // namespace

ct_update shifted(const ct_update& update, int64_t offset) {
  ct_update part = update;
  if (part.g) part.g += offset;
  if (part.w) part.w += offset;
  if (part.m) part.m += offset;
  if (part.v) part.v += offset;
  if (part.a) part.a += offset;
  if (part.unit) part.unit += offset / part.unit_each;
  return part;
}

int64_t groups_scratch(const ct_conv_args& t, int threads) { return scratch_of(t, threads, conv_scratch); }
int64_t groups_scratch(const ct_conv_grad_x_args& t, int threads) { return scratch_of(t, threads, conv_grad_x_scratch); }
int64_t groups_scratch(const ct_conv_grad_w_args& t, int threads) { return scratch_of(t, threads, conv_grad_w_scratch); }

int32_t run_groups(Context& all, const ct_conv_args& t) {
  const ct_conv_shape& s = t.shape;
  const int64_t inputs = s.in_c / s.groups, outputs = s.out_c / s.groups;
  const Clamp clamp = clamp_of(t.act);
  each_group(all, t, conv_scratch, [&](Context& context, int64_t g) {
    const Halves h = carve(context.scratch(), one_group(s));
    Context inner = context.behind(h.used);
    take_channels(context, t.x + g * inputs, s.in_c, in_pixels(s), inputs, h.x);
    const ct_conv_args one = group_of(t, h, g);
    conv(inner, &one);
    each_pixel(context, out_pixels(s), outputs, [&](int64_t i) {
      float* const y = t.y + i * s.out_c + g * outputs;
      if (!t.add) return copy_floats(y, h.y + i * outputs, outputs);
      const float* const add = t.add + i * s.out_c + g * outputs;
      each_vector(outputs, [&](int64_t j, auto lanes) {
        store_some(y + j, activate(load_some(h.y + i * outputs + j, lanes) + load_some(add + j, lanes), clamp), lanes);
      });
    });
  });
  return CT_OK;
}

int32_t run_groups(Context& all, const ct_conv_grad_x_args& t) {
  const ct_conv_shape& s = t.shape;
  const int64_t inputs = s.in_c / s.groups, outputs = s.out_c / s.groups;
  const Clamp mask = clamp_of(t.out_mask_act);
  each_group(all, t, conv_grad_x_scratch, [&](Context& context, int64_t g) {
    const Halves h = carve(context.scratch(), one_group(s));
    Context inner = context.behind(h.used);
    take_channels(context, t.dy + g * outputs, s.out_c, out_pixels(s), outputs, h.y);
    const ct_conv_grad_x_args one = group_of(t, h, g);
    conv_grad_x(inner, &one);
    each_pixel(context, in_pixels(s), inputs, [&](int64_t i) {
      put_gradient(t, mask, i * s.in_c + g * inputs, h.x + i * inputs, inputs);
    });
  });
  return CT_OK;
}

int32_t run_groups(Context& all, const ct_conv_grad_w_args& t) {
  const ct_conv_shape& s = t.shape;
  const int64_t inputs = s.in_c / s.groups, outputs = s.out_c / s.groups;
  each_group(all, t, conv_grad_w_scratch, [&](Context& context, int64_t g) {
    const Halves h = carve(context.scratch(), one_group(s));
    Context inner = context.behind(h.used);
    take_channels(context, t.x + g * inputs, s.in_c, in_pixels(s), inputs, h.x);
    take_channels(context, t.dy + g * outputs, s.out_c, out_pixels(s), outputs, h.y);
    const ct_conv_grad_w_args one = group_of(t, h, g);
    conv_grad_w(inner, &one);
  });
  return CT_OK;
}

}  // namespace CT_TIER
}  // namespace ct
