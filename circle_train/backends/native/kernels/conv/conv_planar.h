// Convolutions with few channels on both sides, whose vectors those would not fill: here a vector holds pixels of one channel.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// y = out_mask * act(conv(x, w) + b + (accumulate ? y : 0)); w as it lies, or turned round for the gradient of an input.
struct PlanarConv {
  ct_conv_shape s;
  const float* x;
  const float* w;
  bool turned;
  float* y;
  const float* b = nullptr;
  int32_t act = CT_ACT_NONE;
  const float* out_mask = nullptr;
  int32_t out_mask_act = CT_ACT_NONE;
  bool accumulate = false;
};

bool suits_planar(const ct_conv_shape& s);
int64_t planar_scratch(const PlanarConv& t, int workers);
void run_planar(Context& context, const PlanarConv& t);

}  // namespace CT_TIER
}  // namespace ct
