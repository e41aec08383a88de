"""Which constants of a graph are parameters, what they are called, and which of them are trained."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import field
from fnmatch import fnmatchcase

from circle_train.errors import ConfigError
from circle_train.ir import Graph, Node, Role, StateKey, Tensor, TensorType
from circle_train.record import mutable
from circle_train.settings.config import Trainable, names_of
from circle_train.settings.roles import Roles

SHARE = re.compile(r"(.+)\[:(\d*\.?\d+)\]", re.DOTALL | re.ASCII)
"""A name or pattern, and the share of the input channels that is asked for behind it: "conv/kernel[:0.25]"."""


@mutable
class Parameter:
    """A float constant that an operator uses as a weight."""

    name: str
    tensor: Tensor
    consumers: list[Node] = field(default_factory=list)
    uses: list[Node] = field(default_factory=list)
    """Those of them that do not only rearrange or combine constants."""
    trained: bool = False
    why_not: str = "read by no operator"
    """Why it is trained only when named; nothing: it is a parameter by its role (see settings.roles)."""
    is_statistic: bool = False
    """A running mean or variance of a batch normalisation: never trained."""
    moves: bool = False
    """A statistic that training passes move."""
    share: float = 1.0
    """Of its input channels, the first ones: their weights are trained, the others stay."""

    @property
    def by_default(self) -> bool:
        return not self.why_not

    @property
    def has_channels(self) -> bool:
        """Whether floats are read by the channels of an input, wherever they are read: a share of them can be trained."""
        return self.root.dtype.is_float and all(is_read_by_channel(n, self.tensor) for n in self.consumers)

    @property
    def learned(self) -> TensorType:
        """What training moves of it, from the first number of each axis on; gradient and slots are as large."""
        if self.share == 1:
            return self.tensor.type
        *others, channels = self.tensor.shape
        return self.tensor.type.with_shape((*others, max(round(self.share * channels), 1)))

    @property
    def root(self) -> Tensor:
        """The tensor of the loaded module that holds the values, possibly in another form."""
        return self.tensor.root()

    @property
    def stands_for(self) -> tuple[Tensor, ...]:
        """The tensors of the loaded module that hold its values."""
        return (self.root, *self.tensor.weight.one_with)

    @property
    def readers(self) -> tuple[int, ...] | None:
        """The loaded operators that read it, where others read the same tensor as something else."""
        return self.tensor.weight.readers

    def is_read_as(self, tensor: Tensor, reader: int) -> bool:
        """Whether this operator of the loaded module reads its values in that tensor."""
        return tensor in self.stands_for and (self.readers is None or reader in self.readers)


def find_parameters(graph: Graph) -> list[Parameter]:
    """Every float constant that reaches an operator, in order of first use, by unique names."""
    sources: dict[Tensor, list[Tensor]] = {}
    found: dict[Tensor, Parameter] = {}
    names: set[str] = set()
    roles = Roles(graph)
    for node in graph.nodes:
        constants_only = True
        leaves: list[Tensor] = []
        for index, tensor in enumerate(node.inputs):
            if tensor is None:
                continue
            reached = [tensor] if _is_leaf(tensor) else sources.get(tensor, [])
            constants_only &= bool(reached) or tensor.is_constant
            leaves += reached
            for leaf in reached:
                if leaf not in found:
                    found[leaf] = Parameter(
                        _unique(leaf, names), leaf, is_statistic=Role.STATISTIC in leaf.root().role
                    )
                found[leaf].consumers.append(node)
                found[leaf].why_not = found[leaf].why_not and roles.why_not(node, index, leaf)
        if constants_only:
            for out in node.outputs:
                sources[out] = leaves
        else:
            for leaf in dict.fromkeys(leaves):
                found[leaf].uses.append(node)
    return list(found.values())


def _is_leaf(tensor: Tensor) -> bool:
    return (
        tensor.is_constant
        and tensor.dtype.is_float
        and tensor.producer is None
        and Role.GRID not in tensor.role
    )


def _unique(tensor: Tensor, names: set[str]) -> str:
    name = tensor.root().name or tensor.name or "parameter"
    chosen, count = name, 1
    while chosen in names:
        chosen, count = f"{name}:{count}", count + 1
    names.add(chosen)
    return chosen


def choose_trainable(
    trainable: Trainable, parameters: Sequence[Parameter], operators: int, frozen: Sequence[str] = ()
) -> list[Parameter]:
    """Mark and return the parameters that the setting names and `frozen` does not."""
    names = names_of(trainable)
    if names is not None:
        chosen = _in_part(names, parameters)
        if both := sorted({part_of(name)[0] for name in names} & set(frozen)):
            raise ConfigError(f"parameter '{both[0]}' is listed as trainable and as frozen; list it once")
    elif callable(trainable):
        chosen = [p for p in parameters if trainable(p.name) and not p.is_statistic]
    elif trainable == "all":
        chosen = [p for p in parameters if p.by_default]
    elif trainable == "none":
        chosen = []
    else:
        indices = set(operator_indices(trainable, operators))
        chosen = [
            p for p in parameters if p.by_default and any(node.index in indices for node in p.consumers)
        ]
    kept = {p.name for p in _named(frozen, parameters, "frozen")}
    chosen = [p for p in chosen if p.name not in kept]
    for parameter in chosen:
        parameter.trained = True
    return chosen


def is_read_by_channel(node: Node, tensor: Tensor) -> bool:
    """Whether the operator reads the tensor as weights whose last axis runs over all channels of its input."""
    names = [node.op.input_name(i) for i, t in enumerate(node.inputs) if t is tensor]
    x = node.inputs[0]
    by_channel = bool(names) and set(names) == {node.op.by_channel}
    return by_channel and x is not None and x.shape[-1:] == tensor.shape[-1:]


def part_of(name: str) -> tuple[str, float]:
    """A name or pattern and the share that is asked for behind it; 1: the whole."""
    found = SHARE.fullmatch(name)
    return (name, 1.0) if found is None else (found[1], float(found[2]))


def _in_part(names: Sequence[str], parameters: Sequence[Parameter]) -> list[Parameter]:
    """The parameters of these names or patterns, each whole or as far as is asked for behind the name."""
    known = {p.name for p in parameters}
    asked: dict[Parameter, float] = {}
    for name in names:
        pattern, share = (name, 1.0) if name in known else part_of(name)
        if pattern != name and not 0 < share < 1:
            raise ConfigError(
                f"trainable: '{name}' asks for the share {share:g} of the input channels, expected one between 0 and 1, "
                f"as in '{pattern}[:0.25]'"
            )
        for parameter in _named([pattern], parameters, "trainable"):
            if asked.setdefault(parameter, share) != share:
                raise ConfigError(
                    f"trainable: two different shares of '{parameter.name}' are listed; list one"
                )
            if share < 1 and not parameter.has_channels:
                raise ConfigError(
                    f"trainable: '{name}' asks for a share of the input channels, by which no layer reads '{parameter.name}': "
                    "expected weights, in floats, of CONV_2D without groups or of FULLY_CONNECTED"
                )
            parameter.share = share
    return [p for p in parameters if p in asked]


def _named(patterns: Sequence[str], parameters: Sequence[Parameter], setting: str) -> list[Parameter]:
    """The parameters of these names or patterns; every one of them must mean something."""
    known = [p for p in parameters if p.by_default or p.is_statistic]
    chosen: set[str] = set()
    for pattern in patterns:
        exact = [p for p in parameters if p.name == pattern]
        found = exact or [p for p in known if fnmatchcase(p.name, pattern)]
        if not found:
            some = ", ".join(f"'{p.name}'" for p in known[:5])
            raise ConfigError(
                f"{setting}: '{pattern}' is no parameter, nor a pattern of one; "
                f"the model has {len(known)} ({some}, …)"
            )
        if setting == "trainable":
            if exact and exact[0].is_statistic:
                raise ConfigError(
                    f"trainable: '{pattern}' is a running statistic, which has no gradient; "
                    "batch_norm='train' lets training passes move it"
                )
            found = [p for p in found if not p.is_statistic]
        chosen.update(p.name for p in found)
    return [p for p in parameters if p.name in chosen]


def operator_indices(trainable: Trainable, operators: int) -> Iterable[int]:
    """Positions in the operator list that the setting stands for."""
    if trainable == "all":
        return range(operators)
    if trainable == "none" or callable(trainable) or names_of(trainable) is not None:
        return ()
    assert isinstance(trainable, tuple)
    if trainable and trainable[0] == "last":
        count = int(trainable[1])
        if count > operators:
            warnings.warn(
                f"trainable is 'last:{count}', but the model has {operators} operators: all of them are trained",
                stacklevel=2,
            )
        return range(max(operators - count, 0), operators)
    for index in trainable:
        if not 0 <= int(index) < operators:
            raise ConfigError(
                f"trainable names operator {index}, but the model has operators 0 … {operators - 1}"
            )
    return [int(index) for index in trainable]


def make_states(parameters: Sequence[Parameter], statistics_move: bool = False) -> list[Parameter]:
    """From now on weights live in the session's state, frozen ones too, so that they can be read and set by name."""
    weights = [p for p in parameters if p.by_default or p.trained or p.is_statistic]
    for parameter in weights:
        parameter.tensor.state = StateKey("value", parameter.name)
        parameter.moves = parameter.is_statistic and statistics_move
    return weights
