"""Our reader of ONNX files against the package onnx: the same messages, the same elements, the same refusals."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train import convert  # noqa: E402
from circle_train.convert.onnx_file import protobuf  # noqa: E402
from circle_train.convert.onnx_file.digest import LARGE, Digest  # noqa: E402
from circle_train.convert.onnx_file.elements import NUMPY, to_array  # noqa: E402
from circle_train.convert.onnx_file.fields import varints  # noqa: E402
from circle_train.convert.onnx_file.importer import NEWEST_OPSET  # noqa: E402
from circle_train.convert.onnx_file.messages import ATTRIBUTE, TENSOR, Attribute, Element, as_onnx, read_model  # noqa: E402
from circle_train.convert.onnx_file.protobuf import Damage, Message, parse  # noqa: E402

LISTS = {"float_data", "int32_data", "int64_data", "double_data", "uint64_data"}


def same(ours: Message, theirs: Any) -> None:
    """Field by field, all the way down."""
    for name in ours._kind.defaults:
        one, two = getattr(ours, name), getattr(theirs, name)
        if name in LISTS:
            found = np.concatenate([np.empty(0), *one])
            np.testing.assert_array_equal(found, np.array(list(two)))
        elif name == "raw_data":
            assert one.tobytes() == two
        elif isinstance(one, Message):
            assert ours.HasField(name) == theirs.HasField(name), name
            if ours.HasField(name):
                same(one, two)
        elif isinstance(one, list):
            assert len(one) == len(two), name
            for mine, its in zip(one, two, strict=True):
                same(mine, its) if isinstance(mine, Message) else _equal(mine, its)
        else:
            _equal(one, two)


def _equal(one: Any, two: Any) -> None:
    assert one == two or np.isnan([one, two]).all()


def test_the_standard_s_cases_read_alike() -> None:
    """All of ONNX's node cases: functions, subgraphs, sequences, every kind of attribute."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    assert len(cases) > 1000
    for case in cases:
        same(read_model(case.model.SerializeToString()), case.model)


def test_what_is_read_can_be_handed_on(tmp_path: Path) -> None:
    raw = dense(tmp_path).read_bytes()
    model = read_model(raw)
    nodes = [as_onnx("NodeProto", node) for node in model.graph.node]
    assert nodes == list(onnx.ModelProto.FromString(raw).graph.node) and len(nodes) == 3


@pytest.mark.parametrize("code", sorted(NUMPY), ids=lambda code: Element(code).name)
@pytest.mark.parametrize("is_raw", [True, False], ids=["raw", "typed"])
def test_elements_of_every_type(code: int, is_raw: bool) -> None:
    dtype = NUMPY[code]
    assert dtype == helper.tensor_dtype_to_np_dtype(code)
    bits = np.random.default_rng(code).integers(0, 256, 6 * dtype.itemsize, np.uint8)
    value = (bits % 2).view(dtype) if dtype.kind == "b" else bits.view(dtype)
    value = np.nan_to_num(value, nan=1).reshape(2, 3)
    proto = numpy_helper.from_array(value, "t")
    if not is_raw:
        proto = helper.make_tensor("t", code, (2, 3), value.reshape(-1).tolist())
        assert not proto.HasField("raw_data")
    found = to_array(parse(TENSOR, proto.SerializeToString()))
    np.testing.assert_array_equal(found, value)
    assert found.dtype == dtype and found.shape == (2, 3)


def test_numbers_of_the_enumerations_are_the_standard_s() -> None:
    assert {kind.name: int(kind) for kind in Attribute}.items() <= dict(
        onnx.AttributeProto.AttributeType.items()
    ).items()
    known = dict(TensorProto.DataType.items())
    assert all(known[kind.name] == kind for kind in Element if kind.name in known)
    assert onnx.defs.onnx_opset_version() >= 17 and NEWEST_OPSET >= 21


@pytest.mark.parametrize("count", [0, 3, 500])
def test_packed_integers_of_every_size(count: int) -> None:
    """Few are decoded one by one, many at once."""
    random = np.random.default_rng(count)
    values = (random.integers(-(2**62), 2**62, count) >> random.integers(0, 62, count)).tolist()
    values += [2**63 - 1, -(2**63), 0, 127, 128, -1]
    raw = onnx.TensorProto(int64_data=values).SerializeToString()
    found = np.concatenate(parse(TENSOR, raw).int64_data)
    assert found.tolist() == values


def test_unpacked_numbers_are_read_too() -> None:
    """An old writer gives each number of a list its own key."""
    ints, floats = b"\x40\x05\x40\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", b"\x3d\x00\x00\xc0\x3f"
    found = parse(ATTRIBUTE, ints + floats)
    assert found.ints == [5, -1] and found.floats == [1.5]
    tensor = parse(TENSOR, b"\x25\x00\x00\xc0\x3f\x25\x00\x00\x00\x40" + b"\x38\x05")
    assert np.concatenate(tensor.float_data).tolist() == [1.5, 2.0]
    assert np.concatenate(tensor.int64_data).tolist() == [5]


