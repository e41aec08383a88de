// 3x3 convolutions with stride 1 by Winograd's products (winograd_points.h), their input and weight gradients.
#pragma once

#include "activation.h"
#include "kernel.h"

namespace ct {
namespace CT_TIER {

// y = mask(act(conv(x, w) + bias + add + (accumulate ? y : 0)))
struct WinogradConv {
  ct_conv_shape shape;
  const float* x;
  const float* w;
  bool turned;                    // w is (inputs, 3, 3, outputs), to be turned round; otherwise (outputs, 3, 3, inputs)
  float* y;
  const float* bias = nullptr;
  const float* add = nullptr;
  const float* out_mask = nullptr;
  int32_t act = CT_ACT_NONE;
  int32_t out_mask_act = CT_ACT_NONE;
  bool accumulate = false;
};

int64_t winograd_scratch(const WinogradConv& t, int workers);
void run_winograd(Context& context, const WinogradConv& t);

int64_t winograd_scratch(const ct_conv_grad_w_args& t, int workers);
void run_winograd(Context& context, const ct_conv_grad_w_args& t);

// Whether the products and transforms are less work than the plain sum; transforming one weight is that of so many products.
// What becomes of an image must not depend on how many others there are: only sums over images may look at the batch's size.
constexpr int64_t kSupposedBatch = 4;
constexpr double kWeightCost = 192, kWeightGradCost = 256;
bool suits_winograd(const ct_conv_shape& s, int64_t batch = kSupposedBatch, double weight_cost = kWeightCost);

}  // namespace CT_TIER
}  // namespace ct
