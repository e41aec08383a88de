"""The ABI of kernels/run/abi.h in ctypes; written by tools/dev/make_abi.py."""

from __future__ import annotations

import enum
from ctypes import POINTER, Structure, c_char_p, c_float, c_int32, c_int64, c_void_p

ABI_VERSION = 0xD96132E
MAX_RANK = 8
MAX_THREADS = 1024
UPDATE_SCALARS = 16
ALIGNMENT = 64
DOT_ROWS = 48
NARROW_CHANNELS = 4
NARROW_OUTPUTS = 16
CHAIN_REGISTERS = 24
SHORT_TAPS = 508
INT_OUTPUTS = 64
INT_PANEL = 16


class Kernel(enum.IntEnum):
    """ct_kernel."""

    MATMUL = 0
    MATMUL_PANELS = 1
    MATMUL_GRAD_W = 2
    ATTENTION = 3
    ATTENTION_GRAD = 4
    CONV = 5
    CONV_PANELS = 6
    CONV_GRAD_X = 7
    CONV_GRAD_W = 8
    DEPTHWISE = 9
    DEPTHWISE_GRAD_X = 10
    DEPTHWISE_GRAD_W = 11
    MAX_POOL = 12
    MAX_POOL_GRAD = 13
    AVERAGE_POOL = 14
    AVERAGE_POOL_GRAD = 15
    RESIZE = 16
    SOFTMAX = 17
    SOFTMAX_GRAD = 18
    LOG_SOFTMAX = 19
    LOG_SOFTMAX_GRAD = 20
    SOFTMAX_CROSS_ENTROPY = 21
    MEAN_SQUARED_ERROR = 22
    MEAN_ABSOLUTE_ERROR = 23
    CHAIN = 24
    REDUCE = 25
    COPY = 26
    FILL = 27
    GATHER = 28
    SCATTER_ADD = 29
    LAYER_NORM = 30
    LAYER_NORM_GRAD = 31
    RMS_NORM = 32
    RMS_NORM_GRAD = 33
    BATCH_NORM = 34
    BATCH_NORM_GRAD = 35
    LSTM = 36
    LSTM_GRAD = 37
    GRU = 38
    GRU_GRAD = 39
    RNN = 40
    RNN_GRAD = 41
    SCAN = 42
    EXTREME = 43
    TOP = 44
    FLAT_INDEX = 45
    CLIP_FACTOR = 46
    UPDATE = 47
    GUARD_FINITE = 48
    CONV_POOL = 49
    POOL_CONV_GRAD_W = 50
    INT_CONV = 51
    INT_DEPTHWISE = 52
    INT_HYBRID = 53
    INT_SAMPLES = 54
    INT_POOL = 55
    INT_BINARY = 56
    INT_SOFTMAX = 57
    INT_TABLE = 58
    INT_ROUND = 59
    INT_WIDEN = 60
    INT_SETTLE = 61


class Act(enum.IntEnum):
    """ct_act."""

    NONE = 0
    RELU = 1
    RELU_N1_TO_1 = 2
    RELU6 = 3
    TANH = 4
    SWISH = 6
    HARD_SWISH = 7


class UpdateKind(enum.IntEnum):
    """ct_update_kind."""

    NONE = 0
    SGD = 1
    MOMENTUM = 2
    NESTEROV = 3
    ADAM = 4
    ADAMW_TORCH = 5
    ADAMW_ORT = 6
    RMSPROP = 7
    RMSPROP_CENTERED = 8
    RMSPROP_MOMENTUM = 9
    RMSPROP_CENTERED_MOMENTUM = 10
    ADAGRAD = 11


class Scalar(enum.IntEnum):
    """ct_scalar."""

    STEP = 0
    BETA1 = 1
    BETA2 = 2
    EPS = 3
    DECAY = 4
    SQRT_BIAS2 = 5
    ONE_MINUS_BETA1 = 6
    ONE_MINUS_BETA2 = 7
    LIMIT = 8


class Bf16(enum.IntFlag):
    """ct_bf16."""

    OPERANDS = 1
    X = 2
    Y = 4
    MASK = 8
    ADD = 16


