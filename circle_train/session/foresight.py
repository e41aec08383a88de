"""What training a model would mean, for every choice of the last n operators, without training it."""

from __future__ import annotations

from collections.abc import Iterator

from circle_train.backends import choice
from circle_train.compile.divided import compile_batch
from circle_train.compile.program import Mode
from circle_train.compile.thrift.spare import spare
from circle_train.errors import CircleTrainError
from circle_train.info import OperatorInfo
from circle_train.ir import Graph
from circle_train.model import Model
from circle_train.passes import pipelines
from circle_train.record import record
from circle_train.settings.as_json import describe_trainable
from circle_train.settings.config import TrainConfig
from circle_train.settings.parameters import find_parameters


@record
class OperatorCheck:
    """One operator: for which inputs it has a gradient, which constants can be trained, and what stands in the way."""

    index: int
    name: str
    output: str
    differentiable: tuple[str, ...]
    parameters: tuple[str, ...]
    obstacle: str


@record
class Choice:
    """Training the last n operators: what is trained and what a step takes; `refused` says why it cannot be."""

    trainable: str
    operator: str
    parameters: int = 0
    arena_bytes: int = 0
    parameter_bytes: int = 0
    optimizer_bytes: int = 0
    flops: int = 0
    refused: str = ""
    waiting_bytes: int = 0
    """Of the arena, what waits for the backward part."""
    gradient_bytes: int = 0
    """Of the arena, gradients of weights; 0 where weights move as their gradients arise."""
    made_for: int = 0
    """The samples that the file was made for, where a batch is therefore run in parts of as many."""


@record
class ConstantCheck:
    """A float constant: whether "all" trains it, and if not, why not."""

    name: str
    shape: tuple[int, ...]
    trained: bool
    why_not: str


def constant_checks(model: Model) -> list[ConstantCheck]:
    """Every float constant that an operator reads, in order of first use: what is trained, and what only if it is named."""
    found = find_parameters(_prepared(model))
    return [
        ConstantCheck(
            p.name,
            p.tensor.shape,
            p.by_default and not p.is_statistic,
            "a running statistic" if p.is_statistic else p.why_not,
        )
        for p in found
    ]


def operator_checks(model: Model) -> list[OperatorCheck]:
    """Every operator in file order."""
    trained, gradients = trained_at(model), gradients_at(model)
    return [
        OperatorCheck(
            op.index,
            op.name,
            (*op.outputs, "")[0],
            op.differentiable or gradients.get(op.index, ()),
            trained.get(op.index, ()),
            obstacle(op),
        )
        for op in model.operators
    ]


def trained_at(model: Model) -> dict[int, tuple[str, ...]]:
    """Operators and the parameters that training them changes: also weights that arrive through DEQUANTIZE or DENSIFY."""
    found: dict[int, tuple[str, ...]] = {}
    for parameter in find_parameters(_prepared(model)):
        if parameter.by_default and not parameter.is_statistic:
            last = max(node.index for node in parameter.consumers)
            found[last] = (*found.get(last, ()), parameter.name)
    return found


def gradients_at(model: Model) -> dict[int, tuple[str, ...]]:
    """Operators on integers that are trained, as reals on their grids, and the inputs for which they have a gradient then."""
    found: dict[int, set[str]] = {}
    for node in _prepared(model).nodes:
        names = {
            node.op.input_name(i) for i, t in enumerate(node.inputs) if t is not None and t.dtype.is_float
        }
        found.setdefault(node.index, set()).update(names & set(node.op.gradients))
    return {
        node.index: tuple(
            dict.fromkeys(
                name
                for i, t in enumerate(node.inputs)
                if t is not None
                and t.quantization is not None
                and (name := node.op.input_name(i)) in found.get(node.index, ())
            )
        )
        for node in model.module.main.nodes
        if node.op.inputs
    }


def _prepared(model: Model) -> Graph:
    """As it is trained."""
    return pipelines.run(pipelines.before_training(None), model.module.main.copy())


def nothing_to_train(model: Model) -> str:
    """Why no choice of the last operators trains anything."""
    if any(tensor.dtype.is_float for node in model.module.main.nodes for tensor in node.inputs if tensor):
        return "no operator has a float constant that is trained by default; name what is to be trained"
    return (
        "it computes in integers; its last N operators can be trained in float: "
        "circle-train convert MODEL OUT --float-head N, or circle-train finetune"
    )


def obstacle(op: OperatorInfo) -> str:
    """Why no gradient passes, or nothing."""
    if not op.runnable:
        return "not known: cannot be computed"
    if op.options.stops_gradient:
        return "piecewise constant: no gradient passes, what lies before is trained only through other paths"
    if not op.options.gradients:
        return "has no gradient: what lies before it cannot be trained"
    return ""


def choices(
    model: Model, loss: str, optimizer: str, batch_size: int, activations: str = "float32"
) -> list[Choice]:
    """One for each operator that adds a parameter, from the last operator to the first."""
    config = TrainConfig(loss=loss, optimizer=optimizer, batch_size=batch_size, activations=activations)
    return list(_choices(model, config))


def whole(model: Model, config: TrainConfig) -> Choice | None:
    """What these settings train; None where they cannot be trained."""
    try:
        return _choice(model, config, describe_trainable(config.trainable), "")
    except CircleTrainError:
        return None


def _choices(model: Model, config: TrainConfig) -> Iterator[Choice]:
    operators, trained = model.operators, trained_at(model)
    for op in reversed(operators):
        if op.index not in trained:
            continue
        last = len(operators) - op.index
        name = f"last:{last}"
        where = f"{op.index} {op.name}"
        try:
            yield _choice(model, config.replace(trainable=("last", last)), name, where)
        except CircleTrainError as error:
            yield Choice(name, where, refused=str(error))
            return


def _choice(model: Model, config: TrainConfig, name: str, where: str) -> Choice:
    engine = choice.choose("auto", None)
    program = compile_batch(model.module.main, config, Mode.TRAIN, config.batch_size, engine)
    if config.memory_budget is None and program.part is None:
        program = spare(program)
    memory = program.bytes_by_class
    return Choice(
        name,
        where,
        sum(p.learned.size for p in program.trained),
        memory["arena"],
        memory["trained parameters"],
        memory["optimizer"],
        program.flops,
        waiting_bytes=program.waiting_bytes,
        gradient_bytes=program.gradient_bytes,
        made_for=0 if program.part is None else program.part.batch_size,
    )
