"""An ONNX model in integers: QuantizeLinear and DequantizeLinear around what is 8 bits wide, as onnxruntime reads it.

The arithmetic of the file stays that of floats on rounded numbers, so every runtime gets it right; those that know the pattern
compute in integers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.convert.back.writeback import choose_outputs
from circle_train.errors import ConfigError, ConversionError
from circle_train.ir import DType, Quantization
from circle_train.ir.tensor_type import Array
from circle_train.quantize.qdq_ready import hold_copies, left_in_floats
from circle_train.quantize.scales import as_integers, for_bias, product, symmetric

PRODUCTS = {"Conv": 0, "Gemm": 0, "MatMul": 1}
"""What has weights, and their axis of outputs (Gemm: unless transB is 0)."""
BESIDE = {
    "Add",
    "Mul",
    "Concat",
    "GlobalAveragePool",
    "AveragePool",
    "Relu",
    "Clip",
    "LeakyRelu",
    "Sigmoid",
    "HardSwish",
}
"""What onnxruntime has in integers besides."""
KEEPING = {"MaxPool", "Reshape", "Flatten", "Transpose", "Squeeze", "Unsqueeze"}
"""What keeps its input's scale."""
CLIPS = {"Relu", "Clip"}
"""What a product does itself."""
ACTIVATION = DType.UINT8
"""Of activations: what onnxruntime's kernels take on every processor."""
OPSET = 13
"""From which on weights have scales by axis."""