class IntType(enum.IntEnum):
    """ct_int_type."""

    INT8 = 0
    UINT8 = 1
    INT16 = 2


class DataType(enum.IntEnum):
    """ct_data_type."""

    F32 = 0
    I32 = 1
    U8 = 2
    I64 = 3
    BITS = 4
    BF16 = 5


class ChainOp(enum.IntEnum):
    """ct_chain_op."""

    CONST = 0
    COPY = 1
    ADD = 2
    SUB = 3
    MUL = 4
    DIV = 5
    MAX = 6
    MIN = 7
    ADD_IMM = 8
    MUL_IMM = 9
    MAX_IMM = 10
    MIN_IMM = 11
    NEG = 12
    ABS = 13
    SIGN = 14
    SQUARE = 15
    SQRT = 16
    RSQRT = 17
    RECIPROCAL = 18
    EXP = 19
    LOG = 20
    TANH = 21
    LOGISTIC = 22
    ERF = 23
    GELU = 24
    GELU_GRAD = 25
    GELU_TANH = 26
    GELU_TANH_GRAD = 27
    HARD_SWISH = 28
    HARD_SWISH_GRAD = 29
    RELU_MASK = 30
    RELU6_MASK = 31
    RELU_N1_TO_1_MASK = 32
    TANH_GRAD = 33
    LOGISTIC_GRAD = 34
    POW_IMM = 35
    POW = 36
    SELECT = 37
    LESS = 38
    LESS_EQUAL = 39
    GREATER = 40
    GREATER_EQUAL = 41
    EQUAL = 42
    NOT_EQUAL = 43
    FLOOR = 44
    CEIL = 45
    ROUND = 46
    SIN = 47
    COS = 48
    MUL_ADD = 49
    LOGICAL_NOT = 50
    LOGICAL_AND = 51
    LOGICAL_OR = 52
    LEAKY_RELU = 53
    LEAKY_RELU_GRAD = 54
    ELU = 55
    ELU_GRAD = 56
    SOFTPLUS = 57
    ROUND_BF16 = 58
    FLOOR_MOD = 59
    ATAN2 = 60


class Reduce(enum.IntEnum):
    """ct_reduce."""

    SUM = 0
    MAX = 1
    MIN = 2
    SUM_SQUARES = 3
    PROD = 4


class Rounding(enum.IntEnum):
    """ct_rounding."""

    XNNPACK = 0
    OWN = 1
    SYMMETRIC = 2


class Status(enum.IntEnum):
    """ct_status."""

    OK = 0
    BAD_INDEX = 1
    BAD_KERNEL = 2
    NOT_FINITE = 3


class Tier(enum.IntEnum):
    """ct_tier."""

    AUTO = -1
    PORTABLE = 0
    AVX2 = 1
    AVX512 = 2


class Update(Structure):
    """ct_update."""

    _fields_ = [
        ("g", c_void_p),
        ("w", c_void_p),
        ("m", c_void_p),
        ("v", c_void_p),
        ("scalars", c_void_p),
        ("kind", c_int32),
        ("accumulate", c_int32),
        ("a", c_void_p),
        ("factor", c_void_p),
        ("unit", c_void_p),
        ("unit_each", c_int64),
        ("unit_count", c_int64),
    ]


class UpdateArgs(Structure):
    """ct_update_args."""

    _fields_ = [
        ("grad", c_void_p),
        ("size", c_int64),
        ("update", Update),
    ]


