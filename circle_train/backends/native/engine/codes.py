"""The numbers of kernels/run/abi.h: kernels, statuses, tiers, rules, element types, opcodes."""

from __future__ import annotations

import enum

VERSION = 3
MAX_RANK = 8
MAX_THREADS = 1024
UPDATE_SCALARS = 16
CHAIN_REGISTERS = 24


class Kernel(enum.IntEnum):
    """ct_kernel."""

    MATMUL = 0
    MATMUL_GRAD_W = 1
    CONV = 2
    CONV_GRAD_X = 3
    CONV_GRAD_W = 4
    DEPTHWISE = 5
    DEPTHWISE_GRAD_X = 6
    DEPTHWISE_GRAD_W = 7
    MAX_POOL = 8
    MAX_POOL_GRAD = 9
    AVERAGE_POOL = 10
    AVERAGE_POOL_GRAD = 11
    SOFTMAX = 12
    SOFTMAX_GRAD = 13
    LOG_SOFTMAX = 14
    LOG_SOFTMAX_GRAD = 15
    SOFTMAX_CROSS_ENTROPY = 16
    MEAN_SQUARED_ERROR = 17
    MEAN_ABSOLUTE_ERROR = 18
    CHAIN = 19
    REDUCE = 20
    COPY = 21
    FILL = 22
    GATHER = 23
    SCATTER_ADD = 24
    LAYER_NORM = 25
    LAYER_NORM_GRAD = 26
    RMS_NORM = 27
    RMS_NORM_GRAD = 28
    UPDATE = 29
    GUARD_FINITE = 30
    CONV_POOL = 31
    POOL_CONV_GRAD_W = 32


class Status(enum.IntEnum):
    """ct_status."""

    OK = 0
    CANCELLED = 1
    BAD_INDEX = 2
    BAD_KERNEL = 3
    NOT_FINITE = 4


class Tier(enum.IntEnum):
    """ct_tier."""

    AUTO = -1
    PORTABLE = 0
    AVX2 = 1
    AVX512 = 2


class Half(enum.IntFlag):
    """ct_half."""

    OPERANDS = 1
    X = 2
    Y = 4
    MASK = 8
    ADD = 16


class UpdateKind(enum.IntEnum):
    """ct_update_kind."""

    NONE = 0
    SGD = 1
    MOMENTUM = 2
    NESTEROV = 3
    ADAM = 4
    ADAM_TORCH = 5
    ADAMW_TORCH = 6
    ADAMW_ORT = 7


class Scalar(enum.IntEnum):
    """ct_update_scalar."""

    STEP = 0
    BETA1 = 1
    BETA2 = 2
    EPS = 3
    DECAY = 4
    SQRT_BIAS2 = 5
    ONE_MINUS_BETA1 = 6
    ONE_MINUS_BETA2 = 7
    GRAD_SCALE = 8


class DataType(enum.IntEnum):
    """ct_dtype."""

    F32 = 0
    I32 = 1
    U8 = 2
    I64 = 3
    BITS = 4
    BF16 = 5


class Reduce(enum.IntEnum):
    """ct_reduce_op."""

    SUM = 0
    MAX = 1
    MIN = 2
    SUM_SQUARES = 3
    PROD = 4


class ChainOp(enum.IntEnum):
    """ct_chain_opcode."""

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
