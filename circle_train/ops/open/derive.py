"""What an operator makes of open sizes: its own type rule, run on expressions instead of numbers.

Where a rule asks something whose answer depends on the open sizes, it is run once for each answer. Runs that refuse their
operands are none that can happen; where all others agree, their answer is the operator's, and where an equation must hold
lest every run refuse, it is learnt (`Learnt`). Nothing is concluded from examples.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from circle_train.errors import FOREIGN, ModelError
from circle_train.ir import Tensor, TensorType
from circle_train.ir.size import Number, Size, is_open, replaced, symbol
from circle_train.ir.sizes.judge import judged_by
from circle_train.ops.base import Op
from circle_train.ops.control.subgraph import WithGraphs
from circle_train.ops.elementwise import Binary
from circle_train.ops.open.values import LONGEST

MOST_RUNS = 48
"""Of one type rule; a rule that asks more is not followed."""
FACTORS = (
    *(2, 4, 8, 16, 32, 64, 128),
    *(3, 5, 6, 7, 9, 10, 12, 20, 24, 25, 40, 48, 50, 80, 96, 100, 160, 192, 256, 320, 512),
)
"""Of which a size may have to be a multiple."""
MOST_SIZES = 64
"""Real numbers of a vector that may stand for sizes or scales."""

Unknown = Callable[[int, int], Size]
"""Makes a size that is read while running: of this output, along this axis."""
Question = tuple[str, Size]


class Learnt(Exception):
    """What symbols must be for an operator to take its operands."""

    def __init__(self, known: dict[str, Number]) -> None:
        super().__init__(", ".join(f"{name} must be {value}" for name, value in known.items()))
        self.known = known


class Run:
    """One run of a rule: answers that are given, then No for each new question."""

    def __init__(self, given: Sequence[bool]) -> None:
        self.given = given
        self.asked: dict[Question, bool] = {}
        self.types: list[TensorType] | None = None
        """None: the rule refused."""

    def judge(self, what: str, value: Size) -> bool:
        """What follows from the answers so far, or the next answer."""
        known_value = replaced(value, _supposed(self)) if any(self.asked.values()) else value
        if not isinstance(known_value, Size):
            return known_value == 0 if what == "zero" else known_value < 0
        question = (what, value)
        known = next((a for (w, v), a in self.asked.items() if w == what and v.terms == value.terms), None)
        if known is None:
            at = len(self.asked)
            known = self.asked[question] = at < len(self.given) and self.given[at]
        return known


def derived(
    op: Op, inputs: Sequence[TensorType | None], unknown: Unknown, learn: bool = True
) -> list[TensorType]:
    """The output types; sizes that have no expression are made by `unknown`."""
    runs = _runs(op, inputs)
    possible = [run for run in runs if run.types is not None]
    if learn:
        _learn(runs, possible)
    if not possible:
        raise ModelError(f"{op.name}: {_refusal(op, inputs)}")
    return _agreed(possible, unknown)


class Derivations:
    """Type rules that were followed: again with the same operands, of the same sizes, they say the same."""

    def __init__(self, learn: bool = True, known: Derivations | None = None) -> None:
        self.learn = learn
        self._known: dict[Any, list[TensorType]] = {} if known is None else known._known
        """Shared with others that follow the same symbols."""

    def types(
        self, op: Op, tensors: Sequence[Tensor | None], types: Sequence[TensorType | None], unknown: Unknown
    ) -> list[TensorType]:
        """The output types, of operands of these types; sizes that have no expression are made by `unknown`."""
        is_followed = all(type_ is None or type_.value is not None for type_ in types)
        told = [is_followed or op.input_name(index) in op.static_inputs for index in range(len(types))]
        key = op, *map(_told, tensors, types, told)
        found = None if isinstance(op, WithGraphs) else self._known.get(key)
        if found is not None:
            return found
        is_read = False

        def read(output: int, axis: int) -> Size:
            nonlocal is_read
            is_read = True
            return unknown(output, axis)

        made = [
            type_ if type_.is_static else _readable(type_, index, read)
            for index, type_ in enumerate(derived(op, types, read, self.learn))
        ]
        untold = any(_is_bulk(type_, tells) for type_, tells in zip(types, told, strict=True))
        if not is_read and not (untold and any(type_.value is not None for type_ in made)):
            self._known[key] = made
        return made


def _is_bulk(type_: TensorType | None, tells: bool = True) -> bool:
    """Whether the values are weights rather than sizes: no rule looks at them.

    `tells`: whether they are followed, or say where elements go.
    """
    if type_ is None or type_.value is None or not type_.dtype.is_float or is_open(type_.shape):
        return False
    return not tells or type_.rank > 1 or type_.size > MOST_SIZES


def _told(tensor: Tensor | None, type_: TensorType | None, tells: bool) -> Any:
    """What a rule is told of an operand: its type and its values; the tensor itself where these are expressions."""
    if type_ is None or (type_.value is not None and type_.value.dtype == object):
        return tensor
    sizes = tuple([n.terms if isinstance(n, Size) else n for n in type_.shape])
    value = None if _is_bulk(type_, tells) else type_.value
    if value is not None and value.size > LONGEST:
        return tensor
    return type_.dtype, sizes, type_.quantization, None if value is None else value.tobytes()


def _readable(type_: TensorType, output: int, read: Unknown) -> TensorType:
    """Sizes that the rule does not tell are read while running."""
    shape: Any = [
        read(output, a) if not isinstance(n, Size) and n < 0 else n for a, n in enumerate(type_.shape)
    ]
    return TensorType(type_.dtype, tuple(shape), type_.value, type_.quantization)


def _refusal(op: Op, inputs: Sequence[TensorType | None]) -> str:
    """Why the rule refuses, whatever the open sizes are."""
    try:
        with judged_by(Run(()).judge):
            op.infer(*op.pad(inputs))
    except (ModelError, *FOREIGN) as error:
        return str(error).removeprefix(f"{op.name}: ")
    return "its type rule cannot be followed for open sizes"


def _runs(op: Op, inputs: Sequence[TensorType | None]) -> list[Run]:
    """The rule's runs for all answers."""
    waiting: list[list[bool]] = [[]]
    runs: list[Run] = []
    while waiting:
        run = Run(waiting.pop())
        try:
            with judged_by(run.judge):
                result = op.infer(*op.pad(inputs))
                run.types = [result] if isinstance(result, TensorType) else list(result)
        except (ModelError, *FOREIGN):
            run.types = None
        runs.append(run)
        if len(runs) > MOST_RUNS:
            raise ModelError(f"{op.name}: what it makes depends in too many ways on sizes that are open")
        answers = list(run.asked.values())
        for at in range(len(run.given), len(answers)):
            waiting.append([*answers[:at], True])
    return runs


