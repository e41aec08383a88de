// Fused activations, and the masks their gradients multiply by (seen from the output y).
#pragma once

#include <limits>

#include "vectors/simd.h"
#include "vectors/vecmath.h"

namespace ct {
namespace CT_TIER {

// NONE and the RELU family are one clamp; TANH is apart.
struct Clamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();
  bool tanh = false;
};

inline Clamp clamp_of(int32_t act) {
  Clamp c;
  if (act == CT_ACT_RELU || act == CT_ACT_RELU6) c.low = 0;
  if (act == CT_ACT_RELU6) c.high = 6;
  if (act == CT_ACT_RELU_N1_TO_1) c.low = -1, c.high = 1;
  c.tanh = act == CT_ACT_TANH;
  return c;
}

// Apart, so that its constants take no registers from the loops that clamp.
__attribute__((noinline, cold)) inline vf activate_tanh(vf v) { return tanh(v); }

inline vf activate(vf v, const Clamp& c) {
  if (c.tanh) return activate_tanh(v);
  return at_most(at_least(v, splat(c.low)), splat(c.high));
}

// dy * act'(y) for all but TANH. For NONE the interval is everything, NaN included.
inline vf masked_by_range(vf dy, vf y, const Clamp& c) {
  return ((y <= splat(c.low)) | (y >= splat(c.high))) ? vf{} : dy;
}
inline vf masked(vf dy, vf y, const Clamp& c) { return c.tanh ? dy * (1.0f - y * y) : masked_by_range(dy, y, c); }

}  // namespace CT_TIER
}  // namespace ct
