// Convolutions of groups: the channels of each are put side by side, and it is an ordinary convolution.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

int64_t groups_scratch(const ct_conv_args& t, int threads);
int64_t groups_scratch(const ct_conv_grad_x_args& t, int threads);
int64_t groups_scratch(const ct_conv_grad_w_args& t, int threads);

int32_t run_groups(Context& context, const ct_conv_args& t);
int32_t run_groups(Context& context, const ct_conv_grad_x_args& t);
int32_t run_groups(Context& context, const ct_conv_grad_w_args& t);

// The update of the part of a parameter that begins at `offset`.
ct_update shifted(const ct_update& update, int64_t offset);

}  // namespace CT_TIER
}  // namespace ct
