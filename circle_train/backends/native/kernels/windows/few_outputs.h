// Convolutions with hardly any outputs, which would leave most lanes of a product empty: vectors lie along the window instead.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

bool has_few_outputs(const ct_conv_args& t);
void run_few_outputs(Context& context, const ct_conv_args& t);

}  // namespace CT_TIER
}  // namespace ct
