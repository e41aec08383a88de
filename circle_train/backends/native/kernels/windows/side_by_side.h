// Input gradients (and transposed convolutions) of windows that lie side by side, without a gap or padding: one product of dy and the
// weights as they lie, whose rows are whole windows of dx.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

bool lie_side_by_side(const ct_conv_shape& s);
int64_t side_by_side_scratch(const ct_conv_grad_x_args& t, int workers);
void run_side_by_side(Context& context, const ct_conv_grad_x_args& t);

}  // namespace CT_TIER
}  // namespace ct
