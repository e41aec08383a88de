/* The flat C ABI between circle_train's Python binders and its kernels.
 *
 * A bound program is an array of ct_step {kernel id, pointer to that kernel's args struct}. ct_run walks it in one call.
 * Every args struct is plain data: pointers, int64_t, int32_t, float; one field a line, natural alignment, so a
 * ctypes.Structure with the same fields in the same order has the same layout (compare with ct_args_size).
 *
 * Tensors are contiguous row-major float32 unless strides are given; strides count elements. Layouts are Circle's:
 * images NHWC, CONV_2D weights OHWI, DEPTHWISE_CONV_2D weights 1HWO, FULLY_CONNECTED weights O x I, indices int32.
 * Optional pointers may be NULL. Kernels trust sizes (the binder has checked them) but check indices that are data.
 * Outputs may alias inputs only where a comment says so.
 */
#ifndef CIRCLE_TRAIN_NATIVE_ABI_H
#define CIRCLE_TRAIN_NATIVE_ABI_H

#include <stdint.h>

#define CT_MAX_RANK 8
#define CT_MAX_THREADS 1024
#define CT_UPDATE_SCALARS 16
/* Scratch begins at a multiple of so many bytes. */
#define CT_ALIGNMENT 64
/* A product alone, of at most so many rows, is added up in an order of its own. */
#define CT_DOT_ROWS 48
/* CONV_POOL and POOL_CONV_GRAD_W: input channels, at most, and groups that outputs come in,
 * whatever the vectors are. */
#define CT_NARROW_CHANNELS 4
#define CT_NARROW_OUTPUTS 16

