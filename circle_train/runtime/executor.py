"""One arena, one list of bound steps, run()."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress

import numpy as np

from circle_train.backends import blas
from circle_train.backends.base import Backend, Reference, Step
from circle_train.compile.program import Prefix, Program
from circle_train.errors import ModelError
from circle_train.ir import Node, Tensor
from circle_train.ir.blame import Blame
from circle_train.ir.coded import Coded
from circle_train.ir.remade import is_let_go
from circle_train.ir.tensor_type import Array
from circle_train.ops.internal.gradient import GuardFinite
from circle_train.runtime.pages import aligned, allocate
from circle_train.runtime.state import State
from circle_train.runtime.undisturbed import Undisturbed
from circle_train.uncollected import uncollected

OPERATOR = 8_300
"""Bytes of Python's objects for one operator of a program, as measured by tools/dev/memory.py on models of 3 to 300."""
CLASSES = 365_000  # bytes of what a first program asks classes for: their fields, an `__init__`
LARGE = 1 << 20
"""Bytes of an arena from which Ctrl-C does not wait for those steps too that change nothing."""


class Executor:
    """A program bound to memory: its arena, the session's state, the file's constants."""

    parts = 1
    """In how many a batch is taken."""

    def __init__(
        self, program: Program, state: State, backend: Backend | None = None, arena: Array | None = None
    ) -> None:
        self.program, self.state = program, state
        self.generation = state.generation
        """Of the state when its arrays were bound."""
        fits = arena is not None and arena.nbytes >= program.arena_bytes
        self.arena = arena if arena is not None and fits else allocate(program.arena_bytes)
        self.arrays: dict[Tensor, Array] = {}
        self.engines: dict[Node, str] = {}
        """Which engine runs each node; views take no step and are not listed."""
        self.backend = backend = backend or Reference()
        self.lanes = self._make_lanes(backend)
        """Executors of the frozen beginning: each takes its part of the batch, side by side with the others."""
        for lane in self.lanes[:1]:
            self.engines.update(lane.engines)
        self.bound = self._bind(backend)
        """The nodes that take a step, and their steps one by one."""
        self._numpy_threads = backend.numpy_threads if Reference.name in self.engines.values() else None
        first = next((i for i, (node, _) in enumerate(self.bound) if _writes(node)), len(self.bound))
        first *= self.arena.nbytes >= LARGE
        reading = backend.link([step for _, step in self.bound[:first]])
        self.steps = [*reading, *backend.link([step for _, step in self.bound[first:]])]
        self.reading = len(reading)
        """So many of the steps leave the state as it is; from then on a run must come to its end."""

    def run(self, feeds: Mapping[Tensor, Array], undisturbed: Undisturbed | None = None) -> None:
        """Copy the feeds into the arena and take every step; what the frozen beginning gives may be fed as well."""
        self.state.settle()
        prefix = self.program.prefix
        if self.lanes and prefix is not None and not prefix.results.keys() <= feeds.keys():
            self.run_beginning(feeds)
        arrays = self.arrays
        for tensor, value in feeds.items():
            if tensor in arrays:
                np.copyto(arrays[tensor], value)
        self._advance(undisturbed)

    def advance(self) -> None:
        """Take every step on what lies in the arena."""
        self.state.settle()
        self._advance(None)

    def _advance(self, undisturbed: Undisturbed | None) -> None:
        if self._numpy_threads is None:
            self._take_steps(undisturbed)
            return
        with blas.limited(self._numpy_threads):
            self._take_steps(undisturbed)

    def _take_steps(self, undisturbed: Undisturbed | None) -> None:
        for step in self.steps[: self.reading]:
            step()
        if undisturbed is not None:
            undisturbed.begin()
        for step in self.steps[self.reading :]:
            step()

    def rebound(self) -> Executor:
        """The same program bound to the arrays that the state has now."""
        return Executor(self.program, self.state, self.backend, self.arena)

    @property
    def engine_bytes(self) -> int:
        """What is no array of the program: code, the kernels' working memory, Python's objects, what a step hands out."""
        program, prefix = self.program, self.program.prefix
        engines = [self.backend, *(lane.backend for lane in self.lanes if lane.backend is not self.backend)]
        count = len(program.operators) + (len(prefix.program.operators) if prefix is not None else 0)
        handed = sum(tensor.type.nbytes for tensor in (*program.outputs, *program.extra))
        bound = [step for part in (self, *self.lanes) for _, step in part.bound]
        packed = sum(getattr(step, "nbytes", 0) for step in bound)
        objects = CLASSES + OPERATOR * count + self._decoded()
        return sum(engine.nbytes for engine in engines) + objects + handed + packed

    def _decoded(self) -> int:
        """Weights that lie as integers, and as floats too for who cannot read those."""
        made = [
            a for part in (self, *self.lanes) for t, a in part.arrays.items() if isinstance(t.buffer, Coded)
        ]
        return sum(array.nbytes for array in {id(a): a for a in made if not a.flags.writeable}.values())

    @property
    def prefix(self) -> Executor | None:
        """The first lane, where there are any."""
        return self.lanes[0] if self.lanes else None

    def _make_lanes(self, backend: Backend) -> list[Executor]:
        prefix = self.program.prefix
        if prefix is None:
            return []
        nbytes, start = prefix.program.arena_bytes, self.program.memory.nbytes
        pieces = [self.arena[start + i * nbytes : start + (i + 1) * nbytes] for i in range(prefix.lanes)]
        engines = backend.side_by_side(prefix.lanes)
        return [
            Executor(prefix.program, self.state, engine, piece)
            for engine, piece in zip(engines, pieces, strict=True)
        ]

    def run_beginning(self, feeds: Mapping[Tensor, Array]) -> None:
        """Each lane on a thread of its own, the first on this one; what one raises is raised here."""
        self.state.settle()
        failures: list[BaseException] = []
        prefix = self.program.prefix
        assert prefix is not None
        waiting = deque(range(0, self.program.batch_size, prefix.program.batch_size))

        def attempt(index: int) -> None:
            try:
                self._run_lane(self.lanes[index], prefix, feeds, waiting)
            except BaseException as failure:
                failures.append(failure)

        threads = [threading.Thread(target=attempt, args=(i,)) for i in range(1, len(self.lanes))]
        for tensor in prefix.results:
            self[tensor]
        started = []
        try:
            for thread in threads:
                with suppress(RuntimeError):  # there are threads enough; those that run take its part
                    thread.start()
                    started.append(thread)
            attempt(0)
        finally:
            with Undisturbed() as undisturbed:  # nobody may write into the arena when the next run begins
                undisturbed.begin()
                if failures:
                    waiting.clear()
                for thread in started:
                    thread.join()
        if failures:
            raise failures[0]

    def _run_lane(
        self, lane: Executor, prefix: Prefix, feeds: Mapping[Tensor, Array], waiting: deque[int]
    ) -> None:
        """Take the next few samples as long as there are any, and put what comes of them in its place."""
        few = prefix.program.batch_size
        while waiting:
            try:
                start = waiting.popleft()
            except IndexError:  # another lane was faster
                return
            part = slice(start, start + few)
            lane.run({own: feeds[whole][part] for whole, own in prefix.sources.items()})
            for whole, own in prefix.results.items():
                samples = self[whole].reshape(self.program.batch_size, -1)
                np.copyto(samples[part], lane[own].reshape(few, -1))

    def __getitem__(self, tensor: Tensor) -> Array:
        """The memory of a tensor: valid until the next run if the program keeps it."""
        if tensor not in self.arrays:
            self.arrays[tensor] = self._locate(tensor)
        return self.arrays[tensor]

    @uncollected()
    def _bind(self, backend: Backend) -> list[tuple[Node, Step]]:
        reference = Reference()
        steps: list[tuple[Node, Step]] = []
        self.state.provide(self.program.graph.all_tensors())
        for tensor in self.program.graph.inputs:
            self[tensor]
        for node in self.program.graph.nodes:
            outputs = [self[t] for t in node.outputs]
            if node.op.view_input is not None:
                continue
            as_they_lie = [None if t is None else self._coded(t) or self[t] for t in node.inputs]
            inputs = as_they_lie
            with Blame(node):
                step = backend.bind(node, as_they_lie, outputs)
                if step is None and any(isinstance(given, Coded) for given in as_they_lie):
                    inputs = [None if t is None else self[t] for t in node.inputs]
                    step = backend.bind(node, inputs, outputs)
            for member in node.originals or (node,):
                self.engines[member] = reference.name if step is None else backend.name
            steps.append((node, step or reference.bind(node, inputs, outputs)))
        self.arrays = {t: a for t, a in self.arrays.items() if t.state is not None or not is_let_go(t.buffer)}
        return steps

    def _coded(self, tensor: Tensor) -> Coded | None:
        """The integers of a weight that nobody needs as floats so far."""
        if (
            tensor in self.arrays
            or tensor in self.program.memory.views
            or isinstance(self.backend, Reference)
        ):
            return None
        if tensor.state is not None:
            return self.state.coded.get(tensor.state)
        return tensor.buffer if isinstance(tensor.buffer, Coded) else None

    def _locate(self, tensor: Tensor) -> Array:
        memory = self.program.memory
        if tensor.state is not None:
            return self.state.array(tensor)
        if tensor in memory.views:
            return self[memory.views[tensor]].reshape(tensor.shape)
        if tensor in memory.block_of:
            start = memory.offset(tensor)
            numpy_dtype = tensor.dtype.numpy
            if numpy_dtype is None:
                raise ModelError(f"{tensor} holds no numbers and cannot be computed; cut the model before it")
            return self.arena[start : start + tensor.type.nbytes].view(numpy_dtype).reshape(tensor.shape)
        return aligned(tensor.data)


def _writes(node: Node) -> bool:
    """Whether it changes the state."""
    return node.op.mutates and not isinstance(node.op, GuardFinite)


def execute_once(nodes: Sequence[Node], values: dict[Tensor, Array]) -> None:
    """Run nodes one by one on arrays of whatever shape they turn out to have (for models of dynamic shapes)."""
    with np.errstate(all="ignore"):
        for node in nodes:
            with Blame(node):
                inputs = [None if t is None else values[t] if t in values else t.data for t in node.inputs]
                values.update(zip(node.outputs, node.op.compute(inputs), strict=True))