@pytest.mark.parametrize(
    ("raw", "message"),
    [
        (b"\x3a\x05\x0a", "ends at byte 7, the message at 3"),
        (b"\x3a\x04\x12\x02\xff\xff", "no UTF-8"),
        (b"\x0b", "3 is no wire type"),
        (b"\x08" + b"\xff" * 12, "more than 64 bits"),
        (b"\xff" * 12, "more than 64 bits"),
        (b"\x3a", "bytes end within"),
    ],
)
def test_damage_is_named(raw: bytes, message: str) -> None:
    with pytest.raises(Damage, match=message):
        read_model(raw)
    with pytest.raises(ct.ConversionError, match="no ONNX model"):
        convert.load_onnx(raw)


@pytest.mark.parametrize("raw", [b"\x80" * 70, b"\x01" * 65 + b"\x80", b"\x01" * 60 + b"\xff" * 10 + b"\x01"])
def test_damaged_lists_of_numbers(raw: bytes) -> None:
    with pytest.raises(Damage, match="no list of numbers"):
        varints(raw, 0, len(raw))


def test_a_chain_of_graphs_is_read_to_a_depth() -> None:
    def wrapped(field: int, data: bytes) -> bytes:
        size = len(data)
        return bytes([field << 3 | 2, size & 127 | 128, size >> 7 & 127 | 128, size >> 14]) + data

    def nested(depth: int) -> bytes:
        graph = b""
        for _ in range(depth):
            graph = wrapped(1, wrapped(5, wrapped(6, graph)))
        return wrapped(7, graph)

    assert read_model(nested(10)).graph.node[0].attribute[0].g.node[0].attribute[0].HasField("g")
    with pytest.raises(Damage, match=f"deeper than {protobuf.DEEPEST}"):
        read_model(nested(60))


def dense(folder: Path, external: bool = False) -> Path:
    """Two dense layers; names of different lengths, so that weights lie at any byte of the file."""
    random = np.random.default_rng(0)
    weights = {"a": (6, 300), "bc": (300,), "def": (300, 3), "ghij": (3,)}
    initializers = [
        numpy_helper.from_array(random.standard_normal(shape, np.float32), name)
        for name, shape in weights.items()
    ]
    nodes = [
        helper.make_node("Gemm", ["x", "a", "bc"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "def", "ghij"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", k]) for n, k in (("x", 6), ("y", 3))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "dense.onnx"
    onnx.save(model, path, save_as_external_data=external, location="weights", size_threshold=0)
    return path


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize("trainable", ["all", ("last", 1)], ids=str)
def test_kernels_see_aligned_weights_of_mapped_files(tmp_path: Path, trainable: Any, external: bool) -> None:
    path = dense(tmp_path, external)
    config = ct.TrainConfig(loss="mse", batch_size=4, trainable=trainable)
    mapped, held = ct.TrainSession(str(path), config), None
    if not external:
        held = ct.TrainSession(path.read_bytes(), config)
    x, y = np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)
    loss = mapped.train_step(x, y).loss
    bound = next(iter(mapped.programs._executors.values())).arrays.values()
    assert all(array.flags.aligned for array in (*bound, *mapped.state.arrays.values()))
    if held is not None:
        assert held.train_step(x, y).loss == loss
        np.testing.assert_array_equal(held.parameters.flat(False), mapped.parameters.flat(False))


WITHOUT = """
import sys
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split('.')[0] in ('onnx', 'google', 'ml_dtypes'):
            raise ModuleNotFoundError(f'{name} is not here', name=name)
sys.meta_path.insert(0, Blocker())
import numpy as np, circle_train as ct
session = ct.TrainSession(sys.argv[1], ct.TrainConfig(loss='mse', batch_size=4))
print(float(session.train_step(np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)).loss))
session.export('written.onnx')
try:
    session.export('never.onnx', outputs=['y'])
except ct.ConversionError as error:
    print(error)
"""


def test_training_takes_no_package_onnx(tmp_path: Path) -> None:
    """Nor does writing .onnx; choosing other outputs there does, and says so."""
    path = dense(tmp_path)
    command = [sys.executable, "-c", WITHOUT, str(path)]
    loss, refusal = subprocess.run(
        command, check=True, capture_output=True, text=True, cwd=tmp_path
    ).stdout.splitlines()
    config = ct.TrainConfig(loss="mse", batch_size=4)
    here = ct.TrainSession(str(path), config)
    assert float(loss) == here.train_step(np.ones((4, 6), np.float32), np.ones((4, 3), np.float32)).loss
    written = onnx.load(tmp_path / "written.onnx")
    onnx.checker.check_model(written)
    for tensor in written.graph.initializer:
        np.testing.assert_array_equal(numpy_helper.to_array(tensor), here.parameters[tensor.name])
    assert "needs the package onnx" in refusal and "pip install 'circle-train[onnx]'" in refusal


def test_the_digest_is_the_file_s(tmp_path: Path) -> None:
    """A small file's at once, a large one's beside the conversion."""
    for size in (1000, 3 * LARGE):
        data = np.random.default_rng(0).bytes(size)
        assert str(Digest(data)) == hashlib.sha256(data).hexdigest()


@pytest.mark.parametrize("pieces", [1, 2, 3])
def test_numbers_that_come_in_pieces_are_all_there(pieces: int) -> None:
    """A packed field may stand several times; each continues what stood before."""
    numbers = np.arange(6, dtype="<f4")
    packed = [piece.tobytes() for piece in np.split(numbers, pieces)]
    raw = b"\x08\x06\x10\x01" + b"".join(bytes([0x22, len(piece)]) + piece for piece in packed)
    np.testing.assert_array_equal(to_array(parse(TENSOR, raw)), numbers)
