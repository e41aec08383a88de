"""Training within a given memory: a batch is taken in parts whose gradients add up to exactly the whole batch's."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from circle_train.errors import ConfigError
from circle_train.ir import Node, Tensor
from circle_train.train.config import BatchNormMode, TrainConfig
from circle_train.train.loss import Loss, Reduction
from circle_train.train.prefix import is_fixed, is_separable
from circle_train.train.program import Program
from circle_train.train.state import mapped

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def parse_bytes(budget: int | str, what: str = "memory_budget") -> int:
    """A number of bytes, or one with a unit: "150MB", "1.5 GB", "64MiB"."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([KMG]I?|)B?\s*", budget.upper())
        if found:
            return int(float(found[1]) * UNITS[found[2]])
    elif not isinstance(budget, bool) and budget > 0:
        return int(budget)
    raise ConfigError(f"{what} is {budget!r}, expected a number of bytes or a text like '150MB'")


@dataclass(frozen=True)
class Share:
    """One way to take a batch: so many samples at a time, and the bytes that a step then needs."""

    samples: int
    nbytes: int


def smaller_batches(batch: int) -> Iterator[int]:
    """The equal parts into which a batch can be cut, largest first."""
    return (size for size in range(batch - 1, 0, -1) if batch % size == 0)


def step_bytes(program: Program, accumulates: bool) -> int:
    """What a training step holds in memory: arena, weights, slots, accumulated gradients; not the engine itself."""
    trained = sum(p.tensor.type.nbytes for p in program.trained)
    original = sum(p.tensor.type.nbytes for p in program.trained if mapped(p.tensor.data) is None)
    frozen = sum(p.tensor.type.nbytes for p in program.parameters if not p.trained)
    states = {t.state: t.type.nbytes for t in program.graph.all_tensors() if t.state is not None}
    slots = sum(nbytes for key, nbytes in states.items() if key.kind not in ("value", "gradient"))
    return program.arena_bytes + trained + original + frozen + slots + (trained if accumulates else 0)


def share_of_loss(config: TrainConfig, outputs: int, parts: int) -> float:
    """By what a part's loss is multiplied so that the parts' losses add up to the whole batch's."""
    reductions = {_reduction(loss) for loss in config.losses_for(outputs)}
    if reductions == {Reduction.MEAN}:
        return 1 / parts
    if reductions <= {Reduction.SUM, Reduction.SUM_ELEMENTS}:
        return 1.0
    raise _indivisible("losses are reduced in different ways, or not at all")


def _reduction(loss: Loss) -> Reduction:
    weighted = [
        name for name in ("class_weights", "ignore_index", "terms") if getattr(loss, name, None) is not None
    ]
    if weighted:
        raise _indivisible(f"{type(loss).__name__} has {weighted[0]}, by which samples depend on each other")
    assert isinstance(loss.reduction, Reduction)
    return loss.reduction


def require_divisible(
    config: TrainConfig, inputs: Sequence[Tensor], nodes: Sequence[Node], batch: int
) -> None:
    """Refuse a model in which one sample of a batch depends on the others."""
    if config.batch_norm is BatchNormMode.TRAIN:
        raise _indivisible("batch_norm is 'train', by which samples depend on each other")
    whole, fixed = set(inputs), set[Tensor]()
    for node in nodes:
        if is_fixed(node, fixed):
            fixed.update(node.outputs)
            continue
        if not any(t in whole for t in node.inputs):
            continue
        if not is_separable(node, whole, batch, fixed):
            raise _indivisible(f"{node} may mix the samples of a batch")
        whole.update(node.outputs)


def _indivisible(why: str) -> ConfigError:
    return ConfigError(
        f"memory_budget: the batch cannot be taken in parts, because {why}; use a smaller batch_size"
    )
