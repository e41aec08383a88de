// Gradients of convolutions' weights where channels would not fill vectors: those hold outputs, and the image is read number by number.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

bool suits_outs(const ct_conv_grad_w_args& t);
int64_t outs_scratch(const ct_conv_grad_w_args& t, int workers);
void run_outs(Context& context, const ct_conv_grad_w_args& t);

}  // namespace CT_TIER
}  // namespace ct
