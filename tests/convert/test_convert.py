"""Conversion of ONNX graphs that show one promise each."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402
from onnx.reference import ReferenceEvaluator  # noqa: E402

from circle_train import convert  # noqa: E402
from circle_train.convert.other.referee import difference, evaluate  # noqa: E402
from circle_train.errors import ConversionError  # noqa: E402
from circle_train.ir import Module  # noqa: E402
from circle_train.passes.batch import set_batch  # noqa: E402

RANDOM = np.random.default_rng(5)


def array(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.standard_normal(shape).astype(np.float32)


def model(
    nodes: list[Any],
    inputs: dict[str, list[Any]],
    outputs: dict[str, list[Any]],
    opset: int = 17,
    **weights: Any,
) -> bytes:
    """A serialized model; inputs and outputs by name and shape, weights by name."""
    info = lambda named: [helper.make_tensor_value_info(n, TensorProto.FLOAT, s) for n, s in named.items()]  # noqa: E731
    initializers = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "g", info(inputs), info(outputs), initializers)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)])
    made.ir_version = 8
    onnx.checker.check_model(made, full_check=True)
    return bytes(made.SerializeToString())


def node(op: str, inputs: str, output: str, **attributes: Any) -> Any:
    return helper.make_node(
        op, inputs.split(), output.split(), name=f"n_{output.split(maxsplit=1)[0]}", **attributes
    )


def names(module: Module) -> Counter[str]:
    return Counter(made.op.name for made in module.main.nodes)


def compare(raw: bytes, feeds: dict[str, Any], **options: Any) -> Module:
    """Convert, and agree with onnx's evaluator."""
    module, _ = convert.load_onnx(raw, **options)
    batch = next(iter(feeds.values())).shape[0]
    copy = module.main.copy()
    set_batch(copy, batch)
    expected = ReferenceEvaluator(onnx.load_from_string(raw)).run(None, feeds)
    for ours, theirs in zip(evaluate(copy, feeds), expected, strict=True):
        assert ours.shape == theirs.shape
        assert difference(ours, theirs) < 1e-5
    return module


def test_no_transposes_between_convolutions() -> None:
    """Through a residual sum, a concat, a pad, a resize, squeeze-excite and a softmax over channels."""
    nodes = [
        node("Conv", "x w0", "a", pads=[1, 1, 1, 1]), node("Relu", "a", "b"), node("Conv", "b w1", "c", pads=[1, 1, 1, 1]),
        node("Add", "b c", "d"), node("GlobalAveragePool", "d", "e"), node("Conv", "e w2", "f"), node("Sigmoid", "f", "g"),
        node("Mul", "d g", "h"), node("Concat", "h d", "i", axis=1), node("Pad", "i pads", "j"),
        node("Resize", "j  scales", "k", mode="nearest", coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        node("Conv", "k w3", "l"), node("Softmax", "l", "m", axis=1), node("ReduceMean", "m", "y", axes=[2, 3], keepdims=1),
    ]  # fmt: skip
    nodes[10].input[:] = ["j", "", "scales"]
    raw = model(
        nodes, {"x": ["n", 3, 8, 8]}, {"y": ["n", 5, 1, 1]}, w0=array(4, 3, 3, 3), w1=array(4, 4, 3, 3), w2=array(4, 4, 1, 1),
        w3=array(5, 8, 3, 3), pads=np.array([0, 0, 1, 1, 0, 0, 1, 1]), scales=np.array([1, 1, 2, 2], np.float32),
    )  # fmt: skip
    module = compare(raw, {"x": array(3, 3, 8, 8)})
    assert names(module)["TRANSPOSE"] == 1  # of the input
    assert names(convert.load_onnx(raw, io="nhwc")[0])["TRANSPOSE"] == 0


def test_nhwc_inputs_and_outputs_are_verified_as_such() -> None:
    raw = model([node("Conv", "x w", "y")], {"x": [1, 3, 6, 5]}, {"y": [1, 4, 4, 3]}, w=array(4, 3, 3, 3))
    module, _ = convert.load_onnx(raw, io="nhwc")
    assert [t.shape for t in (*module.main.inputs, *module.main.outputs)] == [(1, 6, 5, 3), (1, 4, 3, 4)]
    assert convert.verify(raw, module)["y"] < 1e-5


def test_batch_stays_open_through_shape_arithmetic() -> None:
    """Shape → Gather → Concat → Reshape, with the batch at an axis of its own and folded into another."""
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "b", axis=0), node("Unsqueeze", "b axis", "b1"),
        node("Concat", "b1 tail", "t", axis=0), node("Reshape", "x t", "r"), node("Transpose", "r", "q", perm=[1, 0, 2]),
        node("Reshape", "q flat", "p"), node("MatMul", "p w", "y"),
    ]  # fmt: skip
    raw = model(
        nodes, {"x": ["n", 6, 4]}, {"y": ["m", 3]}, zero=np.array(0), axis=np.array([0]), tail=np.array([3, 8]),
        flat=np.array([-1, 8]), w=array(8, 3),
    )  # fmt: skip
    module = compare(raw, {"x": array(5, 6, 4)})
    assert module.main.inputs[0].shape == (1, 6, 4)
    assert module.main.inputs[0].shape_signature == (-1, 6, 4)
    assert "SHAPE" not in names(module)


