"""What reading and writing refuse, and in which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import format_models as models
import numpy as np
import pytest

from circle_train import format
from circle_train.errors import ConfigError, ModelError, UnsupportedOpError
from circle_train.format.atomic import atomic_write
from circle_train.format.flatbuffer.encode import encode
from circle_train.ir import DType, Graph, Module, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY, Op

# What is refused


def test_circle_only_things_are_refused_in_tflite() -> None:
    graph = Graph("g", [Tensor("x", TensorType(DType.FLOAT32, (1, 4)))])
    scale = constant(np.ones(4, np.float32), "scale")
    graph.outputs.append(graph.emit(REGISTRY["RMS_NORM"](), graph.inputs[0], scale))
    with pytest.raises(UnsupportedOpError, match="operators RMS_NORM exist in Circle only"):
        format.write(Module([graph]), "TFL3")
    graph = Graph("g", [Tensor("x", TensorType(DType.UINT4, (4,)))])
    graph.outputs.append(graph.inputs[0])
    with pytest.raises(ModelError, match="tensor 'x' of type UINT4"):
        format.write(Module([graph]), "TFL3")


def test_internal_operators_are_not_saved() -> None:
    class Strange(Op):
        name = "Strange"

    tensor = Tensor("x", TensorType(DType.FLOAT32, (1,)))
    graph = Graph("g", [tensor], [tensor], [Node(Strange(), [tensor], [Tensor("y", tensor.type)])])
    with pytest.raises(ModelError, match="Strange 'y' is no operator of Circle"):
        format.write(Module([graph]))


def test_constants_that_do_not_fit_are_not_saved() -> None:
    module = models.small()
    weights = module.main.nodes[2].inputs[1]
    assert weights is not None and weights.buffer is not None
    weights.buffer.held = weights.buffer.bytes[:-4]
    with pytest.raises(ModelError, match=r"constant 'weights' \(float32 5×48\) has 956 bytes of data"):
        format.write(module)


def test_numbers_that_do_not_fit_are_not_saved() -> None:
    module = models.small()
    module.version = 1 << 40
    with pytest.raises(ModelError, match="a number of the Model does not fit its field"):
        format.write(module)


def damaged(change: Any) -> bytes:
    root = models.rich()
    change(root, root["subgraphs"][0]["tensors"], root["subgraphs"][0]["operators"])
    return encode("Model", root, b"CIR0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda r, t, o: t[1].update(buffer=77),
            r"subgraphs\[0\]\.tensors\[1\]: buffer 77 does not exist, there are 8",
        ),
        (
            lambda r, t, o: t[1].update(shape=models.ints(2, 3)),
            r"tensors\[1\]: constant 'w' \(float32 2×3\) has 16 bytes",
        ),
        (
            lambda r, t, o: t[1].update(shape=models.ints(-1, 2)),
            r"tensors\[1\]: constant 'w' .* has 16 bytes",
        ),
        (lambda r, t, o: t[0].update(shape=models.ints(-2, 2)), r"tensors\[0\]: shape is \(-2, 2\)"),
        (
            lambda r, t, o: t[0].update(shape=models.ints(*[2**31 - 1] * 3)),
            r"tensors\[0\]: shape is \(2147483647",
        ),
        (lambda r, t, o: t[0].update(shape=models.ints(*[1] * 33)), r"tensors\[0\]: shape has 33 dimensions"),
        (lambda r, t, o: t[0].update(type=77), r"tensors\[0\]: element type 77"),
        (
            lambda r, t, o: t[3]["quantization"].update(zero_point=np.zeros(3, np.int64)),
            r"2 scales but 3 zero points",
        ),
        (
            lambda r, t, o: t[3]["quantization"].update(quantized_dimension=5),
            r"tensors\[3\]: quantization has 2 scales",
        ),
        (lambda r, t, o: t[7].update(shape=models.ints(9)), r"tensors\[7\]: constant 'four bits'"),
        (lambda r, t, o: o[0].update(inputs=models.ints(0, 99)), r"operators\[0\]: tensor 99 does not exist"),
        (lambda r, t, o: o[0].update(outputs=models.ints(-1)), r"operators\[0\]: tensor -1 does not exist"),
        (lambda r, t, o: o[0].update(outputs=models.ints()), r"operators\[0\]: ADD has no outputs"),
        (lambda r, t, o: o[0].update(inputs=models.ints(0)), r"operators\[0\]: ADD has 1 inputs, expected 2"),
        (lambda r, t, o: o[0].update(inputs=models.ints(0, -1)), r"operators\[0\]: ADD lacks its input 'x2'"),
        (lambda r, t, o: o[0].update(opcode_index=9), r"operators\[0\]: operator code 9 does not exist"),
        (
            lambda r, t, o: o[0].update(builtin_options_type=8, builtin_options={}),
            r"operators\[0\]: ADD has FullyConnectedOptions",
        ),
        (
            lambda r, t, o: o[0].update(builtin_options={"fused_activation_function": 99}),
            r"fused_activation_function is 99",
        ),
        (
            lambda r, t, o: o[0].update(outputs=models.ints(9)),
            r"operators\[1\]: FULLY_CONNECTED writes 'middle', as operator 0",
        ),
        (
            lambda r, t, o: o[1].update(inputs=models.ints(8, 1, -1)),
            r"operator 0\): waits for its own result",
        ),
        (lambda r, t, o: o[1].update(outputs=models.ints(1)), r"tensors\[1\]: 'w' holds a constant, yet"),
        (
            lambda r, t, o: r["subgraphs"][1].update(inputs=models.ints(1)),
            r"subgraphs\[1\]\.inputs: tensor 1",
        ),
        (lambda r, t, o: r["metadata"][0].update(buffer=55), r"metadata\[0\]: buffer 55"),
        (lambda r, t, o: r.update(metadata_buffer=models.ints(-5)), r"metadata_buffer: buffer -5"),
        (lambda r, t, o: r["signature_defs"][0].update(subgraph_index=3), r"signature_defs\[0\]: subgraph 3"),
        (
            lambda r, t, o: r["signature_defs"][0]["inputs"][0].update(tensor_index=70),
            r"signature_defs\[0\]: tensor 70",
        ),
        (lambda r, t, o: r["buffers"][1].update(offset=10**9, size=16), r"buffers: bytes 1000000000 to"),
        (lambda r, t, o: r.update(subgraphs=[]), r"there is no subgraph"),
    ],
)
def test_damage_is_named_with_its_place(change: Any, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        format.read(damaged(change))


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"", r"bytes 4 to 8 are ''"),
        (b"ab", r"bytes 4 to 8 are ''"),
        (b"\x08\0\0\0ONNX", r"expected 'CIR0' \(.circle\) or 'TFL3' \(.tflite\)"),
        (b"\x08\0\0\0CIR0", r"Model: offset at byte 0 points to byte 8 of 8"),
        (b"\xff\xff\xff\xffCIR0" + bytes(8), r"Model: offset at byte 0"),
        (b"\x08\0\0\0CIR0\x01\0\0\0", r"Model: vtable of a Model"),
    ],
)
def test_no_flatbuffer_at_all(raw: bytes, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        format.read(raw)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"none\.circle: cannot be read"):
        format.read(tmp_path / "none.circle")
    (tmp_path / "empty.circle").touch()
    with pytest.raises(ModelError, match="the file is empty"):
        format.read(tmp_path / "empty.circle")


# Files


def test_save_decides_by_suffix(tmp_path: Path) -> None:
    for suffix, identifier in ((".circle", "CIR0"), (".TFLITE", "TFL3")):
        format.save(models.small(), tmp_path / f"m{suffix}")
        assert format.read(tmp_path / f"m{suffix}").identifier == identifier
    with pytest.raises(ConfigError, match=r"suffix is '\.onnx', expected one of \.circle, \.tflite"):
        format.save(models.small(), tmp_path / "m.onnx")


def test_saving_over_the_loaded_file(tmp_path: Path) -> None:
    path = tmp_path / "m.circle"
    format.save(models.small(), path)
    os.chmod(path, 0o640)
    module = format.read(path)
    module.buffers[1].held = np.zeros_like(module.buffers[1].bytes)
    format.save(module, path)
    assert not format.read(path).buffers[1].bytes.any() and os.stat(path).st_mode & 0o777 == 0o640


def test_a_failed_write_leaves_nothing_behind(tmp_path: Path) -> None:
    path = tmp_path / "m.circle"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), atomic_write(path) as file:
        file.write(b"half")
        raise ZeroDivisionError
    with pytest.raises(ConfigError, match="cannot be written"):
        format.save(models.small(), tmp_path / "none" / "m.circle")
    with pytest.raises(ConfigError, match="No space left"), atomic_write(path):
        raise OSError(28, "No space left on device")
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["m.circle"]
