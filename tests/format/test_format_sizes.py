"""Data behind the flatbuffer, large files, and the lowest versions that do."""

from __future__ import annotations

from typing import Any

import format_models as models
import numpy as np
import pytest

import circle_train as ct
from circle_train import format
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.model import writer
from circle_train.ir import DType, Node, Tensor, TensorType
from circle_train.ops import REGISTRY


def test_buffers_behind_the_flatbuffer() -> None:
    module = models.small()
    reference = format.write(module, "TFL3")
    weights = module.main.nodes[2].inputs[1]
    assert weights is not None and weights.buffer is not None
    weights.buffer.carried["offset"] = 2
    raw = format.write(module, "TFL3")
    again = format.read(raw)
    assert sum(buffer.carried.get("offset", 0) > 1 for buffer in again.buffers) == 1
    assert np.array_equal(again.main.nodes[2].inputs[1].data, weights.data)  # type: ignore[union-attr]
    again.main.nodes[2].inputs[1].buffer.held = (weights.data * 2).reshape(-1).view(np.uint8)  # type: ignore[union-attr]
    patched = format.read(format.write(again))
    assert np.array_equal(patched.main.nodes[2].inputs[1].data, weights.data * 2)  # type: ignore[union-attr]
    assert len(reference) < len(raw) < len(reference) + 64


def test_large_models_put_their_data_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "LARGEST", (64 << 20) + 100)
    module = models.small()
    again = format.read(format.write(module))
    constants = [buffer for buffer in again.buffers if buffer.bytes.size]
    assert all(buffer.carried["offset"] % 16 == 0 and buffer.carried["offset"] > 1 for buffer in constants)
    for loaded, made in zip(again.main.all_tensors(), module.main.all_tensors(), strict=True):
        assert not made.is_constant or np.array_equal(loaded.data, made.data)


def test_dimensions_that_no_file_can_hold_are_refused_by_name() -> None:
    module = models.small()
    module.main.outputs[0].type = TensorType(DType.INT8, (3, 1 << 31))
    module.main.outputs[0].shape_signature = None
    name = module.main.outputs[0].name
    with pytest.raises(ct.ModelError, match=f"'{name}' .* more than 2147483647 entries along one dimension"):
        format.write(module)


def test_large_custom_options() -> None:
    root = models.rich()
    custom = root["subgraphs"][0]["operators"][2]
    del custom["custom_options"]
    custom |= {"large_custom_options_offset": 2, "large_custom_options_size": 5}
    size = len(encode("Model", root, b"CIR0"))
    custom["large_custom_options_offset"] = size
    raw = encode("Model", root, b"CIR0") + b"large"
    module = format.read(raw)
    assert format.write(module) == raw
    module.description = "changed"
    operator = decode(format.write(module), "Model", b"CIR0")["subgraphs"][0]["operators"][2]
    assert operator["custom_options"].tobytes() == b"large" and "large_custom_options_offset" not in operator


def test_size_means_nothing_without_an_offset() -> None:
    root = models.rich()
    root["buffers"][1]["size"] = 999_999
    raw = encode("Model", root, b"CIR0")
    module = format.read(raw)
    assert module.main.tensors[1].data.tolist() == [[1, 2], [3, 4]] and format.write(module) == raw


def node_of(name: str, *inputs: Tensor | None, **options: Any) -> Node:
    return Node(REGISTRY[name](**options), list(inputs), [Tensor("y", TensorType(DType.FLOAT32, ()))])


def floats(*shape: int, dtype: DType = DType.FLOAT32) -> Tensor:
    return Tensor("t", TensorType(dtype, shape))


@pytest.mark.parametrize(("node", "version"), [
    (node_of("ADD", floats(2), floats(2)), 1),
    (node_of("ADD", floats(2, dtype=DType.INT64), floats(2)), 4),
    (node_of("BROADCAST_TO", floats(2), floats(1, dtype=DType.INT32)), 2),
    (node_of("CONV_2D", floats(1, 4, 4, 4), floats(4, 1, 1, 2), floats(4)), 6),
    (node_of("FULLY_CONNECTED", floats(1, 2), floats(2, 2), None), 1),
    (node_of("FULLY_CONNECTED", floats(1, 2), floats(2, 2)), 6),
    (node_of("DIV", floats(1, 1, 1, 1, 2), floats(2)), 2),
    (node_of("TRANSPOSE", floats(1, 1, 1, 1, 1, 2), floats(6, dtype=DType.INT32)), 6),
    (node_of("DEQUANTIZE", floats(2, dtype=DType.FLOAT16)), 3),
    (node_of("SPLIT", floats(dtype=DType.INT32), floats(2), num_splits=2), 1),
    (node_of("RESIZE_BILINEAR", floats(1, 2, 2, 1), floats(2, dtype=DType.INT32), half_pixel_centers=True),
     3),
])  # fmt: skip
def test_versions_are_the_lowest_that_do(node: Node, version: int) -> None:
    assert node.op.versions.needed(node) == version
