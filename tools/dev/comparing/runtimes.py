"""The runtimes that files were made for: what a model takes, at sizes of its own, and what it gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np

IMAGES = ((96, 64), (160, 96), (224, 224), (320, 320), (640, 640), (48, 320), (32, 100))
LENGTHS = (16, 24, 64, 128, 512, 1536, 16000, 16384)
BATCH = -1
"""A size that is the batch's."""
KNOWN = {"sr": 16000, "sample_rate": 16000}
"""Inputs whose value has one meaning only."""
Feeds = dict[str, Any]


class Onnx:
    """An .onnx model in onnxruntime; `other`: with weights that differ in their last bits, or node by node as it is written."""

    others: ClassVar[dict[str, float]] = {"weights": 32, "plain": 2}
    """What a difference counts: a sum of products is rounded more often than its weights are."""
    learnt: ClassVar[dict[str, tuple[int, ...]]] = {}
    """Shapes of inputs as we loaded the model, which knows what its weights say of sizes that the file leaves open."""

    def __init__(self, path: str, other: str = "") -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        if other == "plain":
            options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        model = nudged(path) if other == "weights" else path
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = [(i.name, tuple(i.shape), _numpy(i.type)) for i in self.session.get_inputs()]

    def run(self, feeds: Feeds) -> Feeds:
        names = [output.name for output in self.session.get_outputs()]
        found = zip(names, map(_plain, self.session.run(names, feeds)), strict=True)
        return {name: value for name, value in found if value is not None}

    def sizes(self) -> Iterator[dict[Any, int]]:
        """Numbers for the open sizes, by name or by input and axis."""
        for images, length in zip((*IMAGES, *IMAGES[:1]), LENGTHS, strict=True):
            for states in (False, True):
                yield self._chosen(images, length, states)

    def _chosen(self, images: tuple[int, int], length: int, states: bool) -> dict[Any, int]:
        """`states`: an axis between others is the batch, as the states of recurrences have it."""
        chosen: dict[Any, int] = {}
        for name, shape, _ in self.inputs:
            known = self.learnt.get(name, shape)
            for axis, (dim, ours) in enumerate(zip(shape, known, strict=True)):
                key = _key(name, shape, axis)
                if key is None:
                    continue
                image = len(shape) > 3 and axis > 0
                middle = states and 0 < axis < len(shape) - 1 and not image
                open_ = BATCH if axis == 0 or middle else images[axis % 2] if image else length
                chosen.setdefault(key, ours if isinstance(ours, int) and ours > 1 and ours != dim else open_)
        return chosen

    def feeds(self, sizes: dict[Any, int], batch: int, seed: int) -> Feeds:
        random = np.random.default_rng(seed)
        first = {key for name, shape, _ in self.inputs for key in [_key(name, shape, 0)] if key is not None}
        made = {}
        for name, shape, dtype in self.inputs:
            keys = [_key(name, shape, axis) for axis in range(len(shape))]
            dims = [
                shape[axis] if key is None else batch if key in first or sizes[key] == BATCH else sizes[key]
                for axis, key in enumerate(keys)
            ]
            made[name] = (
                np.array(KNOWN[name], dtype) if name in KNOWN and not dims else _random(random, dims, dtype)
            )
        return made


def _key(name: str, shape: tuple[Any, ...], axis: int) -> Any:
    """What an open size is known by; None for one that is fixed, and where there is no such axis."""
    if axis >= len(shape) or (isinstance(shape[axis], int) and shape[axis] > 0):
        return None
    return shape[axis] if isinstance(shape[axis], str) else (name, axis)


def _plain(value: Any) -> Any:
    """An array; a column for each class where they have names, nothing for strings."""
    if isinstance(value, list) and value and isinstance(value[0], dict):
        return np.array([list(row.values()) for row in value])
    return None if np.asarray(value).dtype.kind in "OUS" else value


def _numpy(kind: str) -> Any:
    name = kind.removeprefix("tensor(").removesuffix(")")
    return np.dtype({"float": "float32", "double": "float64"}.get(name, name))


def _random(random: np.random.Generator, shape: Any, dtype: Any) -> Any:
    if np.dtype(dtype).kind == "f":
        return random.standard_normal(tuple(shape)).astype(dtype)
    if np.dtype(dtype) in (np.int8, np.uint8) and len(shape) > 1:
        low = -128 if np.dtype(dtype) == np.int8 else 0
        return random.integers(low, low + 256, tuple(shape)).astype(dtype)
    return random.integers(0, 2, tuple(shape)).astype(dtype)


class LiteRt:
    """A .tflite model in LiteRT, at the sizes of what it is fed; `other`: by its reference kernels."""

    others: ClassVar[dict[str, float]] = {"reference": 2}

    def __init__(self, path: str, other: str = "") -> None:
        from ai_edge_litert.interpreter import Interpreter, OpResolverType

        kinds = [OpResolverType.AUTO, OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES]
        for kind in [OpResolverType.BUILTIN_REF] if other else kinds:
            try:
                self.interpreter = Interpreter(path, num_threads=1, experimental_op_resolver_type=kind)
            except Exception:
                if kind is not kinds[0]:
                    raise
            else:
                break
        self.inputs = self.interpreter.get_input_details()

    def sizes(self) -> Iterator[dict[Any, int]]:
        yield {}

    def feeds(self, chosen: dict[Any, int], batch: int, seed: int) -> Feeds:
        random = np.random.default_rng(seed)
        made = {}
        for detail in self.inputs:
            signature = detail["shape_signature"] if len(detail["shape_signature"]) else detail["shape"]
            sizes = zip(detail["shape"], signature, strict=True)
            shape = [batch if open_ < 0 and not axis else int(n) for axis, (n, open_) in enumerate(sizes)]
            made[detail["name"]] = _random(random, shape, detail["dtype"])
        return made

    def run(self, feeds: Feeds) -> Feeds:
        it = self.interpreter
        by_name = {detail["name"]: detail for detail in self.inputs}
        for name, value in feeds.items():
            if tuple(by_name[name]["shape"]) != value.shape:
                it.resize_tensor_input(by_name[name]["index"], value.shape)
        it.allocate_tensors()
        it.reset_all_variables()
        for name, value in feeds.items():
            it.set_tensor(by_name[name]["index"], value.astype(by_name[name]["dtype"]))
        it.invoke()
        return {detail["name"]: it.get_tensor(detail["index"]) for detail in it.get_output_details()}


def own_runtime(path: str) -> type[Onnx | LiteRt]:
    """Whose kind of file it is."""
    return Onnx if path.lower().endswith(".onnx") else LiteRt


def nudged(path: str) -> bytes:
    """The .onnx model with its float32 weights multiplied by 1 ± 2⁻²³."""
    import onnx

    model, random = onnx.load(path), np.random.default_rng(0)
    for tensor in model.graph.initializer:
        if tensor.data_type == onnx.TensorProto.FLOAT:
            values = onnx.numpy_helper.to_array(tensor)
            signs = random.integers(0, 2, values.shape, np.int8) * 2 - 1
            close = (values * (1 + signs * np.float32(2**-23))).astype(np.float32)
            tensor.CopyFrom(onnx.numpy_helper.from_array(close, tensor.name))
    content: bytes = model.SerializeToString()
    return content