class IntWidenArgs(Structure):
    """ct_int_widen_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("scale", c_void_p),
        ("zero", c_void_p),
        ("outer", c_int64),
        ("channels", c_int64),
        ("inner", c_int64),
        ("type", c_int32),
    ]


class Labels(Structure):
    """ct_labels."""

    _fields_ = [
        ("label", c_void_p),
        ("top", c_void_p),
        ("rate", c_void_p),
        ("scale", c_float),
    ]


class MatmulArgs(Structure):
    """ct_matmul_args."""

    _fields_ = [
        ("a", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("bias", c_void_p),
        ("add", c_void_p),
        ("out_mask_y", c_void_p),
        ("batch0", c_int64),
        ("batch1", c_int64),
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("a_row", c_int64),
        ("a_col", c_int64),
        ("b_row", c_int64),
        ("b_col", c_int64),
        ("c_row", c_int64),
        ("a_batch0", c_int64),
        ("a_batch1", c_int64),
        ("b_batch0", c_int64),
        ("b_batch1", c_int64),
        ("c_batch0", c_int64),
        ("c_batch1", c_int64),
        ("alpha", c_float),
        ("act", c_int32),
        ("out_mask_act", c_int32),
        ("accumulate", c_int32),
        ("bf16", c_int32),
        ("stored", IntWidenArgs),
        ("labels", Labels),
        ("panels", c_void_p),
    ]


class Matrices(Structure):
    """ct_matrices."""

    _fields_ = [
        ("at", c_void_p),
        ("batch0", c_int64),
        ("batch1", c_int64),
        ("row", c_int64),
    ]


class AttentionArgs(Structure):
    """ct_attention_args."""

    _fields_ = [
        ("q", Matrices),
        ("k", Matrices),
        ("v", Matrices),
        ("mask", Matrices),
        ("y", Matrices),
        ("dy", Matrices),
        ("dq", Matrices),
        ("dk", Matrices),
        ("dv", Matrices),
        ("batch0", c_int64),
        ("batch1", c_int64),
        ("rows", c_int64),
        ("cols", c_int64),
        ("depth", c_int64),
        ("width", c_int64),
        ("scale", c_float),
        ("mask_scale", c_float),
    ]


class MatmulGradWArgs(Structure):
    """ct_matmul_grad_w_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("x", c_void_p),
        ("rows", c_int64),
        ("out_features", c_int64),
        ("in_features", c_int64),
        ("w", Update),
        ("b", Update),
        ("has_w", c_int32),
        ("has_b", c_int32),
        ("bf16", c_int32),
        ("labels", Labels),
    ]


class ConvShape(Structure):
    """ct_conv_shape."""

    _fields_ = [
        ("batch", c_int64),
        ("in_h", c_int64),
        ("in_w", c_int64),
        ("in_c", c_int64),
        ("out_h", c_int64),
        ("out_w", c_int64),
        ("out_c", c_int64),
        ("kernel_h", c_int64),
        ("kernel_w", c_int64),
        ("stride_h", c_int64),
        ("stride_w", c_int64),
        ("dilation_h", c_int64),
        ("dilation_w", c_int64),
        ("pad_top", c_int64),
        ("pad_left", c_int64),
        ("groups", c_int64),
    ]


class ConvArgs(Structure):
    """ct_conv_args."""

    _fields_ = [
        ("x", c_void_p),
        ("w", c_void_p),
        ("b", c_void_p),
        ("add", c_void_p),
        ("y", c_void_p),
        ("shape", ConvShape),
        ("act", c_int32),
        ("bf16", c_int32),
        ("stored", IntWidenArgs),
        ("panels", c_void_p),
    ]


class ConvGradXArgs(Structure):
    """ct_conv_grad_x_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("w", c_void_p),
        ("out_mask_y", c_void_p),
        ("dx", c_void_p),
        ("shape", ConvShape),
        ("out_mask_act", c_int32),
        ("accumulate", c_int32),
        ("bf16", c_int32),
        ("stored", IntWidenArgs),
    ]


class ConvGradWArgs(Structure):
    """ct_conv_grad_w_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("x", c_void_p),
        ("shape", ConvShape),
        ("w", Update),
        ("b", Update),
        ("has_w", c_int32),
        ("has_b", c_int32),
        ("bf16", c_int32),
    ]


class PoolArgs(Structure):
    """ct_pool_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("index", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("out_mask_y", c_void_p),
        ("shape", ConvShape),
        ("act", c_int32),
        ("out_mask_act", c_int32),
        ("accumulate", c_int32),
    ]


class ResizeAxis(Structure):
    """ct_resize_axis."""

    _fields_ = [
        ("starts", c_void_p),
        ("index", c_void_p),
        ("weight", c_void_p),
    ]


class ResizeArgs(Structure):
    """ct_resize_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("batch", c_int64),
        ("in_h", c_int64),
        ("in_w", c_int64),
        ("out_h", c_int64),
        ("out_w", c_int64),
        ("channels", c_int64),
        ("rows", ResizeAxis),
        ("columns", ResizeAxis),
    ]


