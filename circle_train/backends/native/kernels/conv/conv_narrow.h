// Convolutions of images with few channels: a kernel row of a window lies in one piece, so that tiles read the image itself. Small
// windows are gathered, an output row's at a time. Rows can go to and come from a MAX_POOL (see conv_pool in table.h).
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

bool is_narrow(const ct_conv_args& t);
int64_t narrow_scratch(const ct_conv_args& t, int workers);
void run_narrow(Context& context, const ct_conv_args& t);

bool is_narrow(const ct_conv_grad_w_args& t);
int64_t narrow_scratch(const ct_conv_grad_w_args& t, int workers);
void run_narrow(Context& context, const ct_conv_grad_w_args& t);

}  // namespace CT_TIER
}  // namespace ct
