"""The open sizes of an ONNX model: symbols, what is learnt of them, and the examples that stand for them in a conversion."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product

from circle_train.convert.building.refusal import Blocked
from circle_train.convert.onnx_file.importer import Dim, Source
from circle_train.errors import ConversionError
from circle_train.ir.size import Number, Size, evaluated, replaced, symbol

FIRST = (2, 64)
"""Of the size of an input's first axis: samples, or, where too few of these do, steps of time, along which windows must fit."""
EXAMPLES = (
    (96, 24), (224, 1024), (160, 512), (512, 16000), (640, 128), (32, 1), (48, 320), (64, 80),
)  # fmt: skip
"""Of the sizes of an image (the last three as high as lines of text), and of others: the first that suit the model are taken;
nothing is concluded from them."""
MOST_EQUATIONS, LARGEST = 4, 2048
"""That examples are looked for with, and up to which."""
FIXED = {
    4: (224, 640, 512, 256, 320, 384, 416, 448, 480, 128, 192, 96, 64, 800, 1024), 5: (32, 16, 64, 96, 128),
}  # fmt: skip
"""What an open size is fixed to by rank, where it must be: the next where shapes do not fit: an exporter wrote its own down."""
FLOATS = (512, 16000, 80, 1024, 256, 64, 32, 100, 200, 300)
INTEGERS = (128, 512, 256, 64, 32, 16, 20, 10)