class ConvPoolArgs(Structure):
    """ct_conv_pool_args."""

    _fields_ = [
        ("conv", ConvArgs),
        ("pool", PoolArgs),
    ]


class PoolConvGradWArgs(Structure):
    """ct_pool_conv_grad_w_args."""

    _fields_ = [
        ("pool", PoolArgs),
        ("conv", ConvGradWArgs),
    ]


class SoftmaxArgs(Structure):
    """ct_softmax_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("beta", c_float),
        ("accumulate", c_int32),
    ]


class CrossEntropyArgs(Structure):
    """ct_cross_entropy_args."""

    _fields_ = [
        ("logits", c_void_p),
        ("target", c_void_p),
        ("labels", c_void_p),
        ("loss", c_void_p),
        ("row_loss", c_void_p),
        ("dz", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("loss_scale", c_float),
        ("grad_scale", c_float),
        ("ignore_label", c_int32),
        ("skip_outside", c_int32),
        ("top", c_void_p),
        ("rate", c_void_p),
        ("probabilities", c_int32),
    ]


class RegressionLossArgs(Structure):
    """ct_regression_loss_args."""

    _fields_ = [
        ("p", c_void_p),
        ("target", c_void_p),
        ("loss", c_void_p),
        ("dp", c_void_p),
        ("size", c_int64),
        ("loss_scale", c_float),
        ("grad_scale", c_float),
    ]


class GuardArgs(Structure):
    """ct_guard_args."""

    _fields_ = [
        ("x", c_void_p),
        ("size", c_int64),
    ]


class ChainTensor(Structure):
    """ct_chain_tensor."""

    _fields_ = [
        ("data", c_void_p),
        ("strides", c_int64 * MAX_RANK),
        ("dtype", c_int32),
        ("reg", c_int32),
    ]


class ChainOperation(Structure):
    """ct_chain_operation."""

    _fields_ = [
        ("op", c_int32),
        ("dst", c_int32),
        ("a", c_int32),
        ("b", c_int32),
        ("c", c_int32),
        ("imm", c_float),
    ]


class ChainArgs(Structure):
    """ct_chain_args."""

    _fields_ = [
        ("inputs", POINTER(ChainTensor)),
        ("outputs", POINTER(ChainTensor)),
        ("ops", POINTER(ChainOperation)),
        ("shape", c_int64 * MAX_RANK),
        ("rank", c_int32),
        ("input_count", c_int32),
        ("output_count", c_int32),
        ("op_count", c_int32),
    ]


class ReduceArgs(Structure):
    """ct_reduce_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("shape", c_int64 * MAX_RANK),
        ("reduce", c_int32 * MAX_RANK),
        ("rank", c_int32),
        ("op", c_int32),
        ("scale", c_float),
        ("accumulate", c_int32),
    ]


class CopyArgs(Structure):
    """ct_copy_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("shape", c_int64 * MAX_RANK),
        ("x_strides", c_int64 * MAX_RANK),
        ("y_strides", c_int64 * MAX_RANK),
        ("rank", c_int32),
        ("element_size", c_int32),
    ]


class FillArgs(Structure):
    """ct_fill_args."""

    _fields_ = [
        ("y", c_void_p),
        ("size", c_int64),
        ("value_bits", c_int32),
    ]


class GatherArgs(Structure):
    """ct_gather_args."""

    _fields_ = [
        ("x", c_void_p),
        ("index", c_void_p),
        ("y", c_void_p),
        ("outer", c_int64),
        ("rows", c_int64),
        ("width", c_int64),
        ("count", c_int64),
        ("index_bytes", c_int32),
    ]


class ScatterAddArgs(Structure):
    """ct_scatter_add_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("index", c_void_p),
        ("outer", c_int64),
        ("rows", c_int64),
        ("width", c_int64),
        ("count", c_int64),
        ("update", Update),
        ("index_bytes", c_int32),
    ]