def test_sizes_that_a_minus_one_cannot_say_are_computed() -> None:
    nodes = [node("Shape", "x", "s"), node("ConstantOfShape", "s", "o"), node("Sub", "o x", "y")]
    raw = model(nodes, {"x": ["n", "m"]}, {"y": ["n", "m"]})
    module = compare(raw, {"x": array(4, 1)})
    assert names(module)["SHAPE"] == 1


def test_a_condition_on_the_batch_is_not_folded_away() -> None:
    branch = lambda op: helper.make_graph(  # noqa: E731
        [helper.make_node(op, ["x"], ["z"])],
        "b",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, ["n", 2])],
    )
    nodes = [
        node("Shape", "x", "s"), node("Gather", "s zero", "b"), node("Equal", "b one", "c"),
        node("If", "c", "y", then_branch=branch("Relu"), else_branch=branch("Neg")),
    ]  # fmt: skip
    raw = model(nodes, {"x": ["n", 2]}, {"y": ["n", 2]}, zero=np.array(0), one=np.array(1))
    for batch in (1, 3):
        module = compare(raw, {"x": array(batch, 2)})
    assert module.main.inputs[0].shape_signature == (-1, 2)
    assert {"RELU", "NEG", "SELECT_V2"} <= set(names(module))


def test_a_constant_condition_takes_its_branch() -> None:
    branch = lambda op: helper.make_graph(  # noqa: E731
        [helper.make_node(op, ["x"], ["z"])],
        "b",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 2])],
    )
    nodes = [node("If", "c", "y", then_branch=branch("Relu"), else_branch=branch("Neg"))]
    raw = model(nodes, {"x": [2, 2]}, {"y": [2, 2]}, c=np.array(False))
    assert set(names(compare(raw, {"x": array(2, 2)}))) == {"NEG"}


@pytest.mark.parametrize("length", [None, 1, 6, 7, 8, 9, 12])
def test_a_signal_comes_back_from_half_its_spectrum(length: int | None) -> None:
    """Shorter, longer, odd and even; `inverse` and `onesided` together."""
    spectrum = array(2, 5, 3, 2)
    extra = {} if length is None else {"n": np.array(length)}
    made = node("DFT", "x", "y", inverse=1, onesided=1)
    made.input[:] = ["x", "n" if extra else "", "axis"]
    raw = model(
        [made], {"x": [2, 5, 3, 2]}, {"y": [2, length or 8, 3, 1]}, opset=20, axis=np.array(1), **extra
    )
    (found,) = evaluate(convert.load_onnx(raw)[0].main, {"x": spectrum})
    expected = np.fft.irfft(spectrum[..., 0] + 1j * spectrum[..., 1], n=length, axis=1)[..., None]
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)


def test_a_transform_of_a_lone_signal() -> None:
    raw = model([node("DFT", "x", "y", axis=0)], {"x": [6, 2]}, {"y": [6, 2]}, opset=17)
    x = array(6, 2)
    (found,) = evaluate(convert.load_onnx(raw)[0].main, {"x": x})
    expected = np.fft.fft(x[:, 0] + 1j * x[:, 1])
    np.testing.assert_allclose(found, np.stack([expected.real, expected.imag], -1), rtol=1e-4, atol=1e-5)


def test_functions_of_the_model_are_inlined() -> None:
    body = helper.make_function(
        "own", "Twice", ["a"], ["c"], [helper.make_node("Add", ["a", "a"], ["b"]), helper.make_node("Relu", ["b"], ["c"])],
        [helper.make_opsetid("", 17)],
    )  # fmt: skip
    graph = helper.make_graph(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")], "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
    )  # fmt: skip
    made = helper.make_model(
        graph, functions=[body], opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    )
    compare(made.SerializeToString(), {"x": array(3)})


def test_onnx2tf_missing_is_one_sentence(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConversionError, match="neither a command nor a module of that name was found"):
        convert.load_onnx(b"", engine="onnx2tf")
    with pytest.raises(ConversionError, match="engine is 'other', expected one of direct, onnx2tf"):
        convert.load_onnx(b"", engine="other")


