// Row pieces that softmax and the cross-entropy loss share.
#pragma once

#include "vectors/vecmath.h"

namespace ct {
namespace CT_TIER {

float row_maximum(const float* x, int64_t n);

// sum of exp(beta * (x - top))
float row_sum_exp(const float* x, int64_t n, float beta, float top);

// y = exp(beta * (x - top)) over its sum; y may be x
void softmax_row(const float* x, float* y, int64_t n, float beta, float top);

}  // namespace CT_TIER
}  // namespace ct
