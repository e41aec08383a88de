"""What a session will run, before it runs: operators, parameters, bytes by class, floating point operations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field

from circle_train.compile.program import Program
from circle_train.compile.thrift.work import total_work
from circle_train.ir import DType, Node, Tensor
from circle_train.model import Model
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.gradient import Gradient, Gradients
from circle_train.printable import as_table, brief, lines, printable
from circle_train.record import record
from circle_train.report.besides import WHAT_FOR, besides_bytes, conversion_bytes
from circle_train.runtime.executor import Executor
from circle_train.settings.parameters import Parameter


@record
class PlannedOperator:
    """One operator of the model: what it costs and what of it is trained."""

    index: int
    name: str
    output: str
    shape: tuple[int, ...]
    trained: tuple[str, ...]
    forward_flops: int
    backward_flops: int
    engine: str


@record
class Plan:
    """A training step foreseen; `str(plan)` is a table."""

    batch_size: int
    operators: tuple[PlannedOperator, ...]
    parameters: dict[str, int]
    """Trained parameters and how many elements of each are."""
    frozen_elements: int
    memory: dict[str, int]
    """Bytes by class; `arena` is what a step allocates for inputs, activations and gradients, `engine` everything that
    is no array of the program (see Executor.engine_bytes)."""
    reference_operators: tuple[str, ...]
    """Nodes that the native engine leaves to numpy."""
    besides: dict[str, int] = field(default_factory=dict)
    """Bytes of what is no step: data, evaluation, prediction, checkpoints, exports, reports. A budget covers them."""
    kept_bytes: int = 0
    """What `fit` may keep of each sample, besides, so that epochs after the first begin where training does."""
    parts: int = 1
    """In how many a batch is taken, to stay within the budget or because the file was made for so few samples."""
    repeats: tuple[str, ...] = ()
    """What runs a second time in the backward part because its result is not kept, to stay within the budget."""
    repeated_work: float = 0.0
    """The share of a step's expected time that this takes."""
    tied: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Trained parameters that several operators share, and which: their gradients add up."""
    made_for: int = 0
    """The samples that the file was made for, where a batch holds more and is therefore taken in parts."""
    waiting_bytes: int = 0
    """Of the arena, what waits for the backward part."""
    gradient_bytes: int = 0
    """Of the arena, gradients of weights; 0 where weights move as their gradients arise."""
    bfloat16: str = ""
    """What of the activations is bfloat16, and who multiplies it; nothing where they are float32."""

    @property
    def total_bytes(self) -> int:
        return sum(self.memory.values())

    @property
    def budget_bytes(self) -> int:
        """The smallest memory_budget that asks for nothing else than this."""
        return self.total_bytes + sum(self.besides.values())

    @property
    def flops(self) -> int:
        """Floating point operations of one training step."""
        return sum(op.forward_flops + op.backward_flops for op in self.operators)

    def _repr_html_(self) -> str:
        return as_table(str(self))

    def __str__(self) -> str:
        rows = [("op", "operator", "output", "trained", "forward", "backward", "engine")]
        for op in self.operators:
            shape = "×".join(map(str, op.shape))
            row = (
                str(op.index),
                op.name,
                shape,
                ", ".join(map(brief, op.trained)) or "-",
                count(op.forward_flops),
                count(op.backward_flops),
            )
            rows.append((*row, op.engine))
        memory = _sizes(self.memory)
        trained = sum(self.parameters.values())
        return lines(
            [
                *table(rows),
                "",
                f"batch {self.batch_size}; {trained:,} of {trained + self.frozen_elements:,} parameters are trained",
                f"memory {size(self.total_bytes)} for a step: {memory}",
                self._waits(),
                *self._besides(),
                f"work {count(self.flops)}FLOP a step",
                *(f"trained as one '{name}' of operators {_listed(at)}" for name, at in self.tied.items()),
                *self._thrift(),
                *([f"bfloat16 {self.bfloat16}"] if self.bfloat16 else []),
            ]
        )

    def _waits(self) -> str:
        """What of the arena is there for the backward part."""
        gradients = f"{size(self.gradient_bytes)} are gradients of weights" if self.gradient_bytes else ""
        behind = gradients or "weights move as their gradients arise"
        return f"of the arena {size(self.waiting_bytes)} wait for the backward part; {behind}"

    def _besides(self) -> list[str]:
        """What a budget covers besides the step, a line each."""
        found = {name: nbytes for name, nbytes in self.besides.items() if nbytes}
        width = max(map(len, found), default=0)
        rows = [f"  {name:{width}}  {size(nbytes)}: {WHAT_FOR[name]}" for name, nbytes in found.items()]
        kept = [f"kept by fit {size(self.kept_bytes)} a sample"] if self.kept_bytes else []
        return [*([f"besides {size(sum(found.values()))}"] if found else []), *rows, *kept]

    def _thrift(self) -> list[str]:
        """What a budget of memory, or a file made for few samples, has led to."""
        found = []
        if self.parts > 1:
            why = f": the file was made for {self.made_for}" if self.made_for else ""
            found.append(f"each batch is taken in {self.parts} parts of {self.batch_size // self.parts}{why}")
        if self.repeats:
            names = Counter(repeat.split(" ")[0] for repeat in self.repeats)
            what = ", ".join(f"{number} {name}" for name, number in names.most_common())
            found.append(
                f"made again instead of kept: {len(self.repeats)} results ({what}), {self.repeated_work:.1%} of a step's work"
            )
        return found


def _sizes(memory: dict[str, int]) -> str:
    return ", ".join(f"{name} {size(nbytes)}" for name, nbytes in memory.items() if nbytes)


def make_plan(
    executor: Executor, model: Model, kept_bytes: int = 0, reserved: Mapping[str, int] | None = None
) -> Plan:
    """Read the plan off a program of this model that is bound."""
    program = executor.program
    backward = _backward_work(program)
    names = {node.index: node.op.name for node in model.module.main.nodes}
    operators = [
        _operator(nodes, names, program, backward, executor)
        for nodes in _by_operator(program.operators[: program.forward_nodes])
    ]
    trained = {p.name: p.learned.size for p in program.trained}
    frozen = sum(p.tensor.type.size for p in program.parameters) - sum(trained.values())
    reference = tuple(str(node) for node, engine in executor.engines.items() if engine == "reference")
    engine = executor.engine_bytes + conversion_bytes(model)
    memory = {**program.bytes_by_class, "engine": engine}
    return Plan(
        program.batch_size,
        tuple(operators),
        trained,
        frozen,
        memory,
        reference,
        {
            name: n
            for name, n in besides_bytes(program, model, reserved or {}).items()
            if name != "conversion"
        },
        kept_bytes,
        executor.parts,
        tuple(map(_repeated, program.repeats)),
        total_work(program.repeats) / total_work(program.graph.nodes),
        tied_operators(program.trained),
        0 if program.part is None else program.part.batch_size,
        program.waiting_bytes,
        program.gradient_bytes,
        _bfloat16(executor),
    )


def tied_operators(parameters: Iterable[Parameter]) -> dict[str, tuple[int, ...]]:
    """Of the parameters that several operators share: which operators."""
    uses = {
        p.name: tuple(dict.fromkeys(node.index for node in p.uses if node.index >= 0)) for p in parameters
    }
    return {name: at for name, at in uses.items() if len(at) > 1}


def _listed(numbers: Sequence[int]) -> str:
    shown = ", ".join(map(str, numbers[:8]))
    return shown if len(numbers) <= 8 else f"{shown}, … ({len(numbers)} in all)"


def _repeated(node: Node) -> str:
    """The operators that a node computes, and what it makes."""
    op = node.op
    name = "+".join(dict.fromkeys(part.op.name for part in op.parts)) if isinstance(op, Fused) else op.name
    return f"{name} '{node.outputs[0].name}'"


def _bfloat16(executor: Executor) -> str:
    """How many bytes wait as bfloat16, and whether this processor has an instruction for their products."""
    made = [t.type for node in executor.program.graph.nodes for t in node.outputs if t.dtype is DType.UINT16]
    if not made:
        return ""
    has = executor.backend.has_bfloat16_products
    products = (
        "the processor's own instruction" if has else "others, this processor has no instruction for them"
    )
    return f"{size(sum(t.nbytes for t in made))} wait for the backward pass; products by {products}"


def _by_operator(nodes: Sequence[Node]) -> list[list[Node]]:
    """What each operator of the file has become: its weights' rounding, itself, the rounding of what it makes."""
    found: list[list[Node]] = []
    before: list[Node] = []
    for node in nodes:
        if node.index < 0:
            before += [node] if node.outputs else []
        elif not before and found and found[-1][-1].index == node.index:
            found[-1].append(node)
        else:
            found.append([*before, node])
            before = []
    return found + ([before] if before else [])


