"""The direct engine: ONNX graph to Circle module, without TensorFlow."""

from __future__ import annotations

from typing import Any

import circle_train.convert.handlers  # noqa: F401  (registers the handlers)
from circle_train.convert.building.builder import Builder
from circle_train.convert.building.provenance import Provenance
from circle_train.convert.building.registry import Bundle
from circle_train.convert.onnx_file.importer import Source, declared_shapes, read
from circle_train.convert.stages.finish import finish
from circle_train.convert.stages.fuse import fuse
from circle_train.convert.stages.layout import lay_out
from circle_train.convert.stages.symbols import Assignment, assignments
from circle_train.convert.stages.tidy import tidy
from circle_train.convert.stages.walk import Scope, Walk
from circle_train.errors import FOREIGN, ConversionError, ModelError, shown
from circle_train.ir import Module, Tensor, TensorType

Shapes = dict[str, tuple[int, ...]]


def convert(source: Any, nhwc: bool, fold_batchnorm: bool, shapes: Shapes) -> tuple[Module, Provenance]:
    """Try with all sizes symbolic first; fix those that the model cannot do without."""
    model = read(source)
    failure: ConversionError | None = None
    for assignment in assignments(model, shapes):
        try:
            return _convert(model, assignment, nhwc, fold_batchnorm)
        except ConversionError as error:
            failure = error
        except (ModelError, *FOREIGN) as error:
            failure = ConversionError(
                f"{_place(model)}: its nodes, shapes and weights contradict each other "
                f"({shown(error)}); check it with onnx.checker"
            )
            failure.__cause__ = error
    assert failure is not None
    raise failure


def _convert(
    model: Source, assignment: Assignment, nhwc: bool, fold_batchnorm: bool
) -> tuple[Module, Provenance]:
    builder, outputs = _walk(model, assignment)
    builder.graph.outputs = outputs
    fuse(builder)
    builder = lay_out(builder, nhwc)
    tidy(builder, fold_batchnorm)
    module = finish(builder, model, assignment)
    used = set(module.main.all_tensors())
    found = {lineage.name: lineage for key, lineage in builder.lineage.items() if key in used}
    lineages = {name: found[name] for name in model.arrays if name in found}
    digest = str(model.digest)
    model.let_go()
    return module, Provenance(model.place, digest, lineages)


def _walk(model: Source, assignment: Assignment) -> tuple[Builder, list[Tensor]]:
    """The graph as the handlers emit it, and its outputs; all nodes that cannot be converted in one error."""
    builder = Builder(assignment.count)
    graph = model.model.graph
    values: dict[str, Tensor | None] = {}
    for name, (dtype, dims) in model.inputs.items():
        first, *others = assignment.shapes(dims)
        values[name] = tensor = Tensor(name, TensorType(dtype, first))
        builder.set_worlds(tensor, others)
        builder.graph.inputs.append(tensor)
    functions = {(f.domain, f.name): f for f in model.model.functions}
    walk = Walk(builder, model.arrays, functions)
    scope = Scope(values, model.opsets, {}, declared_shapes(graph))
    walk.nodes(graph.node, scope, [info.name for info in graph.output])
    if walk.refusals:
        listed = "; ".join(walk.refusals)
        count = len(walk.refusals)
        raise ConversionError(
            f"{_place(model)}: {count} node{'s' if count > 1 else ''} cannot be expressed in Circle; "
            f"change them in the model, or try --engine onnx2tf: {listed}"
        )
    outputs: list[Tensor] = []
    for info in graph.output:
        made = values.get(info.name)
        if made is None and info.name in model.arrays:
            made = walk.lookup(info.name, scope)
        if made is None:
            raise ConversionError(
                f"{_place(model)}: no node makes the output '{info.name}'; the file is damaged"
            )
        if isinstance(made, Bundle):
            raise ConversionError(
                f"{_place(model)}: the output '{info.name}' is a sequence; make its tensors outputs of their own"
            )
        outputs.append(_output(builder, made, info.name, outputs))
    return builder, outputs


def _output(builder: Builder, tensor: Tensor, name: str, others: list[Tensor]) -> Tensor:
    """The output under its own name; an input, constant or other output is passed through a RESHAPE."""
    tensor = builder.at_run_time(tensor) or tensor
    if tensor.producer is None or any(tensor is other for other in others):
        shape = builder.integers(builder.shape(tensor))
        tensor = builder.emit_unfolded("RESHAPE", tensor, shape)
    tensor.name = name
    return tensor


def _place(model: Source) -> str:
    return "the ONNX model" if isinstance(model.place, bytes) else f"'{model.place}'"
