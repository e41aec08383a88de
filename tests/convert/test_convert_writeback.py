"""Trained values go back into the ONNX file that they came from."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402
from test_convert import array, compare, model, names, node  # noqa: E402

import circle_train as ct  # noqa: E402
from circle_train import convert  # noqa: E402
from circle_train.convert.other.referee import difference, evaluate  # noqa: E402
from circle_train.errors import ConversionError  # noqa: E402
from circle_train.ir import DType, Role  # noqa: E402


def test_parameters_keep_their_names_and_come_back() -> None:
    nodes = [node("Conv", "x w b", "a", group=2), node("BatchNormalization", "a scale shift mean var", "y")]
    raw = model(
        nodes, {"x": [1, 4, 5, 5]}, {"y": [1, 6, 3, 3]}, w=array(6, 2, 3, 3), b=array(6), scale=array(6), shift=array(6),
        mean=array(6), var=np.abs(array(6)) + 0.5,
    )  # fmt: skip
    module, provenance = convert.load_onnx(raw)
    constants = {t.name: t for t in module.main.all_tensors() if t.is_constant}
    initializers = {t.name: numpy_helper.to_array(t) for t in onnx.load_from_string(raw).graph.initializer}
    assert set(provenance.lineages) == set(initializers)
    for name, value in initializers.items():
        np.testing.assert_array_equal(provenance.to_onnx(name, constants[name].data), value)
        np.testing.assert_array_equal(provenance.to_circle(name, value), constants[name].data)
    frozen = {name for name, tensor in constants.items() if Role.FIXED in tensor.role}
    assert {"mean", "var"} <= frozen
    assert not {"w", "b", "scale", "shift"} & frozen


def test_folded_batch_normalisation_comes_back_too() -> None:
    nodes = [node("Conv", "x w", "a"), node("BatchNormalization", "a scale shift mean var", "y")]
    raw = model(
        nodes, {"x": [2, 3, 5, 5]}, {"y": [2, 6, 3, 3]}, w=array(6, 3, 3, 3), scale=array(6), shift=array(6), mean=array(6),
        var=np.abs(array(6)) + 0.5,
    )  # fmt: skip
    module = compare(raw, {"x": array(2, 3, 5, 5)}, fold_batchnorm=True)
    assert names(module) == {"TRANSPOSE": 2, "CONV_2D": 1}
    _, provenance = convert.load_onnx(raw, fold_batchnorm=True)
    weights = array(6, 3, 3, 3)
    np.testing.assert_allclose(
        provenance.to_onnx("w", provenance.to_circle("w", weights)), weights, rtol=1e-5
    )


def test_tied_weights_stay_tied() -> None:
    """An embedding that is also the output layer: one constant, its other form computed."""
    nodes = [
        node("Gather", "table i", "e"),
        node("Transpose", "table", "t", perm=[1, 0]),
        node("MatMul", "e t", "y"),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("i", TensorProto.INT64, [2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, 3, 9])], [numpy_helper.from_array(array(9, 4), "table")],
    )  # fmt: skip
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]).SerializeToString()
    module, provenance = convert.load_onnx(raw)
    tables = [
        t
        for t in module.main.all_tensors()
        if t.is_constant and t.dtype is DType.FLOAT32 and t.type.size == 36
    ]
    assert [t.name for t in tables] == ["table"]
    assert list(provenance.lineages) == ["table"]
    indices = np.array([[1, 8, -1], [0, 3, 2]])
    (ours,) = evaluate(module.main, {"i": indices})
    (theirs,) = ReferenceEvaluator(onnx.load_from_string(raw)).run(None, {"i": indices})
    assert difference(ours, theirs) < 1e-6


def test_write_back_changes_initializers_alone(tmp_path: Path) -> None:
    nodes = [node("Conv", "x w b", "a"), node("Relu", "a", "y")]
    raw = model(nodes, {"x": [1, 2, 5, 5]}, {"y": [1, 3, 3, 3]}, w=array(3, 2, 3, 3), b=array(3))
    _, provenance = convert.load_onnx(raw)
    trained = array(3, 2, 3, 3)
    convert.write_back(provenance, {"w": provenance.to_circle("w", trained)}, tmp_path / "out.onnx")
    before, after = onnx.load_from_string(raw), onnx.load(tmp_path / "out.onnx")
    np.testing.assert_array_equal(numpy_helper.to_array(after.graph.initializer[0]), trained)
    after.graph.initializer[0].CopyFrom(before.graph.initializer[0])
    assert after == before
    with pytest.raises(ConversionError, match="'strange' was trained but is no initializer"):
        convert.write_back(provenance, {"strange": trained}, tmp_path / "out.onnx")


def test_what_nobody_changed_is_written_as_it_was(tmp_path: Path) -> None:
    """Numbers in a field of floats too, which new ones leave for raw bytes."""
    net = onnx.load_from_string(
        model([node("Gemm", "x w b", "y")], {"x": [1, 3]}, {"y": [1, 2]}, w=array(3, 2), b=array(2))
    )
    for one in net.graph.initializer:
        one.CopyFrom(
            helper.make_tensor(one.name, TensorProto.FLOAT, one.dims, numpy_helper.to_array(one).ravel())
        )
        assert one.float_data
    onnx.save(net, tmp_path / "net.onnx")
    session = ct.TrainSession(tmp_path / "net.onnx", ct.TrainConfig(loss="mse", batch_size=2))
    session.export(tmp_path / "same.onnx")
    assert (tmp_path / "same.onnx").read_bytes() == (tmp_path / "net.onnx").read_bytes()
    session.parameters["b"][...] = 5
    session.export(tmp_path / "b.onnx")
    found = {one.name: one for one in onnx.load(tmp_path / "b.onnx").graph.initializer}
    assert found["w"].float_data and numpy_helper.to_array(found["b"]).tolist() == [5, 5]


def test_values_of_another_session_are_new_to_the_file(tmp_path: Path) -> None:
    """A model that took them over holds them already; the file that it came from does not."""
    path = tmp_path / "net.onnx"
    path.write_bytes(
        model([node("Gemm", "x w b", "y")], {"x": [1, 3]}, {"y": [1, 2]}, w=array(3, 2), b=array(2))
    )
    config = ct.TrainConfig(loss="mse", batch_size=2)
    session = ct.TrainSession(path, config)
    session.parameters["b"][...] = 5
    session.export(tmp_path / "here.onnx")
    ct.TrainSession(ct.load(path).with_parameters(session.parameters), config).export(tmp_path / "there.onnx")
    assert (
        (tmp_path / "there.onnx").read_bytes() == (tmp_path / "here.onnx").read_bytes() != path.read_bytes()
    )


def test_external_data_stays_external(tmp_path: Path) -> None:
    source, target = tmp_path / "in", tmp_path / "out"
    source.mkdir()
    target.mkdir()
    raw = model([node("Gemm", "x w b", "y")], {"x": [1, 40]}, {"y": [1, 30]}, w=array(40, 30), b=array(30))
    onnx.save(
        onnx.load_from_string(raw),
        source / "m.onnx",
        save_as_external_data=True,
        location="m.data",
        size_threshold=0,
    )
    module, provenance = convert.load_onnx(source / "m.onnx")
    assert convert.verify(source / "m.onnx", module)["y"] < 1e-5
    trained, data = array(30), (source / "m.data").read_bytes()
    for folder in (target, source):
        convert.write_back(provenance, {"b": trained}, folder / "new.onnx")
        slim = onnx.load(folder / "new.onnx", load_external_data=False)
        assert all(t.data_location == TensorProto.EXTERNAL for t in slim.graph.initializer)
        values = {t.name: numpy_helper.to_array(t) for t in onnx.load(folder / "new.onnx").graph.initializer}
        np.testing.assert_array_equal(values["b"], trained)
        np.testing.assert_array_equal(
            values["w"], numpy_helper.to_array(onnx.load_from_string(raw).graph.initializer[0])
        )
    assert (source / "m.data").read_bytes() == data
    (source / "m.onnx").write_bytes(b"other")
    with pytest.raises(ConversionError, match="has changed since it was loaded"):
        convert.write_back(provenance, {"b": trained}, target / "new.onnx")
    (source / "new.onnx.data").unlink()
    with pytest.raises(ConversionError, match=r"initializer 'w' needs 4800 bytes at 0 of .* is missing"):
        convert.load_onnx(source / "new.onnx")


def test_a_model_that_is_gone_is_missed(tmp_path: Path) -> None:
    path = tmp_path / "m.onnx"
    path.write_bytes((Path(__file__).parents[1] / "data" / "ort" / "mlp.onnx").read_bytes())
    session = ct.TrainSession(path, ct.TrainConfig(loss="mse", batch_size=2))
    session.prepare()
    path.unlink()
    with pytest.raises((ConversionError, ct.ModelError), match=r"m\.onnx' (is gone|had|cannot be read)"):
        session.export(tmp_path / "out.onnx")
    assert not (tmp_path / "out.onnx").exists()


def test_a_file_object_is_read_as_a_file_is() -> None:
    raw = (Path(__file__).parents[1] / "data" / "ort" / "mlp.onnx").read_bytes()
    assert repr(ct.load(BytesIO(raw))) == repr(ct.load(raw))
