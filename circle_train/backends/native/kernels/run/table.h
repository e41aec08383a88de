// Every kernel of a tier: run and scratch functions, by family.
#pragma once

#include "run/kernel.h"

namespace ct {
namespace CT_TIER {

// matmul.cpp
int32_t matmul(Context&, const void*);
int64_t matmul_scratch(const void*, int);
int32_t matmul_grad_w(Context&, const void*);
int64_t matmul_grad_w_scratch(const void*, int);
// conv.cpp, conv_grad_x.cpp, conv_grad_w.cpp
int32_t conv(Context&, const void*);
int64_t conv_scratch(const void*, int);
int32_t conv_grad_x(Context&, const void*);
int64_t conv_grad_x_scratch(const void*, int);
int32_t conv_grad_w(Context&, const void*);
int64_t conv_grad_w_scratch(const void*, int);
// conv_narrow.cpp, conv_narrow_grad.cpp
int32_t conv_pool(Context&, const void*);
int64_t conv_pool_scratch(const void*, int);
int32_t pool_conv_grad_w(Context&, const void*);
int64_t pool_conv_grad_w_scratch(const void*, int);
// depthwise.cpp, depthwise_grad.cpp
int32_t depthwise(Context&, const void*);
int64_t depthwise_scratch(const void*, int);
int32_t depthwise_grad_x(Context&, const void*);
int64_t depthwise_grad_x_scratch(const void*, int);
int32_t depthwise_grad_w(Context&, const void*);
int64_t depthwise_grad_w_scratch(const void*, int);
// max_pool.cpp, average_pool.cpp
int32_t max_pool(Context&, const void*);
int32_t max_pool_grad(Context&, const void*);
int32_t average_pool(Context&, const void*);
int32_t average_pool_grad(Context&, const void*);
// softmax.cpp
int32_t softmax(Context&, const void*);
int32_t softmax_grad(Context&, const void*);
int32_t log_softmax(Context&, const void*);
int32_t log_softmax_grad(Context&, const void*);
// loss.cpp
int32_t softmax_cross_entropy(Context&, const void*);
int64_t softmax_cross_entropy_scratch(const void*, int);
int32_t mean_squared_error(Context&, const void*);
int32_t mean_absolute_error(Context&, const void*);
int64_t regression_loss_scratch(const void*, int);
int32_t guard_finite(Context&, const void*);
// chain.cpp
int32_t chain(Context&, const void*);
int64_t chain_scratch(const void*, int);
// reduce.cpp
int32_t reduce(Context&, const void*);
int64_t reduce_scratch(const void*, int);
// copy.cpp
int32_t copy(Context&, const void*);
int32_t fill(Context&, const void*);
// gather.cpp
int32_t gather(Context&, const void*);
int32_t scatter_add(Context&, const void*);
int64_t scatter_add_scratch(const void*, int);
// norm.cpp
int32_t layer_norm(Context&, const void*);
int32_t layer_norm_grad(Context&, const void*);
int32_t rms_norm(Context&, const void*);
int32_t rms_norm_grad(Context&, const void*);
int64_t norm_grad_scratch(const void*, int);
// optimizer.cpp
int32_t update(Context&, const void*);

}  // namespace CT_TIER
}  // namespace ct
