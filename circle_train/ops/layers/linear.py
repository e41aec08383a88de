"""Matrix products."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import zip_longest
from math import prod

import numpy as np

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation, WeightsFormat
from circle_train.ops.axes import Matrix
from circle_train.ops.base import Example, Op, random, register
from circle_train.ops.elementwise import common_size
from circle_train.ops.integers import InIntegers
from circle_train.ops.versions import INT8_INT16, Versions, has_scales, is_hybrid, option, when
from circle_train.ops.window import check_bias, check_floats, check_rank
from circle_train.record import record


@register("FULLY_CONNECTED", "FullyConnectedOptions")
@record
class FullyConnected(Op):
    """y = x wᵀ + b; w: outputs × inputs; x of any rank is cut into rows of `inputs` elements."""

    fused_activation_function: Activation = Activation.NONE
    weights_format: WeightsFormat = WeightsFormat.DEFAULT
    keep_num_dims: bool = False
    asymmetric_quantize_inputs: bool = False
    quantized_bias_type: DType = DType.FLOAT32

    parameters = ("w", "b")
    by_channel = "w"
    axes = Matrix(is_layer=True)
    in_integers = InIntegers(weights={"w": 0}, takes=1, bias="b", dynamic=True)
    versions = Versions(
        {DType.INT8: 4, DType.INT16: 7},
        (
            when(6, lambda node, inputs: len(node.inputs) == 2),
            option(5, "keep_num_dims"),
            when(9, is_hybrid),
            when(12, lambda node, inputs: has_scales(inputs[1])),
        ),
    )

    def infer(self, x: TensorType, w: TensorType, b: TensorType | None = None) -> TensorType:
        if self.weights_format is not WeightsFormat.DEFAULT:
            raise UnsupportedOpError(
                f"{self.name}: weights lie in the format {self.weights_format.name}, only DEFAULT is "
                "computed; export the model with plain float weights"
            )
        check_rank(self.name, 2, weights=w)
        check_floats(self.name, x, w, b)
        outputs, taken = w.shape
        known = prod(size for size in x.shape if size >= 0)
        last = x.shape[-1] if x.shape else 1
        if taken < 1 or (x.is_static and known % taken) or (self.keep_num_dims and last not in (-1, taken)):
            raise ModelError(
                f"{self.name}: input is {x}, weights take {taken} inputs ({w}); the input's "
                f"{'last dimension' if self.keep_num_dims else 'number of elements'} must be "
                f"{'' if self.keep_num_dims else 'a multiple of '}{taken}"
            )
        check_bias(self.name, b, outputs)
        if self.keep_num_dims:
            return TensorType(x.dtype, (*x.shape[:-1], outputs))
        return TensorType(x.dtype, (known // taken if x.is_static else -1, outputs))

    def forward(self, x: Array, w: Array, b: Array | None = None) -> Array:
        y = x.reshape(-1, w.shape[1]) @ w.T
        if b is not None:
            y += b.reshape(-1)
        shape = (*x.shape[:-1], w.shape[0]) if self.keep_num_dims else y.shape
        return np.reshape(y, shape)

    def grad_x(self, dy: Array, w: Array, x_shape: tuple[int, ...]) -> Array:
        return (dy.reshape(-1, w.shape[0]) @ w).reshape(x_shape)

    def grad_w(self, dy: Array, x: Array, w_shape: tuple[int, ...]) -> Array:
        dw: Array = dy.reshape(-1, w_shape[0]).T @ x.reshape(-1, w_shape[1])
        return dw

    def grad_b(self, dy: Array) -> Array:
        return dy

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        w = inputs[1]
        return 2 * outputs[0].size * (w.shape[1] if w else 1)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        w, b = random(4, 6), random(4)
        yield Example(cls(), (random(3, 6), w, b))
        yield Example(cls(), (random(3, 6), w, None))
        yield Example(cls(), (random(6), w))
        for x in (random(2, 3, 6), random(2, 3, 2), random(2, 1, 2, 3), random(2, 2, 2, 2, 3)):
            yield Example(cls(), (x, w, b))
        for x in (random(5, 6), random(2, 3, 6), random(2, 2, 3, 6)):
            yield Example(cls(keep_num_dims=True), (x, w, b))
            yield Example(cls(keep_num_dims=True), (x, w))
        for activation in (Activation.RELU, Activation.RELU6, Activation.RELU_N1_TO_1, Activation.TANH):
            yield Example(cls(activation), (random(3, 6, low=-5, high=5), w, b))


@register("BATCH_MATMUL", "BatchMatMulOptions")
@record
class BatchMatMul(Op):
    """Products of the last two axes, the others broadcasting; `adjoint` swaps an operand's last two axes."""

    adjoint_lhs: bool = False
    adjoint_rhs: bool = False
    asymmetric_quantize_inputs: bool = False

    parameters = ("x", "w")
    axes = Matrix()
    in_integers = InIntegers(data=("x", "w"))
    versions = Versions(INT8_INT16)

    def infer(self, x: TensorType, w: TensorType) -> TensorType:
        check_floats(self.name, x, w)
        if min(x.rank, w.rank) < 2:
            raise ModelError(
                f"{self.name}: operands are {x} and {w}, expected at least rank 2 each; insert a RESHAPE"
            )
        rows, inner = x.shape[-2:] if not self.adjoint_lhs else (x.shape[-1], x.shape[-2])
        taken, columns = w.shape[-2:] if not self.adjoint_rhs else (w.shape[-1], w.shape[-2])
        if inner != taken and -1 not in (inner, taken):
            raise ModelError(
                f"{self.name}: {inner} columns meet {taken} rows (operands {x} and {w}, adjoint_lhs "
                f"{self.adjoint_lhs}, adjoint_rhs {self.adjoint_rhs}); the two must be equal"
            )
        pairs = zip_longest(x.shape[-3::-1], w.shape[-3::-1], fillvalue=1)
        batch = [size for pair in pairs if (size := common_size(pair)) is not None]
        if len(batch) < max(x.rank, w.rank) - 2:
            raise ModelError(
                f"{self.name}: leading sizes of {x} and {w} do not broadcast; make them equal or 1"
            )
        return TensorType(x.dtype, (*reversed(batch), rows, columns))

    def forward(self, x: Array, w: Array) -> Array:
        product: Array = np.matmul(_turned(x, self.adjoint_lhs), _turned(w, self.adjoint_rhs))
        return product

    def grad_x(self, dy: Array, w: Array) -> Array:
        return _turned(np.matmul(dy, _turned(w, not self.adjoint_rhs)), self.adjoint_lhs)

    def grad_w(self, dy: Array, x: Array) -> Array:
        return _turned(np.matmul(_turned(x, not self.adjoint_lhs), dy), self.adjoint_rhs)

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        x = inputs[0]
        return 2 * outputs[0].size * (x.shape[-2 if self.adjoint_lhs else -1] if x else 1)

    @classmethod
    def examples(cls) -> Iterable[Example]:
        yield Example(cls(), (random(3, 4), random(4, 5)))
        yield Example(cls(True, False), (random(2, 4, 3), random(2, 4, 5)))
        yield Example(cls(False, True), (random(2, 3, 4), random(2, 5, 4)))
        yield Example(cls(True, True), (random(2, 4, 3), random(2, 5, 4)))
        for first, second in (
            ((2, 1), (1, 3)),
            ((3,), (2, 3)),
            ((2, 3), ()),
            ((), (2, 3)),
            ((1,), (2,)),
            ((2, 1, 3), (4, 1)),
        ):
            yield Example(cls(), (random(*first, 2, 4), random(*second, 4, 3)))
            yield Example(cls(True, True), (random(*first, 4, 2), random(*second, 3, 4)))


def _turned(matrix: Array, turn: bool) -> Array:
    return np.swapaxes(matrix, -1, -2) if turn else matrix