def test_onnx2tf_runs_as_a_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stand-in that takes onnx2tf's arguments and writes a .tflite where onnx2tf would."""
    sample = Path(__file__).parents[1] / "data" / "mlp.circle"
    script = tmp_path / "onnx2tf"
    script.write_text(
        f'#!/bin/sh\nmkdir -p "$4"\ncp "{sample}" "$4/model_float32.tflite"\necho over > "$2"\n'
    )
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    relu = onnx.helper.make_node("Relu", ["data.1"], ["scores"])
    values = [
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1, size])
        for name, size in (("data.1", 6), ("scores", 5))
    ]
    model = onnx.helper.make_model(onnx.helper.make_graph([relu], "g", values[:1], values[1:]))
    module = convert.load_with_onnx2tf(model.SerializeToString())
    assert [tensor.name for tensor in (*module.main.inputs, *module.main.outputs)] == ["data.1", "scores"]
    assert b'"onnx2tf"' in module.metadata[-1].buffer.bytes.tobytes()
    original = tmp_path / "model.onnx"
    original.write_bytes(model.SerializeToString())
    convert.load_with_onnx2tf(original)
    assert original.read_bytes() == model.SerializeToString(), "onnx2tf writes over what it reads"
    script.write_text("#!/bin/sh\necho no such op >&2\nexit 3\n")
    with pytest.raises(ConversionError, match="ended with status 3: no such op"):
        convert.load_with_onnx2tf(model.SerializeToString())


def test_sequences_of_known_length() -> None:
    """What torch's dynamo exporter writes for chunk, split, stack and the loops over them."""
    nodes = [
        node("SplitToSequence", "x parts", "s", axis=1), node("SequenceAt", "s first", "a"), node("SequenceAt", "s last", "b"),
        node("SequenceInsert", "s b first", "t"), node("SequenceErase", "t last", "u"),
        node("ConcatFromSequence", "u", "v", axis=1),
        node("SequenceConstruct", "a b", "w"), node("ConcatFromSequence", "w", "stacked", axis=-1, new_axis=1),
        node("SplitToSequence", "x", "ones", axis=1, keepdims=0), node("SequenceAt", "ones last", "one"),
        node("SequenceLength", "ones", "n"), node("Cast", "n", "count", to=1), node("Mul", "one count", "many"),
    ]  # fmt: skip
    raw = model(
        nodes, {"x": ["n", 4]}, {"v": ["n", 4], "stacked": ["n", 2, 2], "many": ["n"]},
        parts=np.int64(2), first=np.int64(0), last=np.int64(-1),
    )  # fmt: skip
    compare(raw, {"x": array(3, 4)})


def test_a_sequence_as_an_output_is_refused() -> None:
    graph = helper.make_graph(
        [node("SequenceConstruct", "x x", "s")], "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])],
        [helper.make_tensor_sequence_value_info("s", TensorProto.FLOAT, None)],
    )  # fmt: skip
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
    with pytest.raises(ConversionError, match="the output 's' is a sequence; make its tensors outputs"):
        convert.load_onnx(made.SerializeToString())


@pytest.mark.parametrize(("batch", "time"), [(1, 0), (0, 1)])
def test_reverse_sequence(batch: int, time: int) -> None:
    nodes = [node("ReverseSequence", "x lengths", "y", batch_axis=batch, time_axis=time)]
    raw = model(nodes, {"x": [3, 3, 2]}, {"y": [3, 3, 2]}, lengths=np.array([1, 3, 2], np.int64))
    compare(raw, {"x": array(3, 3, 2)})


@pytest.mark.parametrize(
    ("auto", "size", "first"),
    [("NOTSET", 8, 1), ("SAME_LOWER", 8, 1), ("SAME_UPPER", 8, 0), ("NOTSET", 11, 0)],
)
def test_a_transposed_convolution_to_a_given_shape_is_cut_where_the_standard_says(
    auto: str, size: int, first: int
) -> None:
    """Only SAME_UPPER cuts more at the end; also where auto_pad is not given, as in onnxruntime, which adds at the end."""
    nodes = [node("ConvTranspose", "x w", "y", strides=[2], output_shape=[size], auto_pad=auto)]
    raw = model(nodes, {"x": [1, 1, 4]}, {"y": [1, 1, size]}, w=np.array([[[10, 20, 30]]], np.float32))
    module, _ = convert.load_onnx(raw)
    (y,) = evaluate(module.main, {"x": np.array([[[1, 2, 3, 4]]], np.float32)})
    whole = [10, 20, 50, 40, 90, 60, 130, 80, 120, 0, 0]
    assert y.ravel().tolist() == whole[first : first + size]
