"""What an operator is: options, type rule, arithmetic, gradients and examples in one class.

A class registered under Circle's operator name declares

* its options as dataclass fields, named as in the schema, so that reader and writer need no per-op code;
* `infer(self, x, …)`, the output's TensorType from the inputs' (default: that of the first input);
* `forward(self, x, …)`, the arithmetic in numpy. Parameter names are the operator's input names; a default of None
  marks an optional input, `*xs` any number of inputs;
* `grad_<input>(self, dy, …)` for each input that has a gradient. Its parameter names say what must be kept alive:
  `dy` (for several outputs: `dys`, a list), any input, `y` (the output); `<input>_shape` and `y_shape` cost no memory.
  For `*xs` the names are `xs`, `xs_shape` (a list) and `index` (which of the inputs). The result may be larger than the
  input by broadcasting: the engine sums it back;
* or, where one computation gives the gradients of several inputs (a sweep back through time), `grads(self, dys, …)`
  and `together`, the names of those inputs: it returns their gradients by name, and the graph has one node for all;
* `axes`, how it treats the axes of its operands (see ops.axes);
* `examples()`, which the registry's tests walk.

A fused activation is a field `fused_activation_function`: the engine applies it after `forward` and undoes it before the
gradients (see `activation_gradient`); no op computes it itself, and such an op must not ask for `y`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

import numpy as np

from circle_train.errors import FOREIGN, ModelError, shown
from circle_train.ir import DType, TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.axes import Axes, Mixes
from circle_train.ops.declared import GradientSpec, InputSpec, read_axes, read_gradients, read_inputs
from circle_train.ops.integers import InIntegers
from circle_train.ops.versions import Versions
from circle_train.record import record

REGISTRY: dict[str, type[Op]] = {}
"""Circle's operators by name; what we add ourselves (losses, gradients, updates) is in INTERNAL."""
INTERNAL: dict[str, type[Op]] = {}

LARGEST = 1 << 48
"""Elements of a tensor that addresses and our arithmetic on sizes can hold."""

OpClass = TypeVar("OpClass", bound="type[Op]")


@record
class Example:
    """An op with inputs for the registry's tests; integer and `constant` inputs are constants in a graph."""

    op: Op
    inputs: tuple[Array | None, ...]
    constant: tuple[int, ...] = ()
    """Indices of float inputs that the type rule needs as values."""
    differentiable: bool = True
    """False where the gradient does not exist at these inputs (ties, kinks) or is not meant to be checked."""