class NormArgs(Structure):
    """ct_norm_args."""

    _fields_ = [
        ("x", c_void_p),
        ("add", c_void_p),
        ("gamma", c_void_p),
        ("beta", c_void_p),
        ("y", c_void_p),
        ("sum", c_void_p),
        ("mean", c_void_p),
        ("rstd", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("eps", c_float),
    ]


class NormGradArgs(Structure):
    """ct_norm_grad_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("x", c_void_p),
        ("gamma_values", c_void_p),
        ("mean", c_void_p),
        ("rstd", c_void_p),
        ("dx", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("gamma", Update),
        ("beta", Update),
        ("accumulate", c_int32),
        ("has_gamma", c_int32),
        ("has_beta", c_int32),
    ]


class BatchNormArgs(Structure):
    """ct_batch_norm_args."""

    _fields_ = [
        ("x", c_void_p),
        ("gamma", c_void_p),
        ("beta", c_void_p),
        ("add", c_void_p),
        ("y", c_void_p),
        ("mean", c_void_p),
        ("variance", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("eps", c_float),
        ("act", c_int32),
        ("given", c_int32),
    ]


class BatchNormGradArgs(Structure):
    """ct_batch_norm_grad_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("x", c_void_p),
        ("gamma", c_void_p),
        ("beta", c_void_p),
        ("mean", c_void_p),
        ("variance", c_void_p),
        ("dx", c_void_p),
        ("dgamma", c_void_p),
        ("dbeta", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("eps", c_float),
        ("act", c_int32),
    ]


class RecurrentArgs(Structure):
    """ct_recurrent_args."""

    _fields_ = [
        ("gate0", c_void_p),
        ("gate1", c_void_p),
        ("gate2", c_void_p),
        ("gate3", c_void_p),
        ("r0", c_void_p),
        ("r1", c_void_p),
        ("r2", c_void_p),
        ("r3", c_void_p),
        ("bias0", c_void_p),
        ("bias1", c_void_p),
        ("bias2", c_void_p),
        ("bias3", c_void_p),
        ("h0", c_void_p),
        ("c0", c_void_p),
        ("h1", c_void_p),
        ("c1", c_void_p),
        ("c", c_void_p),
        ("before", c_void_p),
        ("y", c_void_p),
        ("dy", c_void_p),
        ("dh0", c_void_p),
        ("dc0", c_void_p),
        ("steps", c_int64),
        ("samples", c_int64),
        ("units", c_int64),
        ("time_row", c_int64),
        ("sample_row", c_int64),
        ("y_time_row", c_int64),
        ("y_sample_row", c_int64),
        ("gates", c_int32),
        ("backwards", c_int32),
        ("act", c_int32),
    ]


class ScanArgs(Structure):
    """ct_scan_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("outer", c_int64),
        ("size", c_int64),
        ("inner", c_int64),
        ("op", c_int32),
        ("exclusive", c_int32),
        ("reverse", c_int32),
    ]


class ExtremeArgs(Structure):
    """ct_extreme_args."""

    _fields_ = [
        ("x", c_void_p),
        ("place", c_void_p),
        ("outer", c_int64),
        ("size", c_int64),
        ("inner", c_int64),
        ("op", c_int32),
        ("place_bytes", c_int32),
    ]


class TopArgs(Structure):
    """ct_top_args."""

    _fields_ = [
        ("x", c_void_p),
        ("values", c_void_p),
        ("places", c_void_p),
        ("dy", c_void_p),
        ("dx", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("k", c_int64),
    ]


class FlatIndexArgs(Structure):
    """ct_flat_index_args."""

    _fields_ = [
        ("coordinates", c_void_p),
        ("flat", c_void_p),
        ("sizes", c_int64 * MAX_RANK),
        ("count", c_int64),
        ("group", c_int64),
        ("depth", c_int32),
        ("index_bytes", c_int32),
        ("wraps", c_int32),
        ("drops", c_int32),
    ]


class ClipFactorArgs(Structure):
    """ct_clip_factor_args."""

    _fields_ = [
        ("sums", c_void_p),
        ("factor", c_void_p),
        ("parts", c_int64),
        ("limit", c_float),
    ]


class IntConvArgs(Structure):
    """ct_int_conv_args."""

    _fields_ = [
        ("x", c_void_p),
        ("w", c_void_p),
        ("bias", c_void_p),
        ("scale", c_void_p),
        ("shift", c_void_p),
        ("y", c_void_p),
        ("shape", ConvShape),
        ("x_flip", c_int32),
        ("x_zero", c_int32),
        ("w_zero", c_int32),
        ("y_zero", c_int32),
        ("low", c_int32),
        ("high", c_int32),
    ]


class IntHybridArgs(Structure):
    """ct_int_hybrid_args."""

    _fields_ = [
        ("x", c_void_p),
        ("w", c_void_p),
        ("w_sums", c_void_p),
        ("w_scale", c_void_p),
        ("bias", c_void_p),
        ("y", c_void_p),
        ("shape", ConvShape),
        ("samples", c_int64),
        ("low", c_float),
        ("high", c_float),
        ("rounding", c_int32),
    ]


class IntSamplesArgs(Structure):
    """ct_int_samples_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("samples", c_int64),
        ("each", c_int64),
        ("rounding", c_int32),
    ]


