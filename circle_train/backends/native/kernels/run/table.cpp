#include "run/table.h"

namespace ct {
namespace CT_TIER {

// In the order of ct_kernel.
extern const Kernel table[CT_KERNEL_COUNT] = {
    {matmul, matmul_scratch},
    {matmul_grad_w, matmul_grad_w_scratch},
    {conv, conv_scratch},
    {conv_grad_x, conv_grad_x_scratch},
    {conv_grad_w, conv_grad_w_scratch},
    {depthwise, depthwise_scratch},
    {depthwise_grad_x, depthwise_grad_x_scratch},
    {depthwise_grad_w, depthwise_grad_w_scratch},
    {max_pool, no_scratch},
    {max_pool_grad, no_scratch},
    {average_pool, no_scratch},
    {average_pool_grad, no_scratch},
    {softmax, no_scratch},
    {softmax_grad, no_scratch},
    {log_softmax, no_scratch},
    {log_softmax_grad, no_scratch},
    {softmax_cross_entropy, softmax_cross_entropy_scratch},
    {mean_squared_error, regression_loss_scratch},
    {mean_absolute_error, regression_loss_scratch},
    {chain, chain_scratch},
    {reduce, reduce_scratch},
    {copy, no_scratch},
    {fill, no_scratch},
    {gather, no_scratch},
    {scatter_add, scatter_add_scratch},
    {layer_norm, no_scratch},
    {layer_norm_grad, norm_grad_scratch},
    {rms_norm, no_scratch},
    {rms_norm_grad, norm_grad_scratch},
    {update, no_scratch},
    {guard_finite, no_scratch},
    {conv_pool, conv_pool_scratch},
    {pool_conv_grad_w, pool_conv_grad_w_scratch},
};

}  // namespace CT_TIER
}  // namespace ct
