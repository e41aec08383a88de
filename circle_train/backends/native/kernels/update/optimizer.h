// What happens to a finished piece of a gradient.
#pragma once

#include "vectors/simd.h"

namespace ct {
namespace CT_TIER {

// total = grad[0..n) + (accumulate ? g : 0) at `offset` of the parameter: stored, or turned into a new weight.
void apply_update(const ct_update& u, int64_t offset, const float* grad, int64_t n);

// The same for a gradient that is zero.
// Whether a gradient of nothing but zeros changes nothing.
bool rests_without_gradient(const ct_update& u);
void apply_zero_update(const ct_update& u, int64_t offset, int64_t n);

}  // namespace CT_TIER
}  // namespace ct