@record
class Op:
    """Base of all operators; frozen, so that equal options are equal ops."""

    name: ClassVar[str] = ""
    options: ClassVar[str | None] = None
    """The schema's option table, e.g. "Conv2DOptions"; None: the operator has none."""
    inputs: ClassVar[tuple[InputSpec, ...]] = ()
    arity: ClassVar[tuple[int, int]] = (0, 0)
    """How many inputs there are at least, and how many the class names."""
    gradients: ClassVar[dict[str, GradientSpec]] = {}
    parameters: ClassVar[tuple[str, ...]] = ()
    """Inputs that, when constant, are what training means by weights (see train.config)."""
    by_channel: ClassVar[str] = ""
    """Weights whose last axis runs over the channels of the first input: the gradient of some is that by these channels."""
    scalar_parameters: ClassVar[bool] = True
    """Whether a one-element constant counts too (False for arithmetic, where it is a number of the formula)."""
    stops_gradient: ClassVar[bool] = False
    """Piecewise constant, or integer-valued: no influence passes, and that is no error."""
    view_of: ClassVar[str | None] = None
    """The input whose memory the output may simply share (RESHAPE and its kin)."""
    inplace: ClassVar[tuple[str, ...]] = ()
    """Inputs that the output may overwrite when nobody reads them later."""
    identity_gradient: ClassVar[tuple[str, ...]] = ()
    """Inputs whose gradient is dy itself, so that no node is needed where nothing was broadcast."""
    together: ClassVar[tuple[str, ...]] = ()
    """Inputs whose gradients `grads` computes at once."""
    is_runnable: ClassVar[bool] = True
    """False for what we can only load and save (see ops.opaque)."""
    mutates: ClassVar[bool] = False
    """Writes into its inputs (updates, accumulators) instead of returning something new."""
    axes: ClassVar[Axes] = Mixes("its class does not say how it treats axes")
    """Where each entry of an axis goes, and what an operand that lies otherwise, or grows, changes."""
    static_inputs: ClassVar[tuple[str, ...]] = ()
    """Inputs that say where elements go: kernels are made for their values. Those that `axes` names are added."""
    draws: ClassVar[bool] = False
    """Whether its result is random."""
    versions: ClassVar[Versions] = Versions()
    """The operator's versions in files that runtimes other than ours read."""
    litert_lacks: ClassVar[frozenset[DType]] = frozenset()
    """Integers, but INT32, that LiteRT 2.3 refuses or gets wrong, as all examples of all operators in every type showed."""
    in_integers: ClassVar[InIntegers | None] = None
    """How LiteRT computes it on quantized tensors; None: in float alone."""
    steep: ClassVar[tuple[str, ...]] = ()
    """Inputs that may make a derivative infinite where they come near 0, though the result is finite."""
    formula: ClassVar[str] = ""
    """What an engine may compute for each element instead of `forward`: calls of its opcodes on inputs, options, numbers."""
    gradient_formulas: ClassVar[Mapping[str, str]] = {}
    """By input: the same of its gradient, on the gradient method's parameters."""

    def infer(self, *inputs: Any) -> TensorType | Sequence[TensorType]:
        """The output's type; by default that of the first input."""
        first: TensorType = inputs[0]
        return TensorType(first.dtype, first.shape)

    def forward(self, *inputs: Any) -> Any:
        raise NotImplementedError(f"{self.name} has no forward")

    def with_types(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> Op:
        """The op that a file means by these options between tensors of these types."""
        return self

    @classmethod
    def examples(cls) -> Iterable[Example]:
        """Inputs that exercise every option; walked by tests/ops/test_ops.py."""
        return ()

    def flops(self, inputs: Sequence[TensorType | None], outputs: Sequence[TensorType]) -> int:
        """Floating point operations of one forward; default: one per output element."""
        return sum(output.size for output in outputs)

    # What the engine calls; not overridden by ops.

    @property
    def activation(self) -> Activation:
        return getattr(self, "fused_activation_function", Activation.NONE)

    @property
    def view_input(self) -> int | None:
        """Index of the input whose memory the output shares."""
        return None if self.view_of is None else self.input_index(self.view_of)

    @property
    def inplace_inputs(self) -> tuple[int, ...]:
        """Indices of the inputs that the output may overwrite."""
        return tuple(self.input_index(name) for name in self.inplace)

    def infer_types(self, inputs: Sequence[TensorType | None]) -> tuple[TensorType, ...]:
        """`infer` with its arity checked and its result as a tuple."""
        self.check_arity(inputs)
        try:
            result = self.infer(*self.pad(inputs))
            types = (result,) if isinstance(result, TensorType) else tuple(result)
        except FOREIGN as error:
            raise self.misfit(inputs, error) from error
        for type_ in types:
            if min(type_.shape, default=0) < -1 or type_.size > LARGEST:
                raise ModelError(
                    f"{self.name}: its result would be {type_}, expected sizes from 0 and at most {LARGEST} elements; "
                    "the file is damaged"
                )
        return types

    def compute(self, inputs: Sequence[Array | None]) -> tuple[Array, ...]:
        """`forward` and the fused activation."""
        try:
            result = self.forward(*self.pad(inputs))
            outputs = tuple(result) if isinstance(result, (tuple, list)) else (result,)
            return tuple(self.activation.apply(output) for output in outputs) if self.activation else outputs
        except FOREIGN as error:
            raise self.misfit(inputs, error) from error

    def gradient(self, name: str, arguments: Mapping[str, Any]) -> Array:
        """The gradient of one input, as its method computes it."""
        spec = self.gradients[name]
        result: Any = getattr(self, spec.method)(**arguments)
        return result[name] if spec.is_joint else result

    def misfit(self, inputs: Sequence[TensorType | Array | None], error: Exception) -> ModelError:
        """What Python or numpy said of these inputs, as an error of ours."""
        given = ", ".join(_described(value) for value in inputs)
        return ModelError(
            f"{self.name}: its inputs ({given}) do not fit its options {shown(self)}: {shown(error)}"
        )

    def pad(self, inputs: Sequence[Any]) -> list[Any]:
        """Trailing optional inputs may be missing in a file."""
        missing = len(self.inputs) - len(inputs)
        return [*inputs, *[None] * missing] if missing > 0 and not self.is_variadic else list(inputs)

    def check_arity(self, inputs: Sequence[Any]) -> None:
        least, most = self.arity
        if len(inputs) < least or (len(inputs) > most and not self.is_variadic):
            expected = (
                f"at least {least}"
                if self.is_variadic
                else str(most)
                if least == most
                else f"{least} to {most}"
            )
            raise ModelError(
                f"{self.name} has {len(inputs)} inputs, expected {expected}: the file is damaged"
            )
        for spec, value in zip(self.inputs, inputs, strict=False):
            if value is None and not spec.optional and not spec.variadic:
                raise ModelError(f"{self.name} lacks its input '{spec.name}': the file is damaged")

    @property
    def is_variadic(self) -> bool:
        return bool(self.inputs) and self.inputs[-1].variadic

    def input_index(self, name: str) -> int:
        """The position of the input that `forward` calls `name`."""
        return next(i for i, spec in enumerate(self.inputs) if spec.name == name)

    def input_name(self, index: int) -> str:
        """The parameter name of the index-th input."""
        inputs = self.inputs
        return inputs[index if index < len(inputs) else -1].name


def arity_of(inputs: Sequence[InputSpec]) -> tuple[int, int]:
    """How many inputs there are at least, and how many are named."""
    return sum(not spec.optional and not spec.variadic for spec in inputs), len(inputs)


def _described(value: TensorType | Array | None) -> str:
    """Element type and shape."""
    if value is None or isinstance(value, TensorType):
        return "none" if value is None else str(value)
    return f"{np.asarray(value).dtype} {'×'.join(map(str, np.shape(value))) or 'scalar'}"


def describe(cls: type[Op], name: str, options: str | None = None) -> None:
    """Name a class, and read and validate its signatures; for one that only its makers know this is all."""
    cls.name, cls.options = name, options
    cls.inputs = read_inputs(cls)
    cls.arity = arity_of(cls.inputs)
    cls.gradients = read_gradients(cls)
    read_axes(cls)


def register(name: str, options: str | None = None, internal: bool = False) -> Callable[[OpClass], OpClass]:
    """Make a class known under Circle's operator name; it is described here, at import."""

    def add(cls: OpClass) -> OpClass:
        describe(cls, name, options)
        table = INTERNAL if internal else REGISTRY
        if name in table:
            raise TypeError(
                f"two classes are registered as {name}: {table[name].__name__} and {cls.__name__}"
            )
        table[name] = cls
        return cls

    return add


def random(*shape: int, seed: int = 0, low: float = -1.0, high: float = 1.0) -> Array:
    """Float64 numbers for examples."""
    return np.random.default_rng([seed, *shape]).uniform(low, high, shape)