class IntPoolArgs(Structure):
    """ct_int_pool_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("shape", ConvShape),
        ("x_flip", c_int32),
        ("x_zero", c_int32),
        ("y_zero", c_int32),
        ("low", c_int32),
        ("high", c_int32),
        ("op", c_int32),
        ("scale", c_float),
    ]


class IntBinaryArgs(Structure):
    """ct_int_binary_args."""

    _fields_ = [
        ("a", c_void_p),
        ("b", c_void_p),
        ("y", c_void_p),
        ("shape", c_int64 * MAX_RANK),
        ("a_strides", c_int64 * MAX_RANK),
        ("b_strides", c_int64 * MAX_RANK),
        ("rank", c_int32),
        ("a_flip", c_int32),
        ("b_flip", c_int32),
        ("y_zero", c_int32),
        ("low", c_int32),
        ("high", c_int32),
        ("scale_a", c_float),
        ("scale_b", c_float),
        ("scale_ab", c_float),
        ("offset", c_float),
        ("factor_a", c_int32),
        ("factor_b", c_int32),
        ("bias", c_int32),
        ("shift", c_int32),
    ]


class IntSoftmaxArgs(Structure):
    """ct_int_softmax_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("power", c_void_p),
        ("inverse", c_void_p),
        ("rows", c_int64),
        ("cols", c_int64),
        ("x_flip", c_int32),
        ("y_zero", c_int32),
        ("low", c_int32),
        ("high", c_int32),
        ("scale", c_float),
    ]


class IntTableArgs(Structure):
    """ct_int_table_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("table", c_void_p),
        ("rows", c_int64),
        ("width", c_int64),
        ("x_row", c_int64),
        ("y_row", c_int64),
        ("element_size", c_int32),
    ]


class IntRoundArgs(Structure):
    """ct_int_round_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("size", c_int64),
        ("y_zero", c_int32),
        ("low", c_int32),
        ("high", c_int32),
        ("type", c_int32),
        ("scale", c_float),
    ]


class IntSettleArgs(Structure):
    """ct_int_settle_args."""

    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("bytes", c_void_p),
        ("bits", c_void_p),
        ("size", c_int64),
        ("inverse", c_float),
        ("scale", c_float),
        ("zero", c_float),
        ("low", c_float),
        ("high", c_float),
        ("pass_low", c_float),
        ("pass_high", c_float),
    ]


class Step(Structure):
    """ct_step."""

    _fields_ = [
        ("args", c_void_p),
        ("kernel", c_int32),
    ]