class Qdq:
    """A model on its way."""

    def __init__(self, model: Any) -> None:
        self.model, self.graph = model, model.graph
        known = max(
            (entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")), default=0
        )
        if known < OPSET:
            raise ConversionError(
                f"quantize: the ONNX model is of opset {known}, scales by channel need {OPSET}; export it anew in that one"
            )
        hold_copies(self.graph)
        self.held = {tensor.name: tensor for tensor in self.graph.initializer}
        self.readers: dict[str, list[Any]] = {}
        for node in self.graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        self.outputs = {output.name for output in self.graph.output}
        self._fold_normalisations()
        self.products = [
            node for node in self.graph.node if node.op_type in PRODUCTS and self._has_weights(node)
        ]
        if not self.products:
            raise ConfigError(
                "quantize: the ONNX model holds no Conv, Gemm or MatMul with constant weights; it is shipped as it is, without "
                "quantize"
            )
        self.sources = self._kept_from()
        self.observed = self._activations()
        self.floats = tuple(
            left_in_floats(self.graph, {id(node) for node in self.products}, BESIDE | KEEPING, self._floats())
        )

    def values(self, name: str) -> Array:
        """Of a constant."""
        from onnx import numpy_helper

        found: Array = numpy_helper.to_array(self.held[name])
        return found

    @property
    def weighed(self) -> list[str]:
        """Activations that meet weights."""
        return list(dict.fromkeys(node.input[0] for node in self.products))

    def write(self, scales: Mapping[str, Quantization], means: Mapping[str, Array]) -> None:
        """Put the roundings in; `means` are those of channels, which biases make up for."""
        before = {each: self._around(each, scales[self.sources.get(each, each)]) for each in scales}
        for moved, source in self.sources.items():
            if source in scales and moved not in self.outputs:
                before[moved] = self._around(moved, scales[source])
        fresh: list[Any] = []
        self.stored: set[str] = set()
        produced = {out for node in self.graph.node for out in node.output}
        fresh += [each for name, pair in before.items() if name not in produced for each in pair]
        for node in list(self.graph.node):
            if node in self.products:
                fresh += self._weigh(node, scales[self.sources.get(node.input[0], node.input[0])], means)
            for place, name in enumerate(node.input):
                if name in before:
                    node.input[place] = f"{name}:rounded"
            fresh.append(node)
            for result in node.output:
                fresh += before.get(result, [])
        del self.graph.node[:]
        self.graph.node.extend(fresh)
        used = {name for node in self.graph.node for name in node.input} | self.outputs
        kept = [tensor for tensor in self.graph.initializer if tensor.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)

    def shown(self, names: Sequence[str]) -> bytes:
        """The model as it is before, with these tensors as outputs."""
        from onnx import ModelProto, helper

        model = ModelProto.FromString(self.model.SerializeToString())
        given = {entry.name for entry in model.graph.input}
        for name in names:
            if name in given:
                model.graph.node.append(helper.make_node("Identity", [name], [f"{name}:observed"]))
        wanted = [f"{name}:observed" if name in given else name for name in names]
        return choose_outputs(model.SerializeToString(), wanted)

    # What is where

    def _has_weights(self, node: Any) -> bool:
        biases = [name for name in node.input[2:] if name]
        return len(node.input) > 1 and self._is_float(node.input[1]) and all(map(self._is_float, biases))

    def _is_float(self, name: str) -> bool:
        return name in self.held and self.held[name].data_type == 1

    def attribute(self, node: Any, name: str, default: Any) -> Any:
        """What the node says, or the standard."""
        from onnx import helper

        found = next((a for a in node.attribute if a.name == name), None)
        return default if found is None else helper.get_attribute_value(found)

    def _activations(self) -> list[str]:
        """Whatever is to be rounded: what integer operators read and make, but for what is clipped behind them."""
        met: dict[str, None] = {}
        for node in self.graph.node:
            if node not in self.products and node.op_type not in BESIDE:
                continue
            met.update(
                dict.fromkeys(name for name in node.input[: 1 if node in self.products else None] if name)
            )
            met.update(dict.fromkeys(node.output))
        clipped = {node.output[0] for node in self.graph.node if self._is_clipped(node)}
        kept = set(self.sources)
        real = self._floats()
        found = [n for n in met if n in real and n not in clipped and n not in kept and n not in self.outputs]
        return list(dict.fromkeys([*found, *(self.sources.get(n, n) for n in self.weighed)]))

    def _is_clipped(self, node: Any) -> bool:
        """Whether a clip is all that reads what the node makes."""
        readers = self.readers.get(node.output[0], []) if node.output else []
        joins = node in self.products or node.op_type == "Add"
        return (
            joins and len(readers) == 1 and readers[0].op_type in CLIPS and node.output[0] not in self.outputs
        )

    def _kept_from(self) -> dict[str, str]:
        """By what keeps a scale: whose."""
        found: dict[str, str] = {}
        for node in self.graph.node:
            if node.op_type in KEEPING and node.input[0] not in self.held:
                found[node.output[0]] = found.get(node.input[0], node.input[0])
        return found

    def _floats(self) -> set[str]:
        """Tensors of floats that are no constants."""
        import onnx

        graph = onnx.shape_inference.infer_shapes(self.model).graph
        infos = [*graph.input, *graph.value_info, *graph.output]
        return {info.name for info in infos if info.type.tensor_type.elem_type == 1} - set(self.held)

    # Changes

    def _fold_normalisations(self) -> None:
        """Normalisations by running statistics become part of the convolutions before them."""
        for node in list(self.graph.node):
            reader = self._only_reader(node)
            if node.op_type != "Conv" or reader is None or reader.op_type != "BatchNormalization":
                continue
            names = reader.input[1:]
            if not self._has_weights(node) or not all(map(self._is_float, names)) or len(reader.output) > 1:
                continue
            gamma, beta, mean, variance = (self.values(name).astype(np.float64) for name in names)
            factor = gamma / np.sqrt(variance + self.attribute(reader, "epsilon", 1e-5))
            w, bias = self.values(node.input[1]), self.values(node.input[2]) if len(node.input) > 2 else 0.0
            weights = w * factor.reshape(-1, *[1] * (w.ndim - 1))
            inputs = [node.input[0], f"{node.input[1]}:folded", f"{node.input[1]}:bias"]
            self._hold(inputs[1], weights.astype(np.float32))
            self._hold(inputs[2], ((bias - mean) * factor + beta).astype(np.float32))
            del node.input[:]
            node.input.extend(inputs)
            node.output[0] = reader.output[0]
            self.graph.node.remove(reader)

    def _only_reader(self, node: Any) -> Any:
        readers = self.readers.get(node.output[0], []) if node.output else []
        return readers[0] if len(readers) == 1 and node.output[0] not in self.outputs else None

    def _hold(self, name: str, value: Array) -> str:
        """A new constant."""
        from onnx import numpy_helper

        if name not in self.held:
            self.held[name] = numpy_helper.from_array(value, name)
            self.graph.initializer.append(self.held[name])
        return name

    def _around(self, name: str, scale: Quantization) -> list[Any]:
        """Rounding of an activation."""
        from onnx import helper

        steps = self._hold(f"{name}:scale", np.float32(scale.scale[0]))
        zero = self._hold(f"{name}:zero", np.uint8(scale.zero_point[0]))
        return [
            helper.make_node("QuantizeLinear", [name, steps, zero], [f"{name}:stored"], f"{name}:quantize"),
            helper.make_node(
                "DequantizeLinear", [f"{name}:stored", steps, zero], [f"{name}:rounded"], f"{name}:widen"
            ),
        ]

    def _weigh(self, node: Any, x: Quantization, means: Mapping[str, Array]) -> list[Any]:
        """Weights in 8 bits, and a bias that counts their products."""
        name, w = node.input[1], self.values(node.input[1])
        turned = node.op_type == "Gemm" and not self.attribute(node, "transB", 0)
        axis = 1 if turned else w.ndim - 1 if node.op_type == "MatMul" else 0
        factors = {self.attribute(node, "alpha", 1.0), self.attribute(node, "beta", 1.0)}
        bias = self.values(node.input[2]) if len(node.input) > 2 and node.input[2] else None
        plain = node.op_type == "Conv" or (node.op_type == "Gemm" and factors == {1.0})
        is_row = bias is None or bias.size == w.shape[axis]
        scale = symmetric(w, axis, for_bias(bias, x) if plain and is_row else 0.0)
        stored = as_integers(w, DType.INT8, scale).view(np.int8).reshape(w.shape)
        made = self._widened(name, stored, scale)
        node.input[1] = f"{name}:rounded"
        if plain and is_row:
            shape = [1] * w.ndim
            shape[axis] = -1
            error = w - stored * np.array(scale.scale).reshape(shape)
            total = np.zeros(w.shape[axis]) if bias is None else bias.reshape(-1).astype(np.float64)
            if node.input[0] in means:
                total = total + shift(error, means[node.input[0]], axis, node.op_type == "Conv")
            sums = product(x, scale)
            counted = as_integers(total, DType.INT32, sums).view(np.int32)
            label = f"{node.output[0]}:bias"
            made += self._widened(label, counted, sums)
            rest = list(node.input[:2])
            del node.input[:]
            node.input.extend([*rest, f"{label}:rounded"])
        return made

    def _widened(self, name: str, stored: Array, scale: Quantization) -> list[Any]:
        """A constant of integers, and what makes floats of it; once for all who read it."""
        from onnx import helper

        if name in self.stored:
            return []
        self.stored.add(name)
        steps = self._hold(f"{name}:scale", np.array(scale.scale, np.float32))
        zeros = self._hold(f"{name}:zeros", np.zeros(len(scale.scale), stored.dtype))
        held = self._hold(f"{name}:stored", stored)
        return [
            helper.make_node("DequantizeLinear", [held, steps, zeros], [f"{name}:rounded"], axis=scale.axis)
        ]


def shift(error: Array, mean: Array, axis: int, is_conv: bool) -> Array:
    """What rounded weights take from each output on average; `mean` is that of the input's channels."""
    if is_conv:
        cells = error.reshape(*error.shape[:2], -1).sum(axis=-1)
        groups = mean.size // cells.shape[1]
        means = np.repeat(mean.reshape(groups, -1), cells.shape[0] // groups, axis=0)
        total: Array = (cells * means).sum(axis=1)
        return total
    moved: Array = np.moveaxis(error, axis, 0).reshape(error.shape[axis], -1) @ mean
    return moved
