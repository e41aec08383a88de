"""A user's own loss: a function over symbols, and the graph that it traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from circle_train.errors import ConfigError
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.losses.loss import Loss, Reduction
from circle_train.losses.symbol import Symbol
from circle_train.record import record

Formula = Callable[[Symbol, Symbol], Symbol | Loss]
JointFormula = Callable[[list[Symbol], list[Symbol]], Symbol]


@record
class Custom(Loss):
    """A loss from a function of output and target (see `custom`)."""

    formula: Callable[..., Symbol | Loss] | None = None
    """What is computed of output and target, in this order."""
    name: str = "custom"
    """Of the loss in messages and files."""
    sparse: bool = False
    """Whether targets are class numbers."""
    elementwise: ClassVar[bool] = True

    def target_type(self, output: TensorType) -> TensorType:
        return TensorType(DType.INT32, output.shape[:-1]) if self.sparse else super().target_type(output)

    def values(self, output: Symbol, target: Symbol) -> tuple[Symbol, Symbol | None]:
        assert self.formula is not None
        result = self.formula(output, target)
        if isinstance(result, Loss):
            result = result(output, target)
        if not isinstance(result, Symbol) or not result.tensor.dtype.is_float:
            found = result.tensor.type if isinstance(result, Symbol) else f"a {type(result).__name__}"
            raise ConfigError(
                f"custom loss '{self.name}' returned {found}, expected floats computed from its arguments"
            )
        return result, None


@record
class Joint(Custom):
    """One loss of all outputs and targets (see `custom`)."""

    def add_jointly(self, graph: Graph, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        """Append the loss's nodes; the reduced loss."""
        groups = [[Symbol(graph, tensor) for tensor in group] for group in (outputs, targets)]
        return self(*groups).tensor  # type: ignore[arg-type]


def custom(
    formula: Formula | JointFormula,
    *,
    name: str = "custom",
    reduction: Reduction | str = Reduction.MEAN,
    sparse: bool = False,
    joint: bool = False,
) -> Loss:
    """A loss of one's own.

    The function is called when a program is built, with symbols for output and target; arithmetic on them becomes
    nodes of the graph, differentiated like the rest. numpy's functions and our losses may stand in it. A scalar is
    the loss; anything larger has samples along its first axis and is reduced. With `sparse` the targets are class
    numbers, not floats. With `joint` the function takes the lists of all outputs and of all targets and gives the
    model's one loss.

    Example:
        >>> import circle_train as ct
        >>> def mixed(output, target):
        ...     error = output - target
        ...     return 0.4 * error.square().mean() + 0.6 * abs(error).mean()
        >>> config = ct.TrainConfig(loss=ct.losses.custom(mixed, name="mixed"))
    """
    if not callable(formula):
        raise ConfigError(
            f"custom loss '{name}' is made from {formula!r}, expected a function of output and target"
        )
    return (Joint if joint else Custom)(reduction=reduction, formula=formula, name=name, sparse=sparse)


@record
class Traced(Loss):
    """A loss given by a graph of inputs (output, target) and one output, as `trace` makes it."""

    graph: Graph | None = None
    """The operators that the formula became."""
    name: str = "traced"
    """Of the loss it was."""

    def target_type(self, output: TensorType) -> TensorType:
        traced = found(self.graph, self.name).inputs[1].type
        return traced.with_shape((*output.shape[:1], *traced.shape[1:]))

    def __call__(self, output: Symbol, target: Symbol) -> Symbol:
        graph = found(self.graph, self.name)
        return Symbol(output.graph, _replay(graph, output.graph, [output.tensor, target.tensor], self.name))


@record
class TracedJoint(Joint):
    """A joint loss given by a graph of inputs (outputs, then targets), as `trace_jointly` makes it."""

    graph: Graph | None = None
    """The operators that the formula became."""

    def add_jointly(self, graph: Graph, outputs: Sequence[Tensor], targets: Sequence[Tensor]) -> Tensor:
        return _replay(found(self.graph, self.name), graph, [*outputs, *targets], self.name)


def found(graph: Graph | None, name: str) -> Graph:
    """A traced loss's formula; settings outside of the file that holds it can only name it."""
    if not isinstance(graph, Graph):  # JSON may hold anything there
        raise ConfigError(
            f"loss '{name}' is a formula of one's own, which settings name but do not hold; load the model that was "
            "written with it, or give the loss"
        )
    return graph


def trace(loss: Loss, output: TensorType, name: str = "loss") -> Graph:
    """A loss as a graph of its own: what a file can hold of a custom one."""
    graph = Graph(name)
    tensors = [Tensor("output", output), Tensor("target", loss.target_type(output))]
    graph.inputs.extend(tensors)
    graph.outputs.append(loss.add_to(graph, *tensors))
    return graph


def trace_jointly(loss: Joint, outputs: Sequence[TensorType]) -> Graph:
    """The same of a loss over all outputs."""
    graph = Graph(loss.name)
    made = [Tensor(f"output{i}", type_) for i, type_ in enumerate(outputs)]
    targets = [Tensor(f"target{i}", loss.target_type(type_)) for i, type_ in enumerate(outputs)]
    graph.inputs.extend([*made, *targets])
    graph.outputs.append(loss.add_jointly(graph, made, targets))
    return graph


def _replay(traced: Graph, graph: Graph, tensors: Sequence[Tensor], name: str) -> Tensor:
    """Append a traced graph's nodes to another one, reading these tensors; sizes of batches may differ."""
    if len(traced.inputs) != len(tensors):
        raise ConfigError(
            f"loss '{name}' is of {len(traced.inputs)} tensors, the model has {len(tensors)} for it"
        )
    for wanted, found in zip(traced.inputs, tensors, strict=True):
        if (wanted.dtype, wanted.shape[1:]) != (found.dtype, found.shape[1:]):
            raise ConfigError(f"loss '{name}' was made for {wanted.type}, the model has {found.type}")
    twins: dict[Tensor, Tensor] = dict(zip(traced.inputs, tensors, strict=True))
    for node in traced.nodes:
        inputs = [None if tensor is None else twins.get(tensor, tensor) for tensor in node.inputs]
        twins.update(_repeat(graph, node, inputs))
    return twins[traced.outputs[0]]


def _repeat(graph: Graph, node: Node, inputs: list[Tensor | None]) -> dict[Tensor, Tensor]:
    """Append a node of another graph; its outputs there and here."""
    made = graph.emit_all(node.op, *inputs, name=node.outputs[0].name)
    return dict(zip(node.outputs, made, strict=True))
