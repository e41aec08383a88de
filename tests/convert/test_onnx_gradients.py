"""Variants of ONNX operators: outputs as onnxruntime's, gradients of every float input as finite differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import circle_train as ct

onnx = pytest.importorskip("onnx")
MICROSOFT = "com.microsoft"


def floats(*shape: int, low: float = -1, high: float = 1) -> Any:
    return np.random.default_rng(shape).uniform(low, high, shape).astype(np.float32)


def ints(*values: int) -> Any:
    return np.array(values, np.int64)


def picks(high: int, *shape: int) -> Any:
    return np.random.default_rng(high).integers(0, high, shape)


@dataclass
class Fixed:
    """An input that is not trained."""

    value: Any


@dataclass
class Case:
    """One node: float inputs are trained, integers and `Fixed` are not, None is left out."""

    op: str
    inputs: Sequence[Any]
    opset: int = 18
    domain: str = ""
    outputs: int = 1
    use: int = 0
    like_ort: bool = True
    attributes: dict[str, Any] = field(default_factory=dict)


def case(op: str, *inputs: Any, **settings: Any) -> Case:
    own = {
        key: settings.pop(key) for key in ("opset", "domain", "outputs", "use", "like_ort") if key in settings
    }
    return Case(op, inputs, attributes=settings, **own)


IMAGE, ROWS = floats(2, 4, 6, 5), floats(2, 5)
TWICE = np.array([1, 1, 2, 2], np.float32)
STEPS, BATCH, WIDE, HIDDEN = 4, 2, 3, 5
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
CASES: dict[str, Case] = {
    "Shrink": case("Shrink", ROWS, bias=0.1, lambd=0.3),
    "Acosh": case("Acosh", floats(2, 5, low=1.5, high=3), opset=9),
    "PRelu, a slope each": case("PRelu", ROWS, floats(5)),
    "Pow, base and exponent": case("Pow", floats(2, 5, low=0.5, high=2), floats(5, low=-2, high=3)),
    "Pow, int64 exponent": case("Pow", ROWS, ints(2)),
    "Max of three": case("Max", ROWS * np.float32(1.1), floats(5), floats(2, 1)),
    "Mean of three": case("Mean", ROWS, floats(5), floats(2, 1)),
    "MatMul, batches broadcast": case("MatMul", floats(1, 2, 3, 4), floats(3, 2, 4, 5)),
    "MatMul of a vector": case("MatMul", floats(4), floats(2, 4, 5)),
    "Gemm, both transposed": case("Gemm", floats(4, 3), floats(5, 4), floats(3, 1), transA=1, transB=1, alpha=0.5, beta=0.3),
    "QuickGelu": case("QuickGelu", ROWS, domain=MICROSOFT), "FastGelu": case("FastGelu", ROWS, floats(5), domain=MICROSOFT),
    "BiasGelu": case("BiasGelu", ROWS, floats(5), domain=MICROSOFT), "Gelu": case("Gelu", ROWS, domain=MICROSOFT),
    "SkipLayerNormalization": case(
        "SkipLayerNormalization", floats(2, 3, 5), floats(2, 3, 5) * 2, floats(5), floats(5) * 2, floats(5) * 3,
        domain=MICROSOFT),
    "SimplifiedLayerNormalization": case("SimplifiedLayerNormalization", floats(2, 3, 5), floats(5), axis=-1, opset=17),
    "LayerNormalization, three outputs": case(
        "LayerNormalization", floats(2, 3, 5), floats(3, 5), floats(3, 5) * 2, axis=1, outputs=3, opset=17),
    "GroupNormalization-18": case("GroupNormalization", IMAGE, floats(2), floats(2) * 2, num_groups=2),
    "BatchNormalization of rows": case(
        "BatchNormalization", floats(3, 5), floats(5), floats(5) * 2, Fixed(floats(5) * 3), Fixed(floats(5, low=0.5))),
    "Conv, SAME_UPPER, strides": case("Conv", IMAGE, floats(3, 4, 3, 3), floats(3), auto_pad="SAME_UPPER", strides=[2, 2]),
    "Conv, SAME_LOWER": case("Conv", IMAGE, floats(3, 4, 2, 2), auto_pad="SAME_LOWER"),
    "Conv, groups": case("Conv", IMAGE, floats(6, 2, 2, 2), floats(6), group=2, dilations=[2, 1], pads=[1, 0, 2, 1]),
    "Conv, depthwise": case("Conv", IMAGE, floats(4, 1, 3, 3), group=4, strides=[2, 1]),
    "Conv of a sequence": case("Conv", floats(2, 3, 8), floats(4, 3, 3), floats(4), pads=[2, 0], strides=[2]),
    "Conv of a volume": case("Conv", floats(1, 2, 4, 4, 4), floats(3, 2, 2, 2, 2), floats(3), strides=[1, 2, 1]),
    "ConvTranspose, output padding": case(
        "ConvTranspose", IMAGE, floats(4, 3, 3, 3), floats(3), strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1]),
    "ConvTranspose, groups": case("ConvTranspose", IMAGE, floats(4, 2, 3, 2), group=2, strides=[2, 1]),
    "ConvTranspose, dilations": case("ConvTranspose", IMAGE, floats(4, 3, 2, 2), dilations=[2, 2]),
    "ConvTranspose, SAME_UPPER": case("ConvTranspose", IMAGE, floats(4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2]),
    "ConvTranspose of a sequence": case("ConvTranspose", floats(2, 3, 5), floats(3, 2, 4), strides=[2], pads=[1, 1]),
    "ConvTranspose of a volume": case("ConvTranspose", floats(1, 2, 3, 3, 3), floats(2, 2, 2, 2, 2), strides=[2, 2, 2]),
    "MaxPool, ceil": case("MaxPool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1], ceil_mode=1),
    "MaxPool, dilations": case("MaxPool", IMAGE, kernel_shape=[2, 2], dilations=[2, 2]),
    "MaxPool, SAME_LOWER": case("MaxPool", IMAGE, kernel_shape=[3, 2], strides=[2, 2], auto_pad="SAME_LOWER"),
    "MaxPool of a volume": case("MaxPool", floats(1, 2, 4, 4, 4), kernel_shape=[2, 2, 2]),
    "AveragePool, padding counts": case("AveragePool", IMAGE, kernel_shape=[3, 3], pads=[1, 1, 1, 1], count_include_pad=1),
    "AveragePool, ceil": case("AveragePool", IMAGE, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 0, 1, 0], ceil_mode=1),
    "GlobalMaxPool of a sequence": case("GlobalMaxPool", floats(2, 3, 7)),
    "Resize, antialias": case("Resize", IMAGE, None, Fixed(np.array([1, 1, 0.5, 0.6], np.float32)), mode="linear", antialias=1),
    "Resize of a volume": case(
        "Resize", floats(1, 2, 3, 3, 3), None, Fixed(np.array([1, 1, 2, 2, 2], np.float32)), mode="linear"),
    "Upsample": case("Upsample", IMAGE, Fixed(TWICE), opset=9, mode="linear"),
    "Pad, a negative count": case("Pad", floats(4, 5), ints(-1, 1, 0, -2)),
    "GatherElements, negative": case("GatherElements", floats(3, 4), picks(3, 2, 4) - 1, axis=0),
    "GatherND, batch": case("GatherND", floats(2, 3, 4), picks(3, 2, 2, 1), batch_dims=1),
    "Gather twice the same": case("Gather", floats(3, 4), ints(0, 0, -1), axis=0),
    "ScatterElements, adding": case("ScatterElements", floats(3, 4), picks(3, 2, 4), floats(2, 4), axis=0, reduction="add"),
    "ScatterElements, the last wins": case(
        "ScatterElements", floats(3, 4), ints(0, 2, 1, 0, 0, 2, 1, 1).reshape(2, 4), floats(2, 4)),
    "ScatterElements, the last of all": case("ScatterElements", floats(4), ints(1, 3, 1, -1, 1), floats(5)),
    "ScatterElements, multiplying": case(
        "ScatterElements", floats(3, 4), ints(0, 2, 1, 0, 0, 2, 1, 1).reshape(2, 4), floats(2, 4), reduction="mul"),
    "ScatterND, the last wins": case("ScatterND", floats(4, 3), ints(2, 0, 2)[:, None], floats(3, 3)),
    "ScatterND, the largest": case("ScatterND", floats(4, 3), ints(2, 0, 2)[:, None], floats(3, 3), reduction="max"),
    "ScatterND, the smallest": case("ScatterND", floats(4, 3), ints(2, 0, 2)[:, None], floats(3, 3), reduction="min"),
    "ScatterND, replacing": case("ScatterND", floats(4, 3), ints(2, 0)[:, None], floats(2, 3)),
    "ScatterND, adding": case("ScatterND", floats(4, 3), ints(2, 2)[:, None], floats(2, 3), reduction="add"),
    "TopK, smallest": case("TopK", floats(6, 3), ints(2), outputs=2, axis=0, largest=0),
    "Trilu, upper": case("Trilu", floats(2, 4, 4), Fixed(np.array(1)), upper=1),
    "Split, the middle one used": case("Split", floats(2, 7), ints(2, 3, 2), outputs=3, use=1, axis=1, opset=13),
    "Slice, backwards": case("Slice", floats(5, 6), ints(-1, 4), ints(-6, 0), ints(0, 1), ints(-1, -2)),
    "GridSample": case("GridSample", IMAGE, floats(2, 3, 3, 2) * np.float32(0.9), mode="bilinear", opset=16),
    "SoftmaxCrossEntropyLoss": case("SoftmaxCrossEntropyLoss", floats(4, 5), ints(0, 4, 2, 1), reduction="mean"),
    "SoftmaxCrossEntropyLoss, weights": case(
        "SoftmaxCrossEntropyLoss", floats(2, 5, 3), picks(5, 2, 3), Fixed(floats(5, low=0.2)), reduction="sum", ignore_index=1),
    "NegativeLogLikelihoodLoss": case("NegativeLogLikelihoodLoss", floats(4, 5), ints(0, 4, 2, 1), reduction="mean"),
    "LSTM, states and peepholes": case(
        "LSTM", floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5), floats(1, 40), None, floats(1, 2, 5), floats(1, 2, 5) * 2,
        floats(1, 15), outputs=3, use=2, hidden_size=5),
    "LSTM, lengths": case(
        "LSTM", floats(4, 2, 3), floats(1, 20, 3), floats(1, 20, 5), floats(1, 40), Fixed(np.array([3, 2], np.int32)),
        outputs=3, hidden_size=5),
    "LSTM, batch first": case(
        "LSTM", floats(2, 4, 3), floats(1, 20, 3), floats(1, 20, 5), outputs=3, hidden_size=5, layout=1, like_ort=False),
    "GRU, reset after": case(
        "GRU", floats(4, 2, 3), floats(1, 15, 3), floats(1, 15, 5), floats(1, 30), outputs=2, hidden_size=5,
        linear_before_reset=1),
    "RNN, relu": case("RNN", floats(4, 2, 3), floats(1, 5, 3), floats(1, 5, 5), outputs=2, hidden_size=5, activations=["Relu"]),
}  # fmt: skip
EQUATIONS = {
    "ij,jk->ik": ((2, 3), (3, 4)), "bij,bjk->bik": ((2, 3, 4), (2, 4, 5)), "bhqd,bhkd->bhqk": ((1, 2, 3, 4), (1, 2, 5, 4)),
    "ij->ji": ((2, 3),), "ij->i": ((2, 3),), "ii->i": ((3, 3),), "i,j->ij": ((3,), (4,)), "ij,ij->": ((2, 3), (2, 3)),
    "...ij,...jk->...ik": ((2, 3, 4), (2, 4, 5)), "abc,cd,de->abe": ((2, 3, 4), (4, 2), (2, 3)),
    "bi,bj,ij->b": ((2, 3), (2, 4), (3, 4)),
}  # fmt: skip
CASES |= {
    f"Einsum {e}": case("Einsum", *(floats(*s) for s in shapes), equation=e)
    for e, shapes in EQUATIONS.items()
}
CASES |= {f"Pad {mode}": case("Pad", floats(2, 3, 4, 5), ints(0, 0, 1, 2, 0, 0, 2, 1), mode=mode, opset=19)
          for mode in ("reflect", "edge", "wrap")}  # fmt: skip
CASES |= {
    f"CumSum {e}{r}": case("CumSum", floats(3, 4), ints(1), exclusive=e, reverse=r)
    for e in (0, 1)
    for r in (0, 1)
}
CASES |= {
    f"DepthToSpace {m}": case("DepthToSpace", floats(2, 8, 3, 2), blocksize=2, mode=m) for m in ("DCR", "CRD")
}
CASES |= {
    f"{op} of all": case(op, floats(2, 3), keepdims=1)
    for op in ("ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceLogSumExp")
}
CASES |= {
    f"Resize {mode}, {how}, {'sizes' if sizes else 'scales'}": case(
        "Resize", IMAGE, None, *([None, ints(2, 4, 4, 9)] if sizes else [Fixed(TWICE)]), mode=mode,
        coordinate_transformation_mode=how, nearest_mode="floor")
    for mode in ("nearest", "linear", "cubic")
    for how in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
    for sizes in (False, True)
}  # fmt: skip
CASES |= {
    f"{op}, {way}, output {use}": case(
        op, floats(STEPS, BATCH, WIDE), floats(count, gates * HIDDEN, WIDE), floats(count, gates * HIDDEN, HIDDEN),
        floats(count, 2 * gates * HIDDEN), None, floats(count, BATCH, HIDDEN), outputs=3 if op == "LSTM" else 2, use=use,
        hidden_size=HIDDEN, direction=way)
    for op, gates in GATES.items()
    for way, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2))
    for use in (0, 1)
}  # fmt: skip


def model_of(made: Case) -> Any:
    """y = what the node makes of p0·x, times x, which is 1."""
    from onnx import helper, numpy_helper

    values = [given.value if isinstance(given, Fixed) else given for given in made.inputs]
    names = ["" if value is None else f"p{i}" for i, value in enumerate(values)]
    weights = [
        numpy_helper.from_array(np.ascontiguousarray(v), n) for v, n in zip(values, names, strict=True) if n
    ]
    results = [f"o{i}" for i in range(made.outputs)]
    nodes = [
        helper.make_node("Mul", ["p0", "x"], ["q"]),
        helper.make_node(made.op, ["q", *names[1:]], results, domain=made.domain, **made.attributes),
        helper.make_node("Mul", [results[made.use], "x"], ["y"]),
    ]
    ends = [[helper.make_tensor_value_info(name, 1, shape)] for name, shape in (("x", [1]), ("y", None))]
    graph = helper.make_graph(nodes, made.op, *ends, weights)
    opsets = [helper.make_opsetid("", made.opset), helper.make_opsetid(MICROSOFT, 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9)


def trained_of(made: Case) -> list[str]:
    return [f"p{i}" for i, v in enumerate(made.inputs) if isinstance(v, np.ndarray) and v.dtype == np.float32]


ONE = np.ones(1, np.float32)


def session_of(made: Case, backend: str = "auto") -> ct.TrainSession:
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=1, trainable=trained_of(made))
    return ct.TrainSession(model_of(made), config, backend=backend)


@pytest.mark.parametrize("name", [name for name, made in CASES.items() if made.like_ort])
def test_output_is_onnxruntimes(name: str) -> None:
    peer = pytest.importorskip("onnxruntime")
    runner = peer.InferenceSession(
        model_of(CASES[name]).SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (wanted,) = runner.run(None, {"x": ONE})
    (found,) = session_of(CASES[name]).eval_step(ONE).outputs
    np.testing.assert_allclose(
        found.reshape(wanted.shape), wanted, rtol=0, atol=2e-5 * max(1, np.abs(wanted).max())
    )


@pytest.mark.parametrize("backend", ["native", "reference"])
@pytest.mark.parametrize("name", CASES)
def test_every_gradient_is_a_finite_difference(name: str, backend: str) -> None:
    made = CASES[name]
    session = session_of(made, backend)
    (output,) = session.eval_step(ONE).outputs
    target = np.random.default_rng(1).uniform(-1, 1, output.shape).astype(np.float32)
    session.train_step(ONE, target, update=False, accumulate=True)
    gradients = {key: value.astype(np.float64) for key, value in session.gradients.items()}
    assert list(gradients) == trained_of(made)
    for key, gradient in gradients.items():
        weight = session.parameters[key].copy()
        direction = np.random.default_rng(2).choice(np.float32([-1, 1]), weight.shape)
        losses = []
        for sign in (1, -1):
            session.parameters[key] = weight + sign * np.float32(1e-3) * direction
            (output,) = session.eval_step(ONE).outputs
            losses.append(float(((output.astype(np.float64) - target) ** 2).mean()))
        session.parameters[key] = weight
        expected = (losses[0] - losses[1]) / 2e-3
        assert float((gradient * direction).sum()) == pytest.approx(expected, rel=4e-3, abs=4e-4), key
