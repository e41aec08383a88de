"""A client's passes over arrays that are ready: a fit's steps, and nothing of what lets one be watched, stopped and resumed.

A thousand clients of a few batches each feel what a fit does around its steps.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from circle_train.compile.program import Mode, Program
from circle_train.data.dataset import Dataset, check_data, order_of_epoch
from circle_train.federated.client.session import ClientSession
from circle_train.fitting.metrics.averages import Metric
from circle_train.ir import Tensor
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import NotFinite
from circle_train.runtime.executor import Executor
from circle_train.runtime.guard import is_spoiled, refusal
from circle_train.runtime.kept import KeptDataset, Samples


def is_ready(data: Any, session: ClientSession) -> TypeGuard[Dataset]:
    """Whether batches may be fed as they are, and whatever a first step says has been said by a fit."""
    programs, metrics = session.programs, session.metrics.named.values()
    return (
        session.is_known
        and not session.mu
        and type(data) in (Dataset, KeptDataset)
        and not programs.has_lengths
        and type(programs.whole) is Executor
        and all(isinstance(metric, Metric) for metric in metrics)
        and _fits(programs.whole.program, data)
        and not any(_weighs(session, data))
    )


def learn(session: ClientSession, data: Dataset, epochs: int, shuffle: bool) -> dict[str, float]:
    """The weights, to the bit, and the last epoch's loss and metrics that `fit` would give."""
    state, program = session.state, session.program
    with session.turns.alone("fit"), session.turns.running:
        state.require_values()
        require_unchanged(session.model.files)
        check_data(data, program, session.config.losses_on(program.outputs))
        for _ in range(epochs):
            order = order_of_epoch(len(data), session.seed, state.epochs_begun) if shuffle else None
            logs = _pass(session, data, order)
            state.epochs_begun += 1
    return logs


def _pass(session: ClientSession, data: Dataset, order: Array | None) -> dict[str, float]:
    state, config, programs = session.state, session.config, session.programs
    places = np.arange(len(data)) if order is None else order
    outputs = [np.empty((len(data), *t.shape[1:]), t.dtype.numpy) for t in programs.whole.program.outputs]
    keep = data.store.keep if isinstance(data, KeptDataset) else None
    total, turn = 0.0, None
    for start in range(0, len(data), config.batch_size):
        some = places[start : start + config.batch_size]
        if turn is None or len(some) != turn.size:
            turn = Turn(programs.executor(Mode.TRAIN, len(some), keep), data)
        state.set_scalars(config.rule)
        state.set_random(session.seed)
        try:
            turn.take(some)
        except NotFinite as error:
            raise refusal(error, state) from None
        state.count(True, True)
        for whole, made in zip(outputs, turn.outputs, strict=True):
            whole[start : start + len(some)] = made.reshape(len(some), *whole.shape[1:])
        total += _mean(turn.loss) * len(some)
    metrics = session.metrics
    metrics.reset()
    metrics.update(outputs, [target[places] for target in data.targets])
    return {"loss": total / len(data), **metrics.result()}


class Turn:
    """Steps of so many samples, with the memory that these come into and what comes of them lies in."""

    def __init__(self, executor: Executor, data: Dataset) -> None:
        program = executor.program
        assert program.loss is not None
        self.executor, self.data, self.size = executor, data, program.batch_size
        self.pairs = _pairs(program, data)
        self.is_plain = type(executor) is Executor and not executor.lanes
        memory = executor.arrays if self.is_plain else {}
        self.feeds = [(memory[tensor], array) for tensor, array in self.pairs if tensor in memory]
        self.outputs = [executor[tensor] for tensor in program.outputs]
        self.loss = executor[program.loss]

    def take(self, some: Array) -> None:
        """A step of these samples."""
        data, executor = self.data, self.executor
        if self.is_plain:
            for memory, array in self.feeds:
                array.take(some, 0, memory, "clip")
            return executor.advance()
        feeds = {tensor: array[some] for tensor, array in self.pairs}
        kept = Samples(data, some).feeds(executor) if isinstance(data, KeptDataset) else {}
        executor.run(feeds | kept)


def _mean(loss: Array) -> float:
    return float(loss.item() if loss.size == 1 else loss.mean())


def _pairs(program: Program, data: Dataset) -> list[tuple[Tensor, Array]]:
    """Tensors, and what they are fed from; not inputs of which the frozen beginning's results are kept."""
    targets = list(zip(program.targets, data.targets, strict=True))
    if isinstance(data, KeptDataset):
        return targets
    return [*zip(program.inputs, data.inputs, strict=True), *targets]


def _fits(program: Program, data: Dataset) -> bool:
    """Whether they are plain arrays of the types and shapes that the program takes, with numbers in them."""
    if isinstance(data, KeptDataset):
        store = data.store
        if not store.known.all() or any(is_spoiled(array) for array in store.arrays):
            return False
    return all(len(t.shape) and t.shape[0] == program.batch_size for t in program.outputs) and all(
        type(array) is np.ndarray
        and array.dtype == tensor.dtype.numpy
        and array.shape[1:] == tensor.shape[1:]
        and not is_spoiled(array)
        for tensor, array in _pairs(program, data)
    )


def _weighs(session: ClientSession, data: Dataset) -> list[bool]:
    """Of each output, whether labels say what a batch of them counts."""
    outputs = session.program.outputs
    losses = session.config.losses_on(outputs)
    return [
        loss.weight_of(target[:1], output.shape[-1]) is not None
        for loss, target, output in zip(losses, data.targets, outputs, strict=True)
    ]
