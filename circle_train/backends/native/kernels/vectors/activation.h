// Fused activations, and the masks their gradients multiply by (seen from the output y).
#pragma once

#include <limits>

#include "vectors/simd.h"
#include "vectors/vecmath.h"

namespace ct {
namespace CT_TIER {

// NONE and the RELU family are one clamp; the others are curves.
struct Clamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  int32_t curve = CT_ACT_NONE;
};

inline bool is_curve(int32_t act) { return act == CT_ACT_TANH || act == CT_ACT_SWISH || act == CT_ACT_HARD_SWISH; }

inline Clamp clamp_of(int32_t act) {
  Clamp c;
  if (act == CT_ACT_RELU || act == CT_ACT_RELU6) c.low = 0;
  if (act == CT_ACT_RELU6) c.high = 6;
  if (act == CT_ACT_RELU_N1_TO_1) c.low = -1, c.high = 1;
  if (is_curve(act)) c.curve = act;
  return c;
}

inline vf hard_swish(vf x) { return x < splat(3.0f) ? x * at_least(x + 3.0f, vf{}) * (1.0f / 6.0f) : x; }
// x / (1 + e^-x), which is 0 from where a float's exponent ends.
inline vf swish(vf x) {
  const vf y = x / (1.0f + exp_of_moderate(-at_most(at_least(x, splat(-87.0f)), splat(87.0f))));
  return x < splat(-87.0f) ? vf{} : y;
}

// Apart, so that its constants take no registers from the loops that clamp.
__attribute__((noinline, cold)) inline vf activate_curve(vf v, int32_t act) {
  return act == CT_ACT_TANH ? tanh(v) : act == CT_ACT_SWISH ? swish(v) : hard_swish(v);
}

// A curve over what has just been written and is near: no sum waits for it, and its constants are loaded once.
__attribute__((noinline)) inline void bend(int32_t act, float* y, int64_t rows, int64_t cols, int64_t row) {
  const auto each = [&](auto f) {
    for (int64_t i = 0; i < rows; ++i, y += row)
      each_vector(cols, [&](int64_t j, auto lanes) { store_some(y + j, f(load_some(y + j, lanes)), lanes); });
  };
  if (act == CT_ACT_TANH) each([](vf v) { return tanh(v); });
  if (act == CT_ACT_SWISH) each([](vf v) { return swish(v); });
  if (act == CT_ACT_HARD_SWISH) each([](vf v) { return hard_swish(v); });
}
// What of an activation is left to do for sums that are bent afterwards.
inline int32_t unbent(int32_t act) { return is_curve(act) ? int32_t(CT_ACT_NONE) : act; }

inline vf activate(vf v, const Clamp& c) {
  if (c.curve) return activate_curve(v, c.curve);
  return at_most(at_least(v, splat(c.low)), splat(c.high));
}

// dy * act'(y) for all but TANH. For NONE the interval is everything, NaN included.
inline vf masked_by_range(vf dy, vf y, const Clamp& c) {
  return ((y <= splat(c.low)) | (y >= splat(c.high))) ? vf{} : dy;
}
inline vf masked(vf dy, vf y, const Clamp& c) { return c.curve ? dy * (1.0f - y * y) : masked_by_range(dy, y, c); }

}  // namespace CT_TIER
}  // namespace ct
