"""The direct engine: ONNX graph to Circle module, without TensorFlow."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from itertools import chain
from typing import Any

import circle_train.convert.handlers.every  # noqa: F401  (registers the handlers)
from circle_train.convert.building.builder import Builder
from circle_train.convert.building.provenance import Provenance
from circle_train.convert.building.refusal import Blocked, Refusal, Refused
from circle_train.convert.building.registry import Bundle
from circle_train.convert.handlers.layers.sweeps import lower_loops
from circle_train.convert.onnx_file.importer import Source, declared_shapes, read
from circle_train.convert.stages.finish import finish
from circle_train.convert.stages.fuse import fuse
from circle_train.convert.stages.given import asked_values, constants, give, own_sizes, sizes_in
from circle_train.convert.stages.growth import mark_guesses
from circle_train.convert.stages.layout import lay_out
from circle_train.convert.stages.symbols import Assignment, Guesses, asked, assignments, fitting, learnt
from circle_train.convert.stages.tidy import tidy
from circle_train.convert.stages.walk import Scope, Walk
from circle_train.convert.stages.written import Endless
from circle_train.errors import FOREIGN, ConversionError, DataError, ModelError, shown
from circle_train.ir import Module, Tensor, TensorType
from circle_train.ir.size import Number, Size
from circle_train.ir.sizes.judge import Undecided, judged_by
from circle_train.ops.open.derive import Learnt
from circle_train.uncollected import uncollected

Shapes = dict[str, tuple[int, ...]]
MOST_LESSONS = 64
"""About open sizes, each of which begins the conversion anew."""


def generally(what: str, value: Size) -> bool:
    """Handlers write what holds for nearly all sizes: two expressions are not equal by chance. Which is less they must know."""
    if what == "zero":
        return False
    raise Undecided(f"whether {value} is below 0 depends on the sizes that are open")


def convert(
    source: Any, nhwc: bool, fold_batchnorm: bool, shapes: Shapes, inputs: Mapping[str, Any]
) -> tuple[Module, Provenance]:
    """Sizes that are open stay open, but for what the model itself says of them, and those that it cannot do with."""
    model = read(source)
    given = asked_values(model, inputs)
    known: Mapping[str, Number] = learnt(asked(model, shapes), sizes_in(given))
    if given:
        own = own_sizes(model, given, known)
        give(
            model, {name: (value, dims) for name, (value, dims) in given.items() if not own.keys() & {*dims}}
        )
        known = _taught(model, known) if own else known
        known = learnt(known, own_sizes(model, given, known))
        give(model, given)
    guesses = Guesses(model)
    for _ in range(MOST_LESSONS):
        try:
            module, provenance = _with_examples(model, known, nhwc, fold_batchnorm)
        except Learnt as lesson:
            known = learnt(known, lesson.known)
        except Endless as error:
            raise ConversionError(f"{_place(model)}: {error}; load a smaller model") from None
        except Blocked as blocked:
            if model.contradictions:
                raise ConversionError(model.contradictions[0]) from blocked.failure
            known = guesses.after(blocked, known)
        else:
            again = partial(_with_examples, model, nhwc=nhwc, fold_batchnorm=fold_batchnorm)
            mark_guesses(model, module, known, guesses.names, again)
            return module, provenance
    raise ConversionError(
        f"{_place(model)}: its open sizes depend on each other in too many ways; give shapes="
    )


def _taught(model: Source, known: Mapping[str, Number]) -> Mapping[str, Number]:
    """What the nodes say of open sizes, whether all can be converted or not."""
    for _ in range(MOST_LESSONS):
        for assignment in assignments(model, known):
            try:
                with judged_by(generally):
                    _walk(model, assignment)
            except Learnt as lesson:
                known = learnt(known, lesson.known)
                break
            except (ConversionError, ModelError, Refusal, *FOREIGN):
                continue
            return known
        else:
            return known
    return known


def _with_examples(
    model: Source, known: Mapping[str, Number], nhwc: bool, fold_batchnorm: bool
) -> tuple[Module, Provenance]:
    """The first conversion whose examples of open sizes suit the model."""
    failure: ConversionError | None = None
    culprits: set[str] = set()
    equations: list[Size] = []
    for assignment in chain(assignments(model, known), fitting(model, known, equations)):
        try:
            return _convert(model, assignment, nhwc, fold_batchnorm)
        except Refused as error:
            equations += error.equations
            failure, culprits = failure or error, culprits | (error.culprits & assignment.examples.keys())
            if not error.is_unfit:
                break
        except ConversionError as error:
            failure = failure or error
        except (ModelError, DataError, Refusal, *FOREIGN) as error:
            contradiction = ConversionError(
                f"{_place(model)}: its nodes, shapes and weights contradict each other "
                f"({shown(error)}); check it with onnx.checker"
            )
            contradiction.__cause__ = error
            failure = failure or contradiction
    assert failure is not None
    raise Blocked(failure, culprits or set(assignment.examples))


@uncollected()
def _convert(
    model: Source, assignment: Assignment, nhwc: bool, fold_batchnorm: bool
) -> tuple[Module, Provenance]:
    with judged_by(generally):
        builder, outputs = _walk(model, assignment)
        builder.graph.outputs = outputs
        fuse(builder)
        builder = lay_out(builder, nhwc)
        tidy(builder, fold_batchnorm)
        inner = lower_loops(builder)
        module = finish(builder, model, assignment, inner)
    used = {tensor for graph in module.graphs for tensor in graph.all_tensors()}
    found = {lineage.name: lineage for key, lineage in builder.lineage.items() if key in used}
    lineages = {name: found[name] for name in model.arrays if name in found}
    digest = str(model.digest)
    model.let_go()
    return module, Provenance(model.place, digest, lineages)


def _walk(model: Source, assignment: Assignment) -> tuple[Builder, list[Tensor]]:
    """The graph as the handlers emit it, and its outputs; all nodes that cannot be converted in one error."""
    builder = Builder(assignment.examples)
    builder.four_bits = model.four_bits
    graph = model.model.graph
    values: dict[str, Tensor | None] = {}
    for name, (dtype, dims) in model.inputs.items():
        values[name] = tensor = Tensor(name, TensorType(dtype, assignment.example(dims)))
        builder.set_open(tensor, assignment.sizes(dims))
        builder.graph.inputs.append(tensor)
    values.update(constants(model, builder, assignment))
    functions = {(f.domain, f.name): f for f in model.model.functions}
    walk = Walk(builder, model.arrays, functions)
    scope = Scope(values, model.opsets, {}, declared_shapes(graph))
    walk.nodes(graph.node, scope, [info.name for info in graph.output])
    if walk.refusals:
        count = len(walk.refusals)
        raise Refused(
            f"{_place(model)}: {count} node{'s' if count > 1 else ''} cannot be expressed in Circle; "
            f"change them in the model, or try --engine onnx2tf: {'; '.join(walk.refusals)}",
            walk.culprits,
            walk.is_unfit,
            walk.equations,
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