def _learn(runs: Sequence[Run], possible: Sequence[Run]) -> None:
    """Raise what all runs that are possible have taken for granted, and others not."""
    if not possible or len(possible) == len(runs):
        return
    for question, answer in possible[0].asked.items():
        if question[0] == "zero" and answer and all(_answer(run, question) for run in possible):
            require_equal(question[1], 0)


def require_equal(one: Number, two: Number) -> None:
    """Raise what symbols must be for two sizes to be equal, if these say so."""
    difference = _without_factors(one - two)
    if isinstance(difference, Size) and (found := solved(difference) or _multiple(difference)) is not None:
        raise Learnt(dict([found]))


def unequal(op: Op, types: Sequence[TensorType | None]) -> list[Number]:
    """What is 0 where each size of an element-wise operator's operand is the other's."""
    shapes = [type_.shape[::-1] for type_ in types if type_ is not None]
    if not isinstance(op, Binary) or len(shapes) != 2:
        return []
    return [a - z for a, z in zip(*shapes, strict=False) if 1 not in (a, z)]


def left_over(one: Number, two: Number) -> Number:
    """What is 0 where the two are equal."""
    return _without_factors(one - two)


def _without_factors(zero: Number) -> Number:
    """What is 0 where the Size is, divided by symbols that stand in each of its terms: they are sizes from 1."""
    if isinstance(zero, Size):
        for atom in zero.terms[0][0]:
            if atom.kind == "symbol" and all(atom in atoms for atoms, _ in zero.terms):
                return _without_factors(zero // symbol(atom.text))
    return zero


def _multiple(zero: Size) -> tuple[str, Number] | None:
    """The only symbol as a multiple of a smaller one, where that makes the Size 0."""
    names = zero.symbols()
    if len(names) != 1 or not zero.is_written:
        return None
    (name,) = names
    for factor in FACTORS:
        multiple = factor * symbol(f"{name}/{factor}")
        if not isinstance(made := zero.replaced({name: multiple}), Size) and made == 0:
            return name, multiple
    return None


def _answer(run: Run, question: Question) -> bool:
    return any(
        a
        for (what, value), a in run.asked.items()
        if what == question[0] and value.terms == question[1].terms
    )


def _agreed(runs: Sequence[Run], unknown: Unknown) -> list[TensorType]:
    """The sizes that all runs make, where an equation that one of them supposes is taken into account."""
    general = min(runs, key=lambda run: sum(run.asked.values()))
    others = [(run.types or [], _supposed(run)) for run in runs if run is not general]
    result = []
    for number, type_ in enumerate(general.types or []):
        shape: list[Any] = []
        for axis, size in enumerate(type_.shape):
            same = all(
                len(types) > number
                and len(types[number].shape) == type_.rank
                and _equal(replaced(size, known), replaced(types[number].shape[axis], known))
                for types, known in others
            )
            shape.append(
                (size.at_least(0) if isinstance(size, Size) else size) if same else unknown(number, axis)
            )
        result.append(TensorType(type_.dtype, tuple(shape), type_.value, type_.quantization))
    return result


def _equal(one: Number, two: Number) -> bool:
    difference = one - two
    return not isinstance(difference, Size) and difference == 0


def _supposed(run: Run) -> dict[str, Number]:
    """What symbols are in this run, as far as its equations say so directly."""
    known: dict[str, Number] = {}
    for (what, value), answer in run.asked.items():
        if what == "zero" and answer and (found := solved(value)) is not None:
            known[found[0]] = found[1]
    return known


def solved(zero: Size) -> tuple[str, Number] | None:
    """A symbol and what it is, if the Size is to be 0: one that stands nowhere else in it, and has the factor 1."""
    for atoms, factor in zero.terms:
        if abs(factor) != 1 or len(atoms) != 1 or atoms[0].kind != "symbol":
            continue
        name = atoms[0].text
        rest = zero - factor * Size((((atoms[0],), 1),), 1, None, ("symbol", name))
        if not isinstance(rest, Size):
            return (name, -rest * factor) if -rest * factor >= 1 else None
        if name not in rest.symbols() and rest.is_written:
            return name, -rest * factor
    if len(zero.terms) == 2 and not zero.terms[0][0]:
        (_, constant), (atoms, factor) = zero.terms
        if (
            len(atoms) == 1
            and atoms[0].kind == "symbol"
            and -constant % factor == 0
            and -constant // factor >= 1
        ):
            return atoms[0].text, -constant // factor
    return None
