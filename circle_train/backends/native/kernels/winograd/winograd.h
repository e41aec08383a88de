// 3x3 convolutions with stride 1 by Winograd's products (winograd_points.h), and their input gradients.
// Weight gradients are plain sums: one that is 0 for lack of terms must be 0, or Adam would make a step of its noise.
#pragma once

#include "vectors/activation.h"
#include "run/kernel.h"

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
  const float* panels = nullptr;  // where given: the weights' points as keep_winograd_panels has left them
};

int64_t winograd_scratch(const WinogradConv& t, int workers);
void run_winograd(Context& context, const WinogradConv& t);
// The weights' points, four times their memory. Bytes: 0 where they are many, or little work beside the products.
int64_t winograd_panel_bytes(const WinogradConv& t);
void keep_winograd_panels(const WinogradConv& t, float* panels);

// Whether the products and transforms are less work than the plain sum; not by the batch's size, as what becomes of an image
// must not depend on how many others there are.
bool suits_winograd(const ct_conv_shape& s);

}  // namespace CT_TIER
}  // namespace ct