ARGS: dict[Kernel, type[Structure]] = {
    Kernel.MATMUL: MatmulArgs,
    Kernel.MATMUL_PANELS: MatmulArgs,
    Kernel.MATMUL_GRAD_W: MatmulGradWArgs,
    Kernel.ATTENTION: AttentionArgs,
    Kernel.ATTENTION_GRAD: AttentionArgs,
    Kernel.CONV: ConvArgs,
    Kernel.CONV_PANELS: ConvArgs,
    Kernel.CONV_GRAD_X: ConvGradXArgs,
    Kernel.CONV_GRAD_W: ConvGradWArgs,
    Kernel.DEPTHWISE: ConvArgs,
    Kernel.DEPTHWISE_GRAD_X: ConvGradXArgs,
    Kernel.DEPTHWISE_GRAD_W: ConvGradWArgs,
    Kernel.MAX_POOL: PoolArgs,
    Kernel.MAX_POOL_GRAD: PoolArgs,
    Kernel.AVERAGE_POOL: PoolArgs,
    Kernel.AVERAGE_POOL_GRAD: PoolArgs,
    Kernel.RESIZE: ResizeArgs,
    Kernel.SOFTMAX: SoftmaxArgs,
    Kernel.SOFTMAX_GRAD: SoftmaxArgs,
    Kernel.LOG_SOFTMAX: SoftmaxArgs,
    Kernel.LOG_SOFTMAX_GRAD: SoftmaxArgs,
    Kernel.SOFTMAX_CROSS_ENTROPY: CrossEntropyArgs,
    Kernel.MEAN_SQUARED_ERROR: RegressionLossArgs,
    Kernel.MEAN_ABSOLUTE_ERROR: RegressionLossArgs,
    Kernel.CHAIN: ChainArgs,
    Kernel.REDUCE: ReduceArgs,
    Kernel.COPY: CopyArgs,
    Kernel.FILL: FillArgs,
    Kernel.GATHER: GatherArgs,
    Kernel.SCATTER_ADD: ScatterAddArgs,
    Kernel.LAYER_NORM: NormArgs,
    Kernel.LAYER_NORM_GRAD: NormGradArgs,
    Kernel.RMS_NORM: NormArgs,
    Kernel.RMS_NORM_GRAD: NormGradArgs,
    Kernel.BATCH_NORM: BatchNormArgs,
    Kernel.BATCH_NORM_GRAD: BatchNormGradArgs,
    Kernel.LSTM: RecurrentArgs,
    Kernel.LSTM_GRAD: RecurrentArgs,
    Kernel.GRU: RecurrentArgs,
    Kernel.GRU_GRAD: RecurrentArgs,
    Kernel.RNN: RecurrentArgs,
    Kernel.RNN_GRAD: RecurrentArgs,
    Kernel.SCAN: ScanArgs,
    Kernel.EXTREME: ExtremeArgs,
    Kernel.TOP: TopArgs,
    Kernel.FLAT_INDEX: FlatIndexArgs,
    Kernel.CLIP_FACTOR: ClipFactorArgs,
    Kernel.UPDATE: UpdateArgs,
    Kernel.GUARD_FINITE: GuardArgs,
    Kernel.CONV_POOL: ConvPoolArgs,
    Kernel.POOL_CONV_GRAD_W: PoolConvGradWArgs,
    Kernel.INT_CONV: IntConvArgs,
    Kernel.INT_DEPTHWISE: IntConvArgs,
    Kernel.INT_HYBRID: IntHybridArgs,
    Kernel.INT_SAMPLES: IntSamplesArgs,
    Kernel.INT_POOL: IntPoolArgs,
    Kernel.INT_BINARY: IntBinaryArgs,
    Kernel.INT_SOFTMAX: IntSoftmaxArgs,
    Kernel.INT_TABLE: IntTableArgs,
    Kernel.INT_ROUND: IntRoundArgs,
    Kernel.INT_WIDEN: IntWidenArgs,
    Kernel.INT_SETTLE: IntSettleArgs,
}
"""The struct that each kernel takes."""
FUNCTIONS: tuple[tuple[str, type | None, tuple[type, ...]], ...] = (
    ("ct_abi_version", c_int32, ()),
    ("ct_args_size", c_int64, (c_int32,)),
    ("ct_kernel_name", c_char_p, (c_int32,)),
    ("ct_best_tier", c_int32, ()),
    ("ct_workers_create", c_void_p, (c_int32, c_int32)),
    ("ct_workers_destroy", None, (c_void_p,)),
    ("ct_workers_count", c_int32, (c_void_p,)),
    ("ct_workers_tier", c_int32, (c_void_p,)),
    ("ct_workers_has_bf16", c_int32, (c_void_p,)),
    ("ct_scratch_bytes", c_int64, (c_void_p, c_int32, c_void_p)),
    ("ct_run", c_int32, (c_void_p, POINTER(Step), c_int64, c_void_p, c_void_p)),
)
"""Name, result, parameters."""
