"""The structs of kernels/run/abi.h in ctypes, field by field."""

from __future__ import annotations

from ctypes import POINTER, Array, Structure, c_float, c_int32, c_int64, c_void_p

from circle_train.backends.native.engine.codes import MAX_RANK

Sizes: type[Array[c_int64]] = c_int64 * MAX_RANK
Flags: type[Array[c_int32]] = c_int32 * MAX_RANK


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
    ]


class UpdateArgs(Structure):
    """ct_update_args."""

    _fields_ = [
        ("grad", c_void_p),
        ("size", c_int64),
        ("update", Update),
    ]


class MatmulArgs(Structure):
    """ct_matmul_args."""

    _fields_ = [
        ("a", c_void_p),
        ("b", c_void_p),
        ("c", c_void_p),
        ("bias", c_void_p),
        ("add", c_void_p),
        ("a_mask_y", c_void_p),
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
        ("a_mask_act", c_int32),
        ("out_mask_act", c_int32),
        ("accumulate", c_int32),
        ("halves", c_int32),
    ]


class MatmulGradWArgs(Structure):
    """ct_matmul_grad_w_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("y", c_void_p),
        ("x", c_void_p),
        ("rows", c_int64),
        ("out_features", c_int64),
        ("in_features", c_int64),
        ("w", Update),
        ("b", Update),
        ("act", c_int32),
        ("has_w", c_int32),
        ("has_b", c_int32),
        ("halves", c_int32),
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
        ("halves", c_int32),
    ]


class ConvGradXArgs(Structure):
    """ct_conv_grad_x_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("y", c_void_p),
        ("w", c_void_p),
        ("out_mask_y", c_void_p),
        ("dx", c_void_p),
        ("shape", ConvShape),
        ("act", c_int32),
        ("out_mask_act", c_int32),
        ("accumulate", c_int32),
        ("halves", c_int32),
    ]


class ConvGradWArgs(Structure):
    """ct_conv_grad_w_args."""

    _fields_ = [
        ("dy", c_void_p),
        ("y", c_void_p),
        ("x", c_void_p),
        ("shape", ConvShape),
        ("w", Update),
        ("b", Update),
        ("act", c_int32),
        ("has_w", c_int32),
        ("has_b", c_int32),
        ("halves", c_int32),
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
        ("reserved", c_int32),
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
        ("unit_targets", c_int32),
        ("ignore_label", c_int32),
        ("probabilities", c_int32),
        ("reserved", c_int32),
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
        ("strides", Sizes),
        ("dtype", c_int32),
        ("reg", c_int32),
    ]


class ChainOperation(Structure):
    """ct_chain_op."""

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
        ("shape", Sizes),
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
        ("shape", Sizes),
        ("reduce", Flags),
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
        ("shape", Sizes),
        ("x_strides", Sizes),
        ("y_strides", Sizes),
        ("rank", c_int32),
        ("element_size", c_int32),
    ]


class FillArgs(Structure):
    """ct_fill_args."""

    _fields_ = [
        ("y", c_void_p),
        ("size", c_int64),
        ("value_bits", c_int32),
        ("reserved", c_int32),
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
        ("reserved", c_int32),
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
        ("reserved", c_int32),
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
        ("reserved", c_int32),
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
        ("reserved", c_int32),
    ]


class Step(Structure):
    """ct_step."""

    _fields_ = [
        ("args", c_void_p),
        ("kernel", c_int32),
        ("reserved", c_int32),
    ]
