"""Files to modules and back: nothing lost, nothing invented."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import fields
from pathlib import Path
from types import ModuleType
from typing import Any

import format_models as models
import independent
import numpy as np
import pytest

from circle_train import format
from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.format.flatbuffer.decode import decode
from circle_train.format.flatbuffer.encode import encode
from circle_train.format.flatbuffer.schema import TABLES
from circle_train.format.model import writer
from circle_train.format.model.indices import Indices
from circle_train.format.model.patch import same
from circle_train.format.model.reader import SCHEMAS
from circle_train.ir import Buffer, DType, Graph, Module, Tensor, TensorType
from circle_train.ops import REGISTRY, Op
from circle_train.ops.attributes import Activation
from circle_train.ops.opaque import Opaque

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared"
FILES = [*SHARED.glob("data/models/*.tflite"), *SHARED.glob("golden/**/*.circle")]


def anew(module: Module, identifier: str = "") -> bytes:
    """The file written from tables, though it could be patched."""
    indices = Indices(module)
    root = writer.write_module(module, indices)
    return b"".join(writer.write_anew(root, indices.buffers, identifier or module.identifier))


def assert_same_tables(one: bytes, other: bytes) -> None:
    roots = [decode(raw, "Model", raw[4:8], SCHEMAS[raw[4:8].decode()]) for raw in (one, other)]
    assert same("Model", *roots)


# The schema


def make_schema() -> ModuleType:
    pytest.importorskip("circle_schema")
    pytest.importorskip("tflite")
    spec = importlib.util.spec_from_file_location("make_schema", ROOT / "tools/dev/making/make_schema.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_schema"] = module
    spec.loader.exec_module(module)
    return module


def test_schema_says_what_the_packages_say() -> None:
    script = make_schema()
    for path, text in script.generated(script.gather()).items():
        assert (ROOT / path).read_text() == text, f"{path} is not what tools/dev/making/make_schema.py writes"


@pytest.mark.parametrize("cls", REGISTRY.values(), ids=REGISTRY.keys())
def test_options_are_fields_of_the_schema(cls: type[Op]) -> None:
    known = {fact[0] for fact in TABLES[cls.options] if fact} if cls.options else {"custom_options"}
    assert {field.name for field in fields(cls) if field.compare} <= known


# What is read


def test_nodes_reference_tensors_and_share_buffers() -> None:
    graph = format.read(models.rich_file()).main
    first, second = graph.tensors[1], graph.tensors[2]
    assert first.buffer is second.buffer
    assert first.data.tolist() == [[1, 2], [3, 4]] and not first.data.flags.writeable
    dense, add = graph.nodes[0], graph.nodes[1]
    assert [node.index for node in graph.nodes] == [1, 0, 2, 3, 4], "operator 0 waits for operator 1"
    assert dense.inputs[2] is None and dense.op.keep_num_dims and add.inputs[0] is dense.outputs[0]
    assert add.op.fused_activation_function is Activation.RELU and add.op.pot_scale_int16 is False


def test_tensors_are_interpreted() -> None:
    by_name = {tensor.name: tensor for tensor in format.read(models.rich_file()).main.tensors}
    assert by_name["x"].shape == (1, 2) and by_name["x"].shape_signature == (-1, 2)
    assert by_name["q"].dtype is DType.INT8 and by_name["q"].quantization is not None
    assert by_name["q"].quantization.scale == (0.5, 0.25) and by_name["q"].quantization.axis == 1
    assert by_name["state"].is_variable and not by_name["y"].is_constant
    assert by_name["text"].is_constant and by_name["sparse"].is_constant


def test_unknown_operators_are_opaque() -> None:
    nodes = {node.index: node for node in format.read(models.rich_file()).main.nodes}
    custom, branch = nodes[2].op, nodes[3].op
    assert isinstance(custom, Opaque) and custom.name == "CUSTOM:mine" and custom.custom_code == "mine"
    assert isinstance(branch, Opaque) and branch.name == "HASHTABLE"
    assert custom.infer_types([]) == (TensorType(DType.FLOAT32, (1, 2)),)
    with pytest.raises(UnsupportedOpError, match="CUSTOM:mine"):
        custom.compute([])


def test_missing_fields_have_the_schemas_defaults() -> None:
    root = models.rich()
    add, dense = root["subgraphs"][0]["operators"][:2]
    add["builtin_options"] = {}
    del dense["builtin_options"], dense["builtin_options_type"]
    raw = encode("Model", root, b"CIR0")
    module = format.read(raw)
    ops = {node.index: node.op for node in module.main.nodes}
    assert ops[0].pot_scale_int16 is True and ops[0].fused_activation_function is Activation.NONE
    assert ops[1].keep_num_dims is False
    assert_same_tables(anew(module), raw)


@pytest.mark.parametrize(("old", "new", "name"), [
    (9, 0, "FULLY_CONNECTED"), (0, 9, "FULLY_CONNECTED"), (127, 150, "GELU"),
    (127, 202, "STABLEHLO_TRANSPOSE"),
    (-2, 0, "INSTANCE_NORM"), (-2, -2, "INSTANCE_NORM"), (127, 999, "BUILTIN_999"),
])  # fmt: skip
def test_both_fields_of_an_operators_number(old: int, new: int, name: str) -> None:
    root = models.rich()
    root["operator_codes"][3] = {"deprecated_builtin_code": old, "builtin_code": new, "version": 1}
    operator = root["subgraphs"][0]["operators"][3]
    operator["inputs"] = models.ints(0, 0, 0)[: 1 if name == "GELU" else 3]
    for key in ("builtin_options", "builtin_options_type"):
        del operator[key]
    module = format.read(encode("Model", root, b"CIR0"))
    assert module.main.nodes[3].op.name == name


def test_sources(tmp_path: Path) -> None:
    raw = models.rich_file()
    (tmp_path / "m.circle").write_bytes(raw)
    with open(tmp_path / "m.circle", "rb") as file:
        loaded = [format.read(raw), format.read(file), format.read(tmp_path / "m.circle")]
    assert {len(module.main.nodes) for module in loaded} == {5}
    assert not loaded[2].buffers[1].bytes.flags.owndata, "a view of the map"


# What is written


@pytest.mark.parametrize("identifier", [b"CIR0", b"TFL3"])
def test_unchanged_files_are_identical(identifier: bytes) -> None:
    raw = models.rich_file(identifier)
    assert format.write(format.read(raw)) == raw


@pytest.mark.parametrize("identifier", [b"CIR0", b"TFL3"])
def test_everything_survives_writing_anew(identifier: bytes) -> None:
    raw = models.rich_file(identifier)
    again = anew(format.read(raw))
    assert_same_tables(again, raw)
    pytest.importorskip("tflite")
    pytest.importorskip("circle_schema")
    assert independent.differences(independent.dump(raw), independent.dump(again)) == []
    assert independent.dump(again)["Subgraphs"][0]["Operators"][0]["BuiltinOptions"][0] == "AddOptions"


def test_circle_and_tflite_become_each_other() -> None:
    pytest.importorskip("tflite")
    raw = models.rich_file(b"TFL3")
    circle = format.write(format.read(raw), "CIR0")
    back = format.write(format.read(circle), "TFL3")
    assert (
        circle[4:8] == b"CIR0"
        and independent.differences(independent.dump(raw), independent.dump(back)) == []
    )


def test_new_weights_are_patched_in_place() -> None:
    raw = models.rich_file()
    module = format.read(raw)
    module.buffers[1].held = models.raw(9, 9, 9, 9)
    patched = format.write(module)
    changed = [i for i, (a, b) in enumerate(zip(raw, patched, strict=True)) if a != b]
    assert 0 < len(changed) <= 16 and changed[-1] - changed[0] < 16
    reread = format.read(patched).main.tensors
    assert reread[1].data.tolist() == reread[2].data.tolist() == [[9, 9], [9, 9]]


def test_replaced_buffers_reach_all_their_tensors() -> None:
    module = format.read(models.rich_file())
    old = module.buffers[1]
    once = format.with_buffers(module, {old: Buffer(models.raw(8, 8, 8, 8))})
    twice = format.with_buffers(once, {once.buffers[1]: Buffer(models.raw(7, 7, 7, 7))})
    for changed, value in ((module, [[1, 2], [3, 4]]), (once, [[8, 8], [8, 8]]), (twice, [[7, 7], [7, 7]])):
        for raw in (format.write(changed), anew(changed)):
            reread = format.read(raw)
            assert reread.main.tensors[1].data.tolist() == reread.main.tensors[2].data.tolist() == value
            assert len(reread.buffers) == len(module.buffers)


def test_buffers_that_lie_upon_each_other_are_told_apart_when_they_change() -> None:
    raw = models.rich_file()
    module = format.read(raw)
    entries = module.carried["source"].root["buffers"]
    entries[7]["data"] = entries[1]["data"]  # as if the file had stored equal bytes once
    module.buffers[7].held = module.buffers[1].bytes
    assert format.write(module) == raw
    module.buffers[1].held = models.raw(9, 9, 9, 9)
    buffers = format.read(format.write(module)).buffers
    assert buffers[1].bytes.tolist() == models.raw(9, 9, 9, 9).tolist()
    assert buffers[7].bytes.tolist() == models.raw(1, 2, 3, 4).tolist()


def test_structural_changes_keep_the_rest() -> None:
    raw = models.rich_file()
    module = format.read(raw)
    module.main.tensors[0].name = "renamed"
    result = module.main.emit(REGISTRY["TANH"](), module.main.outputs[0], name="more")
    module.main.outputs[0] = result
    again = format.read(format.write(module))
    assert again.main.inputs[0].name == "renamed" and again.main.outputs[0].name == "more"
    assert [node.op.name for node in again.main.nodes] == [*(n.op.name for n in module.main.nodes)]
    before, after = (m.carried["source"].root for m in (format.read(raw), again))
    assert after["operator_codes"][:5] == before["operator_codes"]
    assert same("Buffer", after["buffers"][3], before["buffers"][3])
    assert same("SignatureDef", after["signature_defs"][0], before["signature_defs"][0])


def test_a_copied_graph_is_written_as_the_loaded_one() -> None:
    raw = models.rich_file()
    module = format.read(raw)
    copy = Module([module.main.copy(), module.graphs[1]], module.buffers, module.metadata)
    nodes = format.read(format.write(copy, "CIR0")).main.nodes
    assert [str(node.op) for node in nodes] == [str(node.op) for node in module.main.nodes]


@pytest.mark.parametrize("identifier", ["CIR0", "TFL3"])
def test_models_made_by_hand(identifier: str) -> None:
    module = models.small()
    raw = format.write(module, identifier)
    again = format.read(raw)
    assert [node.op for node in again.main.nodes] == [node.op for node in module.main.nodes]
    assert again.buffers[0].bytes.size == 0 and again.version == 3 and again.description == "made by hand"
    for loaded, made in zip(again.main.all_tensors(), module.main.all_tensors(), strict=True):
        assert (loaded.name, loaded.type, loaded.is_constant) == (made.name, made.type, made.is_constant)
        if made.is_constant:
            assert np.array_equal(loaded.data, made.data)
            position = loaded.data.__array_interface__["data"][0] - again.carried["source"].data.ctypes.data
            assert position % 16 == 0
    assert format.write(again) == raw


def test_lite_rt_runs_what_we_write() -> None:
    interpreter = pytest.importorskip("ai_edge_litert.interpreter").Interpreter
    module = models.small()
    x = np.random.default_rng(0).standard_normal((1, 4, 4, 2)).astype(np.float32)
    results = []
    for raw in (format.write(module, "TFL3"), anew(format.read(format.write(module, "CIR0")), "TFL3")):
        run = interpreter(model_content=raw)
        run.allocate_tensors()
        run.set_tensor(run.get_input_details()[0]["index"], x)
        run.invoke()
        results.append(run.get_tensor(run.get_output_details()[0]["index"]))
    values: dict[int, Any] = {id(module.main.inputs[0]): x}
    for node in module.main.nodes:
        inputs = [
            None if t is None else values.get(id(t), t.data if t.is_constant else None) for t in node.inputs
        ]
        values.update(zip(map(id, node.outputs), node.op.compute(inputs), strict=True))
    assert np.array_equal(results[0], results[1])
    np.testing.assert_allclose(results[0], values[id(module.main.outputs[0])], rtol=1e-5)


def test_open_shapes_are_written_as_converters_do() -> None:
    graph = Graph("g", [Tensor("x", TensorType(DType.FLOAT32, (-1, 3)))])
    graph.outputs.append(graph.emit(REGISTRY["TANH"](), graph.inputs[0]))
    tensor = format.read(format.write(Module([graph]))).main.inputs[0]
    assert tensor.shape == (1, 3) and tensor.shape_signature == (-1, 3)


# Real files


@pytest.mark.slow
@pytest.mark.skipif(not FILES, reason="needs ../shared, which a clone does not carry")
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_real_files_survive(path: Path) -> None:
    pytest.importorskip("tflite")
    pytest.importorskip("circle_schema")
    raw = path.read_bytes()
    try:
        module = format.read(path)
    except ModelError:
        assert path.name.startswith("BAD_")
        return
    assert format.write(module) == raw
    again = anew(module)
    assert_same_tables(again, raw)
    if len(raw) < 1_000_000:
        assert independent.differences(independent.dump(raw), independent.dump(again)) == []