def _operator(
    nodes: list[Node], names: dict[int, str], program: Program, backward: dict[int, int], executor: Executor
) -> PlannedOperator:
    trained = {p.tensor: p.name for p in program.trained}
    node = next((node for node in nodes if node.index >= 0), nodes[-1])
    output: Tensor = nodes[-1].outputs[0]
    times = 1 if program.part is None else executor.parts
    engines = {executor.engines.get(node, "view") for node in nodes}
    return PlannedOperator(
        node.index,
        names.get(node.index, node.op.name),
        output.name,
        output.shape,
        tuple(trained[t] for node in nodes for t in node.inputs if t in trained),
        sum(node.flops for node in nodes) * times,
        backward.pop(node.index, 0) * times,
        next((name for name in ("reference", "native") if name in engines), "view"),
    )


def _backward_work(program: Program) -> dict[int, int]:
    """Operations of the gradients of each operator."""
    work: dict[int, int] = {}
    for node in program.operators:
        if isinstance(node.op, (Gradient, Gradients)) and node.op.source >= 0:
            work[node.op.source] = work.get(node.op.source, 0) + node.op.work
    return work


def table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Rows as aligned columns, a rule below the first."""
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    aligned = [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
    return [aligned[0], "  ".join("─" * width for width in widths), *aligned[1:]]


def size(nbytes: float) -> str:
    """Bytes for people."""
    for unit in ("B", "kB", "MB"):
        if nbytes < 1000:
            return f"{nbytes:.0f} {unit}" if unit == "B" else f"{nbytes:.1f} {unit}"
        nbytes /= 1000
    return f"{nbytes:.2f} GB"


def count(number: float) -> str:
    """Large counts for people."""
    for unit in ("", "k", "M", "G"):
        if number < 1000:
            return f"{number:.0f} {unit}".rstrip() if not unit else f"{number:.1f} {unit}"
        number /= 1000
    return f"{number:.1f} T"