@dataclass(frozen=True)
class Assignment:
    """What the symbols are: expressions of those that stay open, or numbers, and examples of these."""

    known: Mapping[str, Number]
    examples: Mapping[str, int]

    def sizes(self, dims: Iterable[Dim]) -> tuple[Number, ...]:
        """A shape, its open sizes as expressions."""
        return tuple(self.known.get(dim, symbol(dim)) if isinstance(dim, str) else dim for dim in dims)

    def example(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        return tuple(evaluated(size, self.examples) for size in self.sizes(dims))

    def signature(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        """The shape with -1 for what is open."""
        return tuple(-1 if isinstance(size, Size) else size for size in self.sizes(dims))

    def smallest(self, dims: Iterable[Dim]) -> tuple[int, ...]:
        """The shape that the file states: open sizes as small as may be, which is 1 mostly, as TFLite writes them."""
        ones = dict.fromkeys(self.examples, 1)
        return tuple(evaluated(size, ones) for size in self.sizes(dims))


def learnt(known: Mapping[str, Number], more: Mapping[str, Number]) -> dict[str, Number]:
    """What is known, and something new, which what is known already is told of."""
    return {name: replaced(value, more) for name, value in known.items()} | dict(more)


def assignments(model: Source, known: Mapping[str, Number]) -> Iterator[Assignment]:
    """The same knowledge with examples of several magnitudes."""
    ranks = _open_symbols(model, known)
    are_all_first = all(is_first for is_first, _ in ranks.values())
    for few, (image, other) in product(FIRST, EXAMPLES[:1] if are_all_first else EXAMPLES):
        examples: dict[str, int] = {}
        batches = 0
        for number, (name, (is_batch, rank)) in enumerate(ranks.items()):
            batches += is_batch
            place = number - batches
            base = few + number if is_batch else image + 32 * place if rank > 3 else other + 8 * place
            examples[name] = max(base // _factor(name), 1)
        yield Assignment(known, examples)


def fitting(model: Source, known: Mapping[str, Number], equations: Sequence[Size]) -> Iterator[Assignment]:
    """Examples for which what was unequal is equal: the same number for all sizes that it speaks of, or two multiples of 16."""
    usuals = [dict(one.examples) for one in assignments(model, known)]
    tried: list[dict[str, int]] = []
    for usual in usuals[:: max(len(usuals) // 2, 1)]:
        solutions = [_solution(equation, usual) for equation in equations[:MOST_EQUATIONS]]
        together = {name: number for found in solutions for name, number in found.items()}
        for found in (*solutions, together):
            if found and (examples := usual | found) not in tried:
                tried.append(examples)
                yield Assignment(known, examples)


def _solution(equation: Size, examples: Mapping[str, int]) -> dict[str, int]:
    """Numbers of its symbols for which it is 0; none where none were found."""
    names = sorted(equation.symbols())
    same = ((number,) * len(names) for number in range(1, LARGEST))
    unlike = sorted(product(range(16, 1025, 16), repeat=2), key=lambda sizes: abs(sizes[0] - sizes[1]))
    for numbers in chain(same, unlike if len(names) == 2 else ()):
        found = dict(zip(names, numbers, strict=True))
        if evaluated(equation, {**examples, **found}) == 0:
            return found
    return {}


def _factor(name: str) -> int:
    """Of which the size that a symbol was learnt to be a part of is a multiple."""
    _, slash, factor = name.rpartition("/")
    return int(factor) * _factor(name.removesuffix(f"/{factor}")) if slash and factor.isdigit() else 1


def _open_symbols(model: Source, known: Mapping[str, Number]) -> dict[str, tuple[bool, int]]:
    """By name: whether it is an input's first axis, and the rank of the input."""
    found: dict[str, tuple[bool, int]] = {}
    for is_first in (True, False):
        for _, dims in model.inputs.values():
            for axis, size in enumerate(Assignment(known, {}).sizes(dims)):
                if isinstance(size, Size) and (axis == 0) == is_first:
                    for name in sorted(size.symbols()):
                        found.setdefault(name, (is_first, len(dims)))
    return found


class Guesses:
    """Sizes that a model cannot be converted without."""

    def __init__(self, model: Source) -> None:
        self.names: set[str] = set()
        self._model = model
        self._number = 0
        self._begin: tuple[Mapping[str, Number], set[str]] | None = None
        """What was known before the first of them, and what was to be guessed."""
        self._failure: ConversionError | None = None

    def after(self, blocked: Blocked, known: Mapping[str, Number]) -> Mapping[str, Number]:
        """The next ones, or the first failure with them; other numbers only where shapes did not fit together."""
        found = fixed(self._model, known, blocked.culprits, self._number)
        if not found:
            self._failure = self._failure or blocked.failure
            if self._begin is None or not getattr(blocked.failure, "is_unfit", False):
                raise self._failure from self._failure.__cause__
            self._number, self.names, (known, culprits) = self._number + 1, set(), self._begin
            found = fixed(self._model, known, culprits, self._number)
            if not found or all(size == 1 for size in found.values()):
                raise self._failure from self._failure.__cause__
        elif self._begin is None:
            self._begin = known, blocked.culprits
        self.names |= {name.split("/")[0] for name in found}
        return learnt(known, found)


def fixed(
    model: Source, known: Mapping[str, Number], culprits: Iterable[str], number: int = 0
) -> dict[str, Number]:
    """The guesses of this number for symbols; those of a batch are 1, and left for the last."""
    first = {dims[0] for _, dims in model.inputs.values() if dims}
    found: dict[str, Number] = {}
    batch: dict[str, Number] = {}
    for name in culprits:
        base = name.split("/")[0]
        if base in first:
            batch[name] = 1
            continue
        for dtype, dims in model.inputs.values():
            sizes = FIXED.get(len(dims), FLOATS if dtype.is_float else INTEGERS)
            if base in dims and name not in found and number < len(sizes):
                found[name] = max(sizes[number] // _factor(name), 1)
    return found or batch


def asked(model: Source, shapes: dict[str, tuple[int, ...]]) -> dict[str, Number]:
    """Symbols that the caller has fixed; where a file calls sizes the same that are not, an input has its own."""
    known: dict[str, Number] = {}
    for name, shape in shapes.items():
        if name not in model.inputs:
            raise ConversionError(f"shapes names '{name}', the model's inputs are {', '.join(model.inputs)}")
        dtype, dims = model.inputs[name]
        if len(dims) != len(shape) or any(
            s < -1 or s == 0 or (isinstance(d, int) and s not in (d, -1))
            for d, s in zip(dims, shape, strict=True)
        ):
            raise ConversionError(
                f"shapes gives '{name}' as {shape}, the model has {dims}; only open sizes can be fixed"
            )
        own = list(dims)
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
            if isinstance(dim, str) and size != -1 and known.setdefault(dim, size) != size:
                own[axis] = size
                model.contradictions.append(
                    f"shapes gives '{name}' as {shape}, where '{dim}' is {size}, but another input's '{dim}' is "
                    f"{known[dim]}; give both the same size"
                )
        model.inputs[name] = dtype, tuple(own)
    return known
