"""Training within a given memory: results are made again instead of kept, and a batch is taken in parts.

The gradients of the parts add up to exactly the whole batch's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from math import ceil, inf

from circle_train.backends.base import Backend
from circle_train.compile.compile import compile
from circle_train.compile.program import Mode, Program
from circle_train.compile.stored import compile_stored
from circle_train.compile.thrift.recompute import recompute
from circle_train.compile.thrift.shares import Share, Shares, formula, shares
from circle_train.compile.thrift.work import step_work
from circle_train.errors import ConfigError
from circle_train.ir import Graph, Node
from circle_train.record import record
from circle_train.settings.config import BatchNormMode, TrainConfig

UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "KI": 2**10, "MI": 2**20, "GI": 2**30}


def parse_bytes(budget: int | str, what: str = "memory_budget") -> int:
    """A number of bytes, or one with a unit: "150MB", "1.5 GB", "64MiB"."""
    if isinstance(budget, str):
        found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(?=[KMGB])([KMG]I?|)B?\s*", budget.upper())
        if found:
            return int(float(found[1]) * UNITS[found[2]])
    elif not isinstance(budget, bool) and budget > 0:
        return int(budget)
    raise ConfigError(f"{what} is {budget!r}, expected a size with its unit, like '150MB' or '2GB'")


def smaller_batches(batch: int) -> Iterator[int]:
    """The equal parts into which a batch can be cut, largest first."""
    return (size for size in range(batch - 1, 0, -1) if batch % size == 0)


@record
class Fit:
    """The programs that together take a step within a budget."""

    program: Program
    """Of the batch, or of each of its equal parts."""
    update: Program | None
    """Moves the weights when all parts are done; None where the batch is taken whole."""
    nbytes: int
    """Without the engine's own memory."""
    work: float
    """What the step is expected to cost."""


def fit_budget(
    model: Graph, config: TrainConfig, whole: Program, engine: Backend, engine_bytes: int
) -> Fit | None:
    """The cheapest way to take the batch within the budget, by its work; None if it fits as it is.

    Results are made again instead of kept, the batch is taken in parts, or both.
    """
    assert config.memory_budget is not None
    budget = parse_bytes(config.memory_budget) - engine_bytes
    if whole.step_bytes <= budget:
        return None
    obstacle = indivisible(config, whole) if whole.part is None else ""
    best: Fit | None = None
    least, divided = inf, False
    for fit in _fits(model, config, whole, engine, budget, not obstacle):
        least, divided = min(least, fit.nbytes), divided or fit.update is not None
        if fit.nbytes <= budget and (best is None or fit.work < best.work):
            best = fit
    if best is None:
        needed = ceil((least + engine_bytes) / 1e4) / 100
        if not obstacle and not divided:
            obstacle = "the loss is another formula for fewer samples"
        raise ConfigError(
            f"memory_budget is {config.memory_budget!r}, but a step needs {needed:.2f} MB even when results are made again "
            f"instead of kept{_how(obstacle, whole.batch_size)}; give at least that, a smaller batch, or train fewer parameters"
        )
    return best


def _fits(
    model: Graph, config: TrainConfig, whole: Program, engine: Backend, budget: int, divisible: bool
) -> Iterator[Fit]:
    """Each size of the parts, with as much made again as the budget asks for; until nothing need be any more."""
    fixed = whole.step_bytes - whole.arena_bytes
    if whole.part is not None:
        part = recompute(whole.part, budget - fixed)
        yield Fit(part, whole.update, fixed + part.arena_bytes, step_work(part))
        return
    program = recompute(whole, budget - fixed)
    yield Fit(program, None, fixed + program.arena_bytes, step_work(program))
    if not divisible:
        return
    batch = whole.batch_size
    update = compile(model, config, Mode.UPDATE, batch, engine)
    fixed = update.step_bytes - update.arena_bytes
    for samples in smaller_batches(batch):
        share = share_of_loss(whole, batch // samples)
        part = compile(model, config, Mode.ACCUMULATE, samples, engine, share).in_one_lane()
        if formula(part) != formula(whole):
            continue
        fits = fixed + part.arena_bytes <= budget
        part = part if fits else recompute(part, budget - fixed)
        work = batch // samples * step_work(part) + step_work(update)
        yield Fit(part, update, fixed + part.arena_bytes, work)
        if fits:
            return


def _how(obstacle: str, batch: int) -> str:
    if obstacle and batch > 1:
        return f", and the batch cannot be taken in parts, because {obstacle}"
    return f" and the batch of {batch} is taken sample by sample" if batch > 1 else ""


def share_of_loss(whole: Program, parts: int) -> float:
    """By what a part's loss is multiplied so that the parts' losses add up to the whole batch's."""
    return 1 / parts if shares(whole)[0].get(whole.loss) is Share.MEAN else 1.0


def indivisible(config: TrainConfig, whole: Program) -> str:
    """Why the parts of a batch would not add up to it; nothing if they do."""
    if whole.mode.has_backward and config.batch_norm is BatchNormMode.TRAIN:
        return "batch_norm is 'train', by which samples depend on each other"
    made, mixing = shares(whole)
    if mixing in whole.operators[: whole.forward_nodes]:
        return f"{mixing} may mix the samples of a batch"
    if not all(made.get(t) is Share.EACH for t in (*whole.outputs, *whole.extra)):
        return "not every output has the batch's samples along its first axis"
    return _unequal(whole, made, mixing) if whole.mode.has_loss else ""


def _unequal(whole: Program, made: Shares, mixing: Node | None) -> str:
    """Why the losses of the parts would not add up."""
    losses = {made.get(t) for t in whole.losses} - {Share.SAME}
    if Share.EACH in losses or len(losses - {None}) > 1:
        return "losses are reduced in different ways, or not at all"
    if mixing is not None or made.get(whole.loss) not in (Share.MEAN, Share.SUM):
        return f"the loss's {mixing.op.name if mixing else 'formula'} may mix the samples of a batch"
    return ""


def lessened(whole: Program, room: int) -> Program:
    """The program in an arena of so many bytes, if that can be without parts of the batch; else with the least there is."""
    if whole.arena_bytes <= room:
        return whole
    whole = whole.in_one_lane()
    return recompute(whole.part or whole, room) if whole.mode.has_backward or whole.part else whole


def fit_arena(
    model: Graph, config: TrainConfig, whole: Program, engine: Backend, room: int
) -> Program | None:
    """What takes the batch, or equal parts of it, in an arena of so many bytes; None where nothing does.

    Of programs that update nothing: they change no weights, so that parts need only be put together.
    """
    program = lessened(whole, room)
    if program.arena_bytes <= room:
        return program
    whole = whole.in_one_lane()
    if whole.part is not None or indivisible(config, whole):
        return None
    alike = []
    for samples in smaller_batches(whole.batch_size):
        share = share_of_loss(whole, whole.batch_size // samples) if whole.mode.has_loss else 1.0
        alone = (
            compile_stored(model, config, whole.mode, samples, engine, None, whole.stored, share)
            if whole.stored
            else None
        )
        part = (alone or compile(model, config, whole.mode, samples, engine, share)).in_one_lane()
        if whole.mode.has_loss and formula(part) != formula(whole):
            continue
        if part.arena_bytes <= room:
            return part
        alike.append(part)
    thrifty = (recompute(part, room) for part in alike if whole.mode.has_backward)
    return next((part for part in thrifty if part.arena_bytes <= room), None)