#ifdef __cplusplus
extern "C" {
#endif

/* ---- kernels: the order makes the ids -------------------------------------------------------------------------- */

/* X(id, run, scratch, args): the function that runs it, the one that says what memory it works in (no_scratch: none), and the
 * struct of its arguments. This line and a .cpp file are all that the library wants of a kernel. */
#define CT_KERNELS(X)                                                                                   \
  X(MATMUL, matmul, matmul_scratch, ct_matmul_args)                                                     \
  X(MATMUL_PANELS, matmul_panels, matmul_panels_scratch, ct_matmul_args)                                \
  X(MATMUL_GRAD_W, matmul_grad_w, matmul_grad_w_scratch, ct_matmul_grad_w_args)                         \
  X(ATTENTION, attention, attention_scratch, ct_attention_args)                                         \
  X(ATTENTION_GRAD, attention_grad, attention_scratch, ct_attention_args)                               \
  X(CONV, conv, conv_scratch, ct_conv_args)                                                             \
  X(CONV_PANELS, conv_panels, conv_panels_scratch, ct_conv_args)                                        \
  X(CONV_GRAD_X, conv_grad_x, conv_grad_x_scratch, ct_conv_grad_x_args)                                 \
  X(CONV_GRAD_W, conv_grad_w, conv_grad_w_scratch, ct_conv_grad_w_args)                                 \
  X(DEPTHWISE, depthwise, depthwise_scratch, ct_conv_args)                                              \
  X(DEPTHWISE_GRAD_X, depthwise_grad_x, depthwise_grad_x_scratch, ct_conv_grad_x_args)                  \
  X(DEPTHWISE_GRAD_W, depthwise_grad_w, depthwise_grad_w_scratch, ct_conv_grad_w_args)                  \
  X(MAX_POOL, max_pool, no_scratch, ct_pool_args)                                                       \
  X(MAX_POOL_GRAD, max_pool_grad, no_scratch, ct_pool_args)                                             \
  X(AVERAGE_POOL, average_pool, no_scratch, ct_pool_args)                                               \
  X(AVERAGE_POOL_GRAD, average_pool_grad, no_scratch, ct_pool_args)                                     \
  X(RESIZE, resize, resize_scratch, ct_resize_args)                                                     \
  X(SOFTMAX, softmax, no_scratch, ct_softmax_args)                                                      \
  X(SOFTMAX_GRAD, softmax_grad, no_scratch, ct_softmax_args)                                            \
  X(LOG_SOFTMAX, log_softmax, no_scratch, ct_softmax_args)                                              \
  X(LOG_SOFTMAX_GRAD, log_softmax_grad, no_scratch, ct_softmax_args)                                    \
  X(SOFTMAX_CROSS_ENTROPY, softmax_cross_entropy, softmax_cross_entropy_scratch, ct_cross_entropy_args) \
  X(MEAN_SQUARED_ERROR, mean_squared_error, regression_loss_scratch, ct_regression_loss_args)           \
  X(MEAN_ABSOLUTE_ERROR, mean_absolute_error, regression_loss_scratch, ct_regression_loss_args)         \
  X(CHAIN, chain, chain_scratch, ct_chain_args)                                                         \
  X(REDUCE, reduce, reduce_scratch, ct_reduce_args)                                                     \
  X(COPY, copy, no_scratch, ct_copy_args)                                                               \
  X(FILL, fill, no_scratch, ct_fill_args)                                                               \
  X(GATHER, gather, no_scratch, ct_gather_args)                                                         \
  X(SCATTER_ADD, scatter_add, scatter_add_scratch, ct_scatter_add_args)                                 \
  X(LAYER_NORM, layer_norm, no_scratch, ct_norm_args)                                                   \
  X(LAYER_NORM_GRAD, layer_norm_grad, norm_grad_scratch, ct_norm_grad_args)                             \
  X(RMS_NORM, rms_norm, no_scratch, ct_norm_args)                                                       \
  X(RMS_NORM_GRAD, rms_norm_grad, norm_grad_scratch, ct_norm_grad_args)                                 \
  X(BATCH_NORM, batch_norm, batch_norm_scratch, ct_batch_norm_args)                                     \
  X(BATCH_NORM_GRAD, batch_norm_grad, batch_norm_grad_scratch, ct_batch_norm_grad_args)                 \
  X(LSTM, lstm, recurrent_scratch, ct_recurrent_args)                                                   \
  X(LSTM_GRAD, lstm_grad, recurrent_scratch, ct_recurrent_args)                                         \
  X(GRU, gru, recurrent_scratch, ct_recurrent_args)                                                     \
  X(GRU_GRAD, gru_grad, recurrent_scratch, ct_recurrent_args)                                           \
  X(RNN, rnn, recurrent_scratch, ct_recurrent_args)                                                     \
  X(RNN_GRAD, rnn_grad, recurrent_scratch, ct_recurrent_args)                                           \
  X(SCAN, scan, no_scratch, ct_scan_args)                                                               \
  X(EXTREME, extreme, no_scratch, ct_extreme_args)                                                      \
  X(TOP, top, top_scratch, ct_top_args)                                                                 \
  X(FLAT_INDEX, flat_index, no_scratch, ct_flat_index_args)                                             \
  X(CLIP_FACTOR, clip_factor, no_scratch, ct_clip_factor_args)                                          \
  X(UPDATE, update, no_scratch, ct_update_args)                                                         \
  X(GUARD_FINITE, guard_finite, no_scratch, ct_guard_args)                                              \
  X(CONV_POOL, conv_pool, conv_pool_scratch, ct_conv_pool_args)                                         \
  X(POOL_CONV_GRAD_W, pool_conv_grad_w, pool_conv_grad_w_scratch, ct_pool_conv_grad_w_args)             \
  X(INT_CONV, int_conv, int_conv_scratch, ct_int_conv_args)                                             \
  X(INT_DEPTHWISE, int_depthwise, int_depthwise_scratch, ct_int_conv_args)                              \
  X(INT_HYBRID, int_hybrid, int_hybrid_scratch, ct_int_hybrid_args)                                     \
  X(INT_SAMPLES, int_samples, no_scratch, ct_int_samples_args)                                          \
  X(INT_POOL, int_pool, no_scratch, ct_int_pool_args)                                                   \
  X(INT_BINARY, int_binary, no_scratch, ct_int_binary_args)                                             \
  X(INT_SOFTMAX, int_softmax, no_scratch, ct_int_softmax_args)                                          \
  X(INT_TABLE, int_table, no_scratch, ct_int_table_args)                                                \
  X(INT_ROUND, int_round, no_scratch, ct_int_round_args)                                                \
  X(INT_WIDEN, int_widen, no_scratch, ct_int_widen_args)                                                \
  X(INT_SETTLE, int_settle, no_scratch, ct_int_settle_args)

#define CT_KERNEL_ID(id, run, scratch, args) CT_##id,
typedef enum ct_kernel { CT_KERNELS(CT_KERNEL_ID) CT_KERNEL_COUNT } ct_kernel;
#undef CT_KERNEL_ID

/* ---- activations and masks ------------------------------------------------------------------------------------ */

/* act'(y), seen from the output: RELU y>0, RELU6 0<y<6, RELU_N1_TO_1 -1<y<1 (open intervals), TANH 1-y*y. SWISH x*logistic(x)
 * and HARD_SWISH, whose gradients are seen from their input, are known to BATCH_NORM, and forward to products and convolutions. */
typedef enum ct_act {
  CT_ACT_NONE = 0,
  CT_ACT_RELU = 1,
  CT_ACT_RELU_N1_TO_1 = 2,
  CT_ACT_RELU6 = 3,
  CT_ACT_TANH = 4,
  CT_ACT_SWISH = 6,
  CT_ACT_HARD_SWISH = 7
} ct_act;

/* ---- optimizer updates ---------------------------------------------------------------------------------------- */

/* With s = scalars (read at each run, written from outside), g the gradient: */
typedef enum ct_update_kind {
  CT_UPDATE_NONE = 0,        /* no update: the gradient is stored in (or added to) g */
  CT_UPDATE_SGD = 1,         /* g += DECAY*w; w -= STEP*g */
  CT_UPDATE_MOMENTUM = 2,    /* g += DECAY*w; m = BETA1*m + ONE_MINUS_BETA1*g; w -= STEP*m (1-dampening in ONE_MINUS_BETA1) */
  CT_UPDATE_NESTEROV = 3,    /* as MOMENTUM, but w -= STEP*(g + BETA1*m) */
  CT_UPDATE_ADAM = 4,        /* g += DECAY*w; m += (g-m)*ONE_MINUS_BETA1; v += (g*g-v)*ONE_MINUS_BETA2; w -= STEP*m/(sqrt(v)+EPS) */
  CT_UPDATE_ADAMW_TORCH = 5, /* w -= DECAY*w first (DECAY holds lr*weight_decay), then ADAM without decay in g, its last line
                              * w -= STEP*m/(sqrt(v)/SQRT_BIAS2+EPS) */
  CT_UPDATE_ADAMW_ORT = 6,   /* ADAM without decay in g, then w -= DECAY*w (DECAY holds lr*weight_decay) */
  CT_UPDATE_RMSPROP = 7,     /* g += DECAY*w; v += (g*g-v)*ONE_MINUS_BETA2; w -= STEP*g/(sqrt(v)+EPS) */
  CT_UPDATE_RMSPROP_CENTERED = 8,          /* a += (g-a)*ONE_MINUS_BETA2 too, sqrt(max(v-a*a, 0)) instead */
  CT_UPDATE_RMSPROP_MOMENTUM = 9,          /* RMSPROP, but m = BETA1*m + g/(sqrt(v)+EPS); w -= STEP*m */
  CT_UPDATE_RMSPROP_CENTERED_MOMENTUM = 10, /* both */
  CT_UPDATE_ADAGRAD = 11     /* g += DECAY*w; v += g*g; w -= STEP*g/(sqrt(v+BETA2)+EPS) */
} ct_update_kind;

/* Indices into scalars (float[CT_UPDATE_SCALARS]). ADAM, ADAMW_ORT: STEP = lr*sqrt(1-b2^t)/(1-b1^t). ADAMW_TORCH: STEP = lr/(1-b1^t). */
typedef enum ct_scalar {
  CT_SCALAR_STEP = 0,
  CT_SCALAR_BETA1 = 1,
  CT_SCALAR_BETA2 = 2,
  CT_SCALAR_EPS = 3,
  CT_SCALAR_DECAY = 4,
  CT_SCALAR_SQRT_BIAS2 = 5,
  CT_SCALAR_ONE_MINUS_BETA1 = 6,
  CT_SCALAR_ONE_MINUS_BETA2 = 7,
  CT_SCALAR_LIMIT = 8 /* g is first brought between -LIMIT and LIMIT; 0: it is not */
} ct_scalar;

/* What becomes of a gradient: total = computed + (accumulate ? g : 0), then kind NONE: g = total, else w, m, v, a move and
 * g is only read (accumulate) or not needed at all (may be NULL). Where `factor` is given the total is multiplied by it. Where
 * `unit` is given the STEP of element i is that times unit[i / unit_each % unit_count]. */
typedef struct ct_update {
  float* g;
  float* w;
  float* m;
  float* v;
  const float* scalars;
  int32_t kind;
  int32_t accumulate;
  float* a;
  const float* factor;
  const float* unit;
  int64_t unit_each;
  int64_t unit_count;
} ct_update;

/* CT_UPDATE: the gradient is `grad` (contiguous, `size`); update.g as above (normally NULL, accumulate 0). */
typedef struct ct_update_args {
  const float* grad;
  int64_t size;
  ct_update update;
} ct_update_args;

/* ---- bfloat16 -------------------------------------------------------------------------------------------------- */

/* `bf16` of products and convolutions. OPERANDS: what is multiplied is rounded to bfloat16 (ties to even), sums stay float32.
 * The others say which tensors lie in memory as bfloat16 (uint16_t behind the float pointer): X is a matmul's a (a_col 1) or
 * the x of weight gradients, Y the result, which is rounded, MASK out_mask_y, ADD add. Without OPERANDS only DEPTHWISE knows
 * them (X, Y, MASK; multiplier 1). CONV takes X only where it is pointwise. */
typedef enum ct_bf16 {
  CT_BF16_OPERANDS = 1,
  CT_BF16_X = 2,
  CT_BF16_Y = 4,
  CT_BF16_MASK = 8,
  CT_BF16_ADD = 16
} ct_bf16;

/* ---- integers that stand for floats ---------------------------------------------------------------------------- */

typedef enum ct_int_type { CT_INT_INT8 = 0, CT_INT_UINT8 = 1, CT_INT_INT16 = 2 } ct_int_type;

/* y = scale[c] * (x - zero[c]); x and y: outer, channels, inner. */
typedef struct ct_int_widen_args {
  const void* x;
  float* y;
  const float* scale; /* channels */
  const float* zero;
  int64_t outer;
  int64_t channels;
  int64_t inner;
  int32_t type;
} ct_int_widen_args;

/* ---- matrix products ------------------------------------------------------------------------------------------ */

/* With `label`, an operand holds logits, and what is multiplied is the gradient of their cross-entropy, which lies nowhere:
 * exp(z - top) * rate, less `scale` at the row's label; top and rate are those that ct_cross_entropy_args gives out. */
typedef struct ct_labels {
  const int32_t* label;
  const float* top;
  const float* rate;
  float scale;
} ct_labels;

/* C(i,j) = mask(out) * act( alpha * sum_k A(i,k) B(k,j) + bias(j) + add(i,j) + (accumulate ? C(i,j) : 0) )
 * mask(out) = act'(out_mask_y) when given (strides of C).
 * Element addresses: A[i*a_row + k*a_col], B[k*b_row + j*b_col], C[i*c_row + j]; add and out_mask_y lie as C does.
 * Batches: for p < batch0, q < batch1 the bases move by p*x_batch0 + q*x_batch1 (add, masks with their tensors).
 * FULLY_CONNECTED forward: A=x (a_row=I, a_col=1), B=w (b_row=1, b_col=I). grad_x: A=dy (a_row=O), B=w (b_row=I, b_col=1).
 * stored: where its x is given, B is FULLY_CONNECTED's weights as integers, of one scale or one for each output, and b is not
 * read. There is one batch then, and alpha is 1. */
typedef struct ct_matmul_args {
  const float* a;
  const float* b;
  float* c;
  const float* bias;
  const float* add;
  const float* out_mask_y;
  int64_t batch0;
  int64_t batch1;
  int64_t m;
  int64_t n;
  int64_t k;
  int64_t a_row;
  int64_t a_col;
  int64_t b_row;
  int64_t b_col;
  int64_t c_row;
  int64_t a_batch0;
  int64_t a_batch1;
  int64_t b_batch0;
  int64_t b_batch1;
  int64_t c_batch0;
  int64_t c_batch1;
  float alpha;
  int32_t act;
  int32_t out_mask_act;
  int32_t accumulate;
  int32_t bf16;
  ct_int_widen_args stored;
  ct_labels labels; /* of A's rows */
  const float* panels; /* where given: what MATMUL_PANELS, with these arguments, left in its scratch; b is not read then */
} ct_matmul_args;

/* Matrices of unit column stride: entry (p, q) begins p*batch0 + q*batch1 behind `at`, its rows lie `row` apart. */
typedef struct ct_matrices {
  float* at;
  int64_t batch0;
  int64_t batch1;
  int64_t row;
} ct_matrices;

/* y = softmax(scale q k^T + mask_scale mask) v for each of batch0 x batch1 entries: q rows x depth, k cols x depth, v cols x width.
 * `mask`, rows x cols, may be NULL, and its strides 0. Gradients: dq, dk and dv, each may be NULL, from dy, q, k, v and mask alone.
 * depth and width are multiples of CT_NARROW_OUTPUTS. */
typedef struct ct_attention_args {
  ct_matrices q;
  ct_matrices k;
  ct_matrices v;
  ct_matrices mask;
  ct_matrices y;
  ct_matrices dy;
  ct_matrices dq;
  ct_matrices dk;
  ct_matrices dv;
  int64_t batch0;
  int64_t batch1;
  int64_t rows;
  int64_t cols;
  int64_t depth;
  int64_t width;
  float scale;
  float mask_scale;
} ct_attention_args;

/* dw[o,i] = sum_p dy[p,o] x[p,i], db[o] = sum_p dy[p,o]. dy is P x O, x is P x I, dense.
 * has_w / has_b say which of the two is wanted. */
typedef struct ct_matmul_grad_w_args {
  const float* dy;
  const float* x;
  int64_t rows;
  int64_t out_features;
  int64_t in_features;
  ct_update w;
  ct_update b;
  int32_t has_w;
  int32_t has_b;
  int32_t bf16;
  ct_labels labels; /* of dy's rows */
} ct_matmul_grad_w_args;

/* ---- convolutions and pools ------------------------------------------------------------------------------------ */

/* out(oh) reads rows oh*stride_h - pad_top + kh*dilation_h; everything outside the image is padding. Pools: out_c = in_c,
 * kernel_* is the window, dilation 1. groups: CONV only (1 = ordinary). DEPTHWISE: out_c = in_c * multiplier, output channel
 * c*multiplier + q belongs to input channel c. */
typedef struct ct_conv_shape {
  int64_t batch;
  int64_t in_h;
  int64_t in_w;
  int64_t in_c;
  int64_t out_h;
  int64_t out_w;
  int64_t out_c;
  int64_t kernel_h;
  int64_t kernel_w;
  int64_t stride_h;
  int64_t stride_w;
  int64_t dilation_h;
  int64_t dilation_w;
  int64_t pad_top;
  int64_t pad_left;
  int64_t groups;
} ct_conv_shape;

/* y = act(conv(x, w) + b + add). stored: where its x is given, these are the weights, as integers, and w is not read. */
typedef struct ct_conv_args {
  const float* x;
  const float* w;
  const float* b;
  const float* add;
  float* y;
  ct_conv_shape shape;
  int32_t act;
  int32_t bf16;
  ct_int_widen_args stored;
  const float* panels; /* where given: what CONV_PANELS, with these arguments, left in its scratch; w is not read then */
} ct_conv_args;

/* dx = out_mask * ( conv_transposed(dy, w) + (accumulate ? dx : 0) ),
 * out_mask = act'(out_mask_y) when given (out_mask_y lies as x does: usually x itself, the output of its producer). stored: as in
 * ct_conv_args. */
typedef struct ct_conv_grad_x_args {
  const float* dy;
  const float* w;
  const float* out_mask_y;
  float* dx;
  ct_conv_shape shape;
  int32_t out_mask_act;
  int32_t accumulate;
  int32_t bf16;
  ct_int_widen_args stored;
} ct_conv_grad_x_args;

typedef struct ct_conv_grad_w_args {
  const float* dy;
  const float* x;
  ct_conv_shape shape;
  ct_update w;
  ct_update b;
  int32_t has_w;
  int32_t has_b;
  int32_t bf16;
} ct_conv_grad_w_args;

/* MAX_POOL: y = act(max x), index = window position kh*kernel_w+kw of the first maximum (u8, may be NULL; needs a window of
 * at most 256 cells). MAX_POOL_GRAD: dx from dy, index (or, with index NULL, x is compared again); y masks dy when act != NONE.
 * AVERAGE_POOL: mean over the cells inside the image. The gradients write all of dx (or add to it: accumulate), and multiply
 * by act'(out_mask_y) when that is given. Gradient kernels read dy, write dx; forward kernels read x, write y. */
typedef struct ct_pool_args {
  const float* x;
  float* y;
  uint8_t* index;
  const float* dy;
  float* dx;
  const float* out_mask_y;
  ct_conv_shape shape;
  int32_t act;
  int32_t out_mask_act;
  int32_t accumulate;
} ct_pool_args;

/* Output i is the sum of weight[t] times input index[t], t from starts[i] up to starts[i + 1]. */
typedef struct ct_resize_axis {
  const int32_t* starts;
  const int32_t* index;
  const float* weight;
} ct_resize_axis;

/* y = rows x columns^T for every image and channel; y may not be x. */
typedef struct ct_resize_args {
  const float* x;
  float* y;
  int64_t batch;
  int64_t in_h;
  int64_t in_w;
  int64_t out_h;
  int64_t out_w;
  int64_t channels;
  ct_resize_axis rows;
  ct_resize_axis columns;
} ct_resize_args;

/* CONV, then MAX_POOL of its output, which is never whole in memory: conv.y and pool.x are not looked at. The convolution has
 * at most CT_NARROW_CHANNELS channels, one group, kernel_w > 1, dilation_w 1, a multiple of CT_NARROW_OUTPUTS outputs,
 * nothing to add and no bf16; the pool has an index and no act. */
typedef struct ct_conv_pool_args {
  ct_conv_args conv;
  ct_pool_args pool;
} ct_conv_pool_args;

/* MAX_POOL_GRAD, then CONV_GRAD_W of what that sends back: pool.dx and conv.dy are not looked at. The same convolutions; the
 * pool's windows do not overlap, its index is given and nothing is accumulated or masked but by act'(pool.y). */
typedef struct ct_pool_conv_grad_w_args {
  ct_pool_args pool;
  ct_conv_grad_w_args conv;
} ct_pool_conv_grad_w_args;

/* ---- softmax and losses ---------------------------------------------------------------------------------------- */

/* SOFTMAX y = softmax(beta*x), LOG_SOFTMAX y = log softmax(beta*x), along the last axis. Gradients: dx from dy and y,
 * times beta. y may be x, dx may be dy. */
typedef struct ct_softmax_args {
  const float* x;
  float* y;
  const float* dy;
  float* dx;
  int64_t rows;
  int64_t cols;
  float beta;
  int32_t accumulate;
} ct_softmax_args;

/* loss[0] = loss_scale * sum_r sum_c t (lse - z); dz = grad_scale * (softmax(z) * T - t), T = sum_c t. Targets: dense
 * `target` (rows x cols) or int32 `labels` (a row whose label is ignore_label gives 0; other labels outside 0..cols-1 are an
 * error, or, with skip_outside, give 0 too). dz, loss, row_loss (unscaled, per row) may be NULL; dz may be logits. top and rate, of
 * labels alone and instead of dz, may be NULL: a row's maximum, and grad_scale over the sum of its exponentials, 0 where it counts nothing. */
typedef struct ct_cross_entropy_args {
  const float* logits;
  const float* target;
  const int32_t* labels;
  float* loss;
  float* row_loss;
  float* dz;
  int64_t rows;
  int64_t cols;
  float loss_scale;
  float grad_scale;
  int32_t ignore_label;
  int32_t skip_outside;
  float* top;
  float* rate;
  int32_t probabilities; /* `logits` are probabilities p: loss of -sum t log max(p, 1e-20), dz = -grad_scale*t/p where p > 1e-20 */
} ct_cross_entropy_args;

/* MSE: loss[0] = loss_scale*sum (p-t)^2, dp = 2*grad_scale*(p-t). MAE: loss_scale*sum |p-t|, dp = grad_scale*sign(p-t).
 * loss, dp may be NULL; dp may be p. */
typedef struct ct_regression_loss_args {
  const float* p;
  const float* target;
  float* loss;
  float* dp;
  int64_t size;
  float loss_scale;
  float grad_scale;
} ct_regression_loss_args;

/* Stops the run with CT_NOT_FINITE when any of x[0..size) is NaN or infinite. */
typedef struct ct_guard_args {
  const float* x;
  int64_t size;
} ct_guard_args;

/* ---- elementwise chains ---------------------------------------------------------------------------------------- */

/* CT_BITS: chains only; element i of `shape` is bit i % 8 of byte i / 8, the strides are those of a dense tensor. */
typedef enum ct_data_type { CT_F32 = 0, CT_I32 = 1, CT_U8 = 2, CT_I64 = 3, CT_BITS = 4, CT_BF16 = 5 } ct_data_type;

/* Registers 0..inputs-1 hold the inputs; an op writes dst from a, b, c (registers) and imm. dst may be any register,
 * also its own operands'. Comparisons give 1 or 0; SELECT takes b where a != 0, else c. */
typedef enum ct_chain_op {
  CT_OP_CONST = 0,          /* imm */
  CT_OP_COPY = 1,           /* a */
  CT_OP_ADD = 2,            /* a + b */
  CT_OP_SUB = 3,            /* a - b */
  CT_OP_MUL = 4,            /* a * b */
  CT_OP_DIV = 5,            /* a / b */
  CT_OP_MAX = 6,            /* max(a, b), NaN if either is */
  CT_OP_MIN = 7,            /* min(a, b), NaN if either is */
  CT_OP_ADD_IMM = 8,        /* a + imm */
  CT_OP_MUL_IMM = 9,        /* a * imm */
  CT_OP_MAX_IMM = 10,       /* max(a, imm) */
  CT_OP_MIN_IMM = 11,       /* min(a, imm) */
  CT_OP_NEG = 12,           /* -a */
  CT_OP_ABS = 13,           /* |a| */
  CT_OP_SIGN = 14,          /* -1, 0, 1 */
  CT_OP_SQUARE = 15,        /* a * a */
  CT_OP_SQRT = 16,          /* sqrt a */
  CT_OP_RSQRT = 17,         /* 1 / sqrt a */
  CT_OP_RECIPROCAL = 18,    /* 1 / a */
  CT_OP_EXP = 19,           /* exp a */
  CT_OP_LOG = 20,           /* log a */
  CT_OP_TANH = 21,          /* tanh a */
  CT_OP_LOGISTIC = 22,      /* 1 / (1 + exp -a) */
  CT_OP_ERF = 23,           /* erf a */
  CT_OP_GELU = 24,          /* a Phi(a), Phi by erf */
  CT_OP_GELU_GRAD = 25,     /* b * (Phi(a) + a phi(a)): a = x, b = dy */
  CT_OP_GELU_TANH = 26,     /* a/2 (1 + tanh(sqrt(2/pi)(a + 0.044715 a^3))) */
  CT_OP_GELU_TANH_GRAD = 27,/* its derivative at a, times b */
  CT_OP_HARD_SWISH = 28,    /* a * min(max(a+3,0),6)/6 */
  CT_OP_HARD_SWISH_GRAD = 29,/* b * (0 if a<=-3, 1 if a>=3, else (2a+3)/6) */
  CT_OP_RELU_MASK = 30,     /* b where a > 0, else 0 */
  CT_OP_RELU6_MASK = 31,    /* b where 0 < a < 6, else 0 */
  CT_OP_RELU_N1_TO_1_MASK = 32, /* b where -1 < a < 1, else 0 */
  CT_OP_TANH_GRAD = 33,     /* b * (1 - a*a): a = y, b = dy */
  CT_OP_LOGISTIC_GRAD = 34, /* b * a * (1 - a): a = y, b = dy */
  CT_OP_POW_IMM = 35,       /* a ^ imm (libm powf) */
  CT_OP_POW = 36,           /* a ^ b (libm powf) */
  CT_OP_SELECT = 37,        /* a != 0 ? b : c */
  CT_OP_LESS = 38,          /* a < b */
  CT_OP_LESS_EQUAL = 39,    /* a <= b */
  CT_OP_GREATER = 40,       /* a > b */
  CT_OP_GREATER_EQUAL = 41, /* a >= b */
  CT_OP_EQUAL = 42,         /* a == b */
  CT_OP_NOT_EQUAL = 43,     /* a != b */
  CT_OP_FLOOR = 44,         /* floor a */
  CT_OP_CEIL = 45,          /* ceil a */
  CT_OP_ROUND = 46,         /* round half to even */
  CT_OP_SIN = 47,           /* libm sinf */
  CT_OP_COS = 48,           /* libm cosf */
  CT_OP_MUL_ADD = 49,       /* a * b + c */
  CT_OP_LOGICAL_NOT = 50,   /* a == 0 */
  CT_OP_LOGICAL_AND = 51,   /* a != 0 and b != 0 */
  CT_OP_LOGICAL_OR = 52,    /* a != 0 or b != 0 */
  CT_OP_LEAKY_RELU = 53,    /* a > 0 ? a : imm * a */
  CT_OP_LEAKY_RELU_GRAD = 54, /* a > 0 ? b : imm * b */
  CT_OP_ELU = 55,           /* a > 0 ? a : exp(a) - 1 */
  CT_OP_ELU_GRAD = 56,      /* y = a, dy = b: a > 0 ? b : b * (a + 1) */
  CT_OP_SOFTPLUS = 57,      /* log(1 + exp a) */
  CT_OP_ROUND_BF16 = 58,    /* the nearest bfloat16, ties to even, subnormals 0 */
  CT_OP_FLOOR_MOD = 59,     /* a - floor(a / b) * b, exactly: the remainder with the divisor's sign */
  CT_OP_ATAN2 = 60,         /* libm atan2f(a, b) */
  CT_OP_COUNT = 61
} ct_chain_op;

#define CT_CHAIN_REGISTERS 24

typedef struct ct_chain_tensor {
  void* data;
  int64_t strides[CT_MAX_RANK];
  int32_t dtype;
  int32_t reg;
} ct_chain_tensor;

typedef struct ct_chain_operation {
  int32_t op;
  int32_t dst;
  int32_t a;
  int32_t b;
  int32_t c;
  float imm;
} ct_chain_operation;

/* Inputs: strides over `shape` (0 = broadcast), reg ignored (input i is register i). Outputs: register `reg` is stored with
 * its strides (never 0 along an extent > 1). An output may be an input with the same strides. CT_I64 is input only.
 * Conversions: int -> float by value, float -> int truncates, float -> u8 and float -> bit are (value != 0). */
typedef struct ct_chain_args {
  const ct_chain_tensor* inputs;
  const ct_chain_tensor* outputs;
  const ct_chain_operation* ops;
  int64_t shape[CT_MAX_RANK];
  int32_t rank;
  int32_t input_count;
  int32_t output_count;
  int32_t op_count;
} ct_chain_args;

/* ---- reductions and data movement ------------------------------------------------------------------------------ */

typedef enum ct_reduce { CT_REDUCE_SUM = 0, CT_REDUCE_MAX = 1, CT_REDUCE_MIN = 2, CT_REDUCE_SUM_SQUARES = 3, CT_REDUCE_PROD = 4 } ct_reduce;

/* y = scale * reduce(x) over the axes whose reduce flag is set (+ y when accumulate); x is dense of `shape`, y dense over the
 * kept axes. Mean: SUM with scale 1/count. Undoing a broadcast and bias gradients are SUMs too. scale: SUM kinds only. */
typedef struct ct_reduce_args {
  const float* x;
  float* y;
  int64_t shape[CT_MAX_RANK];
  int32_t reduce[CT_MAX_RANK];
  int32_t rank;
  int32_t op;
  float scale;
  int32_t accumulate;
} ct_reduce_args;

/* y[i...] = x[i...] element by element with strides on both sides: transpose, slice (strided, negative), concat and split
 * (one copy per part), pad (fill, then copy into the middle), broadcast (x stride 0), squeeze. element_size 1, 2, 4 or 8. */
typedef struct ct_copy_args {
  const void* x;
  void* y;
  int64_t shape[CT_MAX_RANK];
  int64_t x_strides[CT_MAX_RANK];
  int64_t y_strides[CT_MAX_RANK];
  int32_t rank;
  int32_t element_size;
} ct_copy_args;

/* y[0..size) = the 4-byte pattern of value (bits: an int32 or a float). */
typedef struct ct_fill_args {
  void* y;
  int64_t size;
  int32_t value_bits;
} ct_fill_args;

/* y[o,j,:] = x[o, index[j], :] for o < outer, j < count; a row has `width` elements of 4 bytes, x has `rows` rows. Negative
 * indices count from the end; anything else outside is an error. GATHER on axis a: outer = dims before a, width = dims after. */
typedef struct ct_gather_args {
  const void* x;
  const void* index; /* int32_t, or int64_t where index_bytes is 8 */
  void* y;
  int64_t outer;
  int64_t rows;
  int64_t width;
  int64_t count;
  int32_t index_bytes;
} ct_gather_args;

/* G[o,r,:] = sum over j with index[j]==r of dy[o,j,:] (in order of j, so the same bits always), for every r; rows no index
 * names get 0. Then `update` as for any gradient (outer must be 1 for an update): an embedding table needs no dense gradient. */
typedef struct ct_scatter_add_args {
  const float* dy;
  const void* index; /* as in ct_gather_args */
  int64_t outer;
  int64_t rows;
  int64_t width;
  int64_t count;
  ct_update update;
  int32_t index_bytes;
} ct_scatter_add_args;

/* ---- normalisation over the last axis ---------------------------------------------------------------------------- */

/* LAYER_NORM y = (x + add - mean)*rstd*gamma + beta, RMS_NORM y = (x + add)*rstd*gamma; rstd = 1/sqrt(var + eps), var of
 * (x+add) about its mean (RMS: about 0). gamma, beta, add, sum, mean, rstd may be NULL; `sum` receives x + add; mean and rstd
 * (one a row) are what the gradient needs. y may be x. */
typedef struct ct_norm_args {
  const float* x;
  const float* add;
  const float* gamma;
  const float* beta;
  float* y;
  float* sum;
  float* mean;
  float* rstd;
  int64_t rows;
  int64_t cols;
  float eps;
} ct_norm_args;

/* x is what was normalised (norm's x, or its `sum`). dx gets (or, accumulate, adds) the gradient; dx may be dy.
 * has_gamma / has_beta: which parameter gradients are wanted. */
typedef struct ct_norm_grad_args {
  const float* dy;
  const float* x;
  const float* gamma_values;
  const float* mean;
  const float* rstd;
  float* dx;
  int64_t rows;
  int64_t cols;
  ct_update gamma;
  ct_update beta;
  int32_t accumulate;
  int32_t has_gamma;
  int32_t has_beta;
} ct_norm_grad_args;

/* ---- normalisation over all axes but the last, by the batch's own statistics ------------------------------------- */

/* y = act((x - mean)/sqrt(variance + eps) * gamma + beta + add), mean and variance (of the rows, not corrected) of each column.
 * `given`: both are read instead of computed. y or add may be NULL; y may be x or add. */
typedef struct ct_batch_norm_args {
  const float* x;
  const float* gamma;
  const float* beta;
  const float* add;
  float* y;
  float* mean;
  float* variance;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t act;
  int32_t given;
} ct_batch_norm_args;

/* Of the same without `add`: dy is what comes back to y, act's share is taken from x. dx, dgamma, dbeta may be NULL; dx may
 * be dy. */
typedef struct ct_batch_norm_grad_args {
  const float* dy;
  const float* x;
  const float* gamma;
  const float* beta;
  const float* mean;
  const float* variance;
  float* dx;
  float* dgamma;
  float* dbeta;
  int64_t rows;
  int64_t cols;
  float eps;
  int32_t act;
} ct_batch_norm_grad_args;
/* ---- along time -------------------------------------------------------------------------------------------------- */

/* Row t*time_row + s*sample_row of a tensor belongs to step t of sample s (y and dy have rows of their own); a row has `units`
 * floats. A sweep goes from the first step to the last, or the other way (`backwards`). Gates hold what the inputs give them
 * (W x + b); the sweep adds R h + bias and puts the gates' values there; its gradient finds these and puts the gradients of the sums
 * there. `before` is h as each step found it.
 * LSTM: gates 0-3 are i, f, g, o; c = f c + i g; h = o tanh(c). c has a row for each step.
 * GRU: gates 0-2 are z, r, n; n = tanh(W_n x + b_n + r inner), h = z h + (1-z) n; inner = R_n h + bias_n goes to c, and the gradient
 * leaves its own there.
 * RNN: gate 0; h = act(gate).
 * r0-r3: units x units, a row for each unit of the gate. States are samples x units. h0, c0: the first, zeros where NULL; h1, c1: the
 * last, which a gradient reads (zeros where NULL) as their gradients, then giving dh0, dc0. All of these, the biases and, in a
 * forward sweep, c and before may be NULL, y and dy too. */
typedef struct ct_recurrent_args {
  float* gate0;
  float* gate1;
  float* gate2;
  float* gate3;
  const float* r0;
  const float* r1;
  const float* r2;
  const float* r3;
  const float* bias0;
  const float* bias1;
  const float* bias2;
  const float* bias3;
  const float* h0;
  const float* c0;
  float* h1;
  float* c1;
  float* c;
  float* before;
  float* y;
  const float* dy;
  float* dh0;
  float* dc0;
  int64_t steps;
  int64_t samples;
  int64_t units;
  int64_t time_row;
  int64_t sample_row;
  int64_t y_time_row;
  int64_t y_sample_row;
  int32_t gates;
  int32_t backwards;
  int32_t act;
} ct_recurrent_args;

/* ---- along an axis ----------------------------------------------------------------------------------------------- */

/* Tensors are outer x size x inner. y = running sum (product: `op` PROD) of x along the middle; exclusive: of those before;
 * reverse: from the end. */
typedef struct ct_scan_args {
  const float* x;
  float* y;
  int64_t outer;
  int64_t size;
  int64_t inner;
  int32_t op;
  int32_t exclusive;
  int32_t reverse;
} ct_scan_args;

/* place[outer, inner] = where along the middle the largest (op MAX) or smallest (MIN) element is, the first of equals; a NaN
 * beats all. int32_t, or int64_t where place_bytes is 8. */
typedef struct ct_extreme_args {
  const float* x;
  void* place;
  int64_t outer;
  int64_t size;
  int64_t inner;
  int32_t op;
  int32_t place_bytes;
} ct_extreme_args;

/* The k largest of each of the rows of x, falling, the first of equals first, NaN before all: values and int32 places. With dy
 * (rows x k) given, dx gets it at those places and 0 elsewhere; values, places, dy with dx may be NULL. */
typedef struct ct_top_args {
  const float* x;
  float* values;
  int32_t* places;
  const float* dy;
  float* dx;
  int64_t rows;
  int64_t cols;
  int64_t k;
} ct_top_args;

/* flat[i] = sum over d of coordinate[i,d] * (product of sizes behind d), i < count, in int32; every coordinate is checked, negative
 * ones count from the end where `wraps`; with `drops` a negative one makes it the place behind the last (one size only).
 * Coordinates are int32_t, or int64_t where index_bytes is 8. With group > 0 (and one size) the i-th coordinate belongs to table
 * i / group, its sizes[0] rows behind those of the tables before. */
typedef struct ct_flat_index_args {
  const void* coordinates;
  int32_t* flat;
  int64_t sizes[CT_MAX_RANK];
  int64_t count;
  int64_t group;
  int32_t depth;
  int32_t index_bytes;
  int32_t wraps;
  int32_t drops;
} ct_flat_index_args;

/* factor[0] = min(limit / (sqrt(sum over parts of sums[p]) + 1e-6), 1): what brings gradients down to a norm, from their sums of
 * squares. */
typedef struct ct_clip_factor_args {
  const float* sums;
  float* factor;
  int64_t parts;
  float limit;
} ct_clip_factor_args;

/* ---- integers that stand for reals ----------------------------------------------------------------------------------- */

/* Bytes are int8_t or uint8_t; x_flip, XORed to them, makes int8_t v the unsigned v + 128 (0x80) and leaves uint8_t (0). The
 * zeros and the limits of y are those of y's own type. A real result r is stored as y_zero + round(r), ties to even, brought
 * between low and high. */

/* INT_CONV, INT_DEPTHWISE: r(c) = scale[c] * (bias[c] + sum u(x) w - w_zero * sum u(x)), u(x) the unsigned x, the sums in int32
 * over all cells of the window, those beside the image being x_zero (unsigned too). So bias holds -x_zero * sum (w - w_zero).
 * bias and scale have places for a multiple of CT_INT_OUTPUTS outputs.
 * INT_CONV: weights in panels of 16 outputs, each [run][fours][16][4]: a run is what of a window lies together (a row of
 * the kernel; with groups or dilation_w > 1 a cell), cut in fours, zeros behind it; every group begins with a panel of its own,
 * its outputs' bias and scale likewise. INT_DEPTHWISE: weights 1HWO as they lie, out_c = in_c.
 * Where a shift is given x and y are int16_t without a zero, bias int64_t and scale int32_t, LiteRT's 16x8: y(c) = (scale[c] *
 * (bias[c] + sum x w) + half) >> shift[c] in 64 bits. INT_DEPTHWISE then takes a kernel of at most CT_SHORT_TAPS cells. */
#define CT_SHORT_TAPS 508
#define CT_INT_OUTPUTS 64
#define CT_INT_PANEL 16
typedef struct ct_int_conv_args {
  const uint8_t* x;
  const int8_t* w;
  const int32_t* bias;
  const float* scale;
  const int32_t* shift;
  uint8_t* y;
  ct_conv_shape shape;
  int32_t x_flip;
  int32_t x_zero;
  int32_t w_zero;
  int32_t y_zero;
  int32_t low;
  int32_t high;
} ct_int_conv_args;

/* To which bytes samples are rounded: by XNNPACK, or by LiteRT's own kernels, from their least and largest number (and 0), or
 * symmetrically from the largest there is without its sign. */
typedef enum ct_rounding { CT_ROUNDING_XNNPACK = 0, CT_ROUNDING_OWN = 1, CT_ROUNDING_SYMMETRIC = 2 } ct_rounding;

/* INT_HYBRID: floats times bytes. What comes in is rounded to bytes with a scale s and a zero z for each of `samples` equal parts of
 * the outputs: y(c) = s * w_scale[c] * (sum u(x) w - z * w_sums[c]) + bias[c], between
 * low and high; NaN where a part holds a number that is not finite. Weights, w_sums and the like lie as those of INT_CONV. */
typedef struct ct_int_hybrid_args {
  const float* x;
  const int8_t* w;
  const int32_t* w_sums;
  const float* w_scale;
  const float* bias;
  float* y;
  ct_conv_shape shape;
  int64_t samples;
  float low;
  float high;
  int32_t rounding;
} ct_int_hybrid_args;

/* Each of `samples` equal parts of x as the floats that INT_HYBRID rounds it to; y may be x. */
typedef struct ct_int_samples_args {
  const float* x;
  float* y;
  int64_t samples;
  int64_t each;
  int32_t rounding;
} ct_int_samples_args;

/* op SUM: r = scale * sum (u(x) - x_zero) over the cells inside the image, divided by their number; op MAX: the largest, whose
 * scale and zero y has too. */
typedef struct ct_int_pool_args {
  const uint8_t* x;
  uint8_t* y;
  ct_conv_shape shape;
  int32_t x_flip;
  int32_t x_zero;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  int32_t op;
  float scale;
} ct_int_pool_args;

/* r = scale_a*a + scale_b*b + scale_ab*a*b + offset, a and b unsigned; where a shift is given y = y_zero +
 * ((factor_a*a + factor_b*b + bias) >> shift) instead, within low and high, XNNPACK's sums. Strides over shape, 0 where an operand is
 * broadcast; y is dense and may be a or b where that is dense too. */
typedef struct ct_int_binary_args {
  const uint8_t* a;
  const uint8_t* b;
  uint8_t* y;
  int64_t shape[CT_MAX_RANK];
  int64_t a_strides[CT_MAX_RANK];
  int64_t b_strides[CT_MAX_RANK];
  int32_t rank;
  int32_t a_flip;
  int32_t b_flip;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float scale_a;
  float scale_b;
  float scale_ab;
  float offset;
  int32_t factor_a;
  int32_t factor_b;
  int32_t bias;
  int32_t shift;
} ct_int_binary_args;

/* Along rows: r = scale * power[largest - x] / their sum. With `inverse`, LiteRT's of int16: x, y and power, of 65,536 entries, are
 * int16_t; e = power[largest - x] in units of 2^-15, y = e / sum e in such, by 513 points of 1 / (1 + v), v from 0 to 1. */
typedef struct ct_int_softmax_args {
  const uint8_t* x;
  uint8_t* y;
  const float* power;
  const int16_t* inverse; /* 256 */
  int64_t rows;
  int64_t cols;
  int32_t x_flip;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  float scale;
} ct_int_softmax_args;

/* y = table[x], x as uint8_t: rows of `width` elements, x_row and y_row elements apart; those of y have 1 or 4 bytes, or 2, and
 * x as uint16_t has as many. y may be x. */
typedef struct ct_int_table_args {
  const void* x;
  void* y;
  const void* table; /* 256, or 65,536 */
  int64_t rows;
  int64_t width;
  int64_t x_row;
  int64_t y_row;
  int32_t element_size;
} ct_int_table_args;

/* How integers lie. */
/* r = scale * x; NaN is stored as `low`. y has 1 byte, or is INT16. */
typedef struct ct_int_round_args {
  const float* x;
  void* y;
  int64_t size;
  int32_t y_zero;
  int32_t low;
  int32_t high;
  int32_t type;
  float scale;
} ct_int_round_args;

/* r = clip(round(inverse * x) + zero, low, high); y = scale * (r - zero), bytes = r, bit i of bits whether pass_low < x < pass_high.
 * What is NULL is not written; y may be x. */
typedef struct ct_int_settle_args {
  const float* x;
  float* y;
  uint8_t* bytes;
  uint8_t* bits;
  int64_t size;
  float inverse;
  float scale;
  float zero;
  float low;
  float high;
  float pass_low;
  float pass_high;
} ct_int_settle_args;

/* ---- running ------------------------------------------------------------------------------------------------------ */

typedef struct ct_step {
  const void* args;
  int32_t kernel;
} ct_step;

typedef enum ct_status {
  CT_OK = 0,
  CT_BAD_INDEX = 1,   /* a label or gather index outside its range */
  CT_BAD_KERNEL = 2,  /* a kernel id or an opcode this library does not know */
  CT_NOT_FINITE = 3   /* a guarded number is NaN or infinite */
} ct_status;

typedef enum ct_tier { CT_TIER_AUTO = -1, CT_TIER_PORTABLE = 0, CT_TIER_AVX2 = 1, CT_TIER_AVX512 = 2 } ct_tier;

typedef struct ct_workers ct_workers;

#if defined(_WIN32)
#define CT_API
#else
#define CT_API __attribute__((visibility("default")))
#endif

/* A digest of this file, which the build makes: a package refuses a library that knows other kernels. */
CT_API int32_t ct_abi_version(void);
/* sizeof of the args struct of a kernel; -1 for an unknown id. */
CT_API int64_t ct_args_size(int32_t kernel);
CT_API const char* ct_kernel_name(int32_t kernel);
/* The best tier this processor can run. */
CT_API int32_t ct_best_tier(void);

/* `threads` workers (1 to CT_MAX_THREADS, the caller is one of them) and a SIMD tier (CT_TIER_AUTO: the best). NULL when the
 * tier cannot run here. Threads start at the first parallel step and again after a fork; where the system starts fewer, those
 * share the work. The same workers may serve several sessions: a second
 * concurrent ct_run on it simply runs on its own thread alone, with the same result. */
CT_API ct_workers* ct_workers_create(int32_t threads, int32_t tier);
CT_API void ct_workers_destroy(ct_workers* workers);
CT_API int32_t ct_workers_count(const ct_workers* workers);
CT_API int32_t ct_workers_tier(const ct_workers* workers);
/* Whether products of bfloat16s are the processor's own instruction. */
CT_API int32_t ct_workers_has_bf16(const ct_workers* workers);

/* Scratch bytes a step needs; a program needs the maximum over its steps (scratch is not kept between steps).
 * Align scratch to CT_ALIGNMENT. */
CT_API int64_t ct_scratch_bytes(const ct_workers* workers, int32_t kernel, const void* args);

/* Runs steps in order; failed receives the index of the step that stopped the run. */
CT_API int32_t ct_run(ct_workers* workers, const ct_step* steps, int64_t count, void* scratch, int64_t* failed);

#ifdef __cplusplus
}
#endif
#endif
