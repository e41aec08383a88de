"""Running a model as it is, for any batch size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import numpy as np

from circle_train.backends import blas, choice
from circle_train.compile.asked import refuse_unrunnable
from circle_train.compile.compile import compile_inference
from circle_train.compile.divided import compile_inference_of_parts, parts_of
from circle_train.data.coercion import to_tensor
from circle_train.errors import ConversionError, DataError, MadeForFewer
from circle_train.format.metadata.hints import refuse_nominal
from circle_train.info import TensorInfo
from circle_train.ir import DType, Graph, Tensor
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.tensor_type import Array
from circle_train.model import Model, Source, load
from circle_train.passes import pipelines
from circle_train.passes.batch import Shapes, set_shapes
from circle_train.passes.control.variables import lower_variables
from circle_train.runtime.divided import executor_of
from circle_train.runtime.executor import Executor, execute_once
from circle_train.runtime.pages import copies
from circle_train.runtime.state import State
from circle_train.session.turns import Turns, refuse_copies, waits

CACHED_SHAPES = 8


class InferenceSession:
    """Runs a model; nothing is trained. `inputs` fixes the values of inputs that are no samples, as in `ct.load`.

    Example:
        >>> import circle_train as ct, numpy as np
        >>> infer = ct.InferenceSession("tests/data/mlp.circle")
        >>> infer(np.zeros((3, 6), np.float32)).shape
        (3, 5)
    """

    def __init__(
        self,
        model: Model | Source,
        *,
        inputs: Mapping[str, Any] | None = None,
        threads: int | None = None,
        backend: str = "auto",
    ) -> None:
        self.model = load(model, inputs=inputs or {})
        refuse_nominal(self.model.module)
        self.backend = choice.choose(backend, threads, weights_stay=True)
        self._graph = self.model.module.main.copy()
        self._inputs, self._outputs = list(self._graph.inputs), list(self._graph.outputs)
        self._halves = [t.dtype is DType.FLOAT16 for t in self._outputs]
        """Outputs that the file has in halves: they are computed as floats."""
        self._made_for = next((t.shape[0] for t in self._inputs if t.shape), 1)
        self._memory = Memory(self._graph)
        pipelines.run(pipelines.before_inference(), self._graph)
        refuse_unrunnable(self._graph)
        self._executors: dict[Shapes, Fed | None] = {}
        self._fitting: set[Shapes] = set()
        """The shapes given last that are the model's."""
        self.turns = Turns()

    __reduce__ = refuse_copies

    def __call__(self, *inputs: Any) -> Any:
        """Outputs for the inputs in order: an array, or a list for several outputs."""
        values = (
            list(inputs[0]) if len(inputs) == 1 and isinstance(inputs[0], (list, tuple)) else list(inputs)
        )
        outputs = self._run(values)
        return outputs[0] if len(outputs) == 1 else outputs

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Any]) -> list[Array]:
        """Outputs by name (None: all) for inputs by name, as ONNX Runtime has it."""
        names = [tensor.name for tensor in self._inputs]
        missing, unknown = set(names) - set(feeds), set(feeds) - set(names)
        if missing or unknown:
            raise DataError(f"inputs are {sorted(feeds)}, expected {names}")
        outputs = dict(
            zip([t.name for t in self._outputs], self._run([feeds[n] for n in names]), strict=True)
        )
        wanted = list(outputs) if output_names is None else list(output_names)
        if strangers := [name for name in wanted if name not in outputs]:
            raise DataError(f"there is no output {strangers}, the model has {list(outputs)}")
        return [outputs[name] for name in wanted]

    @waits
    def reset(self) -> None:
        """Forget what a streaming model remembers from earlier runs: the next run is the first one."""
        self._memory.reset()

    @waits
    def _run(self, values: Sequence[Any]) -> list[Array]:
        for value in values:
            if type(value) is not np.ndarray and hasattr(value, "SerializeToString"):
                kind = type(value).__name__
                raise ConversionError(
                    f"an input is a {kind}, expected an array; convert it with onnx.numpy_helper.to_array"
                )
        require_unchanged(self.model.files)
        arrays = [np.asarray(value) for value in values]
        shapes = tuple([array.shape for array in arrays])
        if shapes not in self._fitting:
            self._check_shapes(arrays)
            self._fitting = {*self._fitting, shapes} if len(self._fitting) < CACHED_SHAPES else {shapes}
        if not self._memory.first:
            found = self._outputs_of(arrays, shapes)
        else:
            arrays += self._memory.recall(shapes, self._made_for)
            found = self._outputs_of(arrays, tuple([array.shape for array in arrays]))
            self._memory.keep(found[len(self._outputs) :])
            found = found[: len(self._outputs)]
        if True not in self._halves:
            return found
        return [
            made.astype(np.float16) if is_half else made
            for made, is_half in zip(found, self._halves, strict=True)
        ]

    def _outputs_of(self, arrays: list[Array], shapes: Shapes) -> list[Array]:
        if shapes not in self._executors:
            if len(self._executors) >= CACHED_SHAPES:
                self._executors.pop(next(iter(self._executors)))
            self._executors[shapes] = self._compile(shapes)
        fed = self._executors[shapes]
        return self._run_eagerly(arrays) if fed is None else fed.run(arrays)

    def _compile(self, shapes: Shapes) -> Fed | None:
        """A program for these shapes, or None if some shape depends on the data."""
        try:
            program = compile_inference(self._graph, shapes, self.backend)
        except MadeForFewer as refusal:
            program = compile_inference_of_parts(self._graph, shapes, self.backend, refusal)
        return None if program is None else Fed(executor_of(program, State([], 1.0), self.backend), shapes)

    def _run_eagerly(self, arrays: list[Array]) -> list[Array]:
        graph: Graph = self._graph.copy()
        shapes = tuple(array.shape for array in arrays)
        try:
            set_shapes(graph, shapes)
        except MadeForFewer as refusal:
            return self._run_parts(arrays, parts_of(self._graph, shapes, refusal), refusal)
        values = feeds_of(graph.inputs, arrays)
        most = self.backend.numpy_threads
        with nullcontext() if most is None else blas.limited(most):
            execute_once(graph.nodes, values)
        return [np.array(values[t] if t in values else t.data) for t in graph.outputs]

    def _run_parts(self, arrays: list[Array], few: Shapes, refusal: MadeForFewer) -> list[Array]:
        """What a file made for fewer samples gives of each part, one behind the other."""
        parts = max(len(array) // shape[0] for array, shape in zip(arrays, few, strict=True) if shape)
        found = [
            self._run_eagerly(
                [
                    array if array.shape == shape else array[number * shape[0] : (number + 1) * shape[0]]
                    for array, shape in zip(arrays, few, strict=True)
                ]
            )
            for number in range(parts)
        ]
        if any(output.shape[:1] != (refusal.samples,) for output in found[0]):
            raise refusal
        return [np.concatenate(pieces) for pieces in zip(*found, strict=True)]

    def _check_shapes(self, arrays: Sequence[Array]) -> None:
        """Rank and fixed sizes must be the model's; the first dimension is free."""
        tensors = self._inputs
        if len(arrays) != len(tensors):
            raise DataError(
                f"{len(arrays)} inputs given, the model takes {len(tensors)}: {[t.name for t in tensors]}"
            )
        for array, tensor in zip(arrays, tensors, strict=True):
            expected = TensorInfo.of(tensor).shape
            fits = array.ndim == len(expected) and all(
                want in (-1, found) for want, found in zip(expected[1:], array.shape[1:], strict=True)
            )
            if not fits or (array.ndim and array.shape[0] == 0 != expected[0]):
                sizes = ("N", *("any" if size < 0 else size for size in expected[1:])) if expected else ()
                raise DataError(f"input '{tensor.name}' has shape {array.shape}, expected {sizes}")


def feeds_of(tensors: Sequence[Tensor], arrays: Sequence[Array]) -> dict[Tensor, Array]:
    """Each array in its tensor's shape and element type."""
    return {tensor: to_tensor(array, tensor, "x") for tensor, array in zip(tensors, arrays, strict=True)}


class Fed:
    """An executor and where its inputs lie: what comes in their very shapes and types is copied there at once."""

    def __init__(self, executor: Executor, shapes: Shapes) -> None:
        self.executor = executor
        inputs = [executor[t] for t in executor.program.inputs] if type(executor) is Executor else []
        fits = tuple([array.shape for array in inputs]) == shapes
        self._slots = [(array, array.dtype) for array in inputs] if fits else None

    def run(self, arrays: Sequence[Array]) -> list[Array]:
        """Copies of the outputs."""
        executor = self.executor
        if self._takes(arrays):
            executor.advance()
        else:
            executor.run(feeds_of(executor.program.inputs, arrays))
        return copies([executor[tensor] for tensor in executor.program.outputs])

    def _takes(self, arrays: Sequence[Array]) -> bool:
        if self._slots is None:
            return False
        for (slot, dtype), array in zip(self._slots, arrays, strict=True):
            if array.dtype is not dtype:
                return False
            slot[...] = array
        return True


class Memory:
    """The variables of a loaded graph, which become further inputs and outputs of it."""

    def __init__(self, graph: Graph) -> None:
        lower_variables(graph)
        kept = [(v.first, v.last) for v in graph.variables if v.first is not None and v.last is not None]
        kept = [(first, last) for first, last in kept if first is not last]
        self.first = [first.data for first, _ in kept]
        for first, last in kept:
            first.buffer = None
            graph.inputs.append(first)
            graph.outputs.append(last)
        self.now = list(self.first)

    def __len__(self) -> int:
        return len(self.first)

    def reset(self) -> None:
        """Begin anew, with the values that the file gives."""
        self.now = list(self.first)

    def recall(self, shapes: Sequence[tuple[int, ...]], made_for: int) -> list[Array]:
        """The values, one for each sample where the file was made for one and is given more."""
        batch = next((shape[0] for shape in shapes if shape), made_for)
        if made_for != 1 or batch == made_for:
            return list(self.now)
        return [
            np.repeat(value, batch, axis=0) if value.ndim and value.shape[0] == 1 else value
            for value in self.now
        ]

    def keep(self, values: Sequence[Array]) -> None:
        self.now = list(values)
