"""What a million damaged files have found, each as small as it can be said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from onnx import helper, numpy_helper

import circle_train as ct
from circle_train.backends.native.binders.conv import is_mostly_void
from circle_train.backends.native.binders.image import transposed
from circle_train.convert.onnx_file.elements import to_array
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ops.attributes import Padding
from circle_train.ops.foreign.elements import count_ngrams
from circle_train.ops.opaque import Opaque
from circle_train.passes.control.subgraphs import decompose
from circle_train.passes.control.variables import lower_variables


def test_an_input_of_words_is_no_array() -> None:
    graph = Graph("net", [Tensor("x", TensorType(DType.STRING, (3, 4)))])
    model = networks.finish(graph, graph.emit(networks.make("WHERE"), graph.inputs[0]))
    with pytest.raises(ct.DataError, match=r"'x' is of string 3×4, which no array holds"):
        ct.InferenceSession(model)(np.zeros((3, 4), np.float32))


def test_a_composite_that_is_given_too_much_is_damaged() -> None:
    composite = next(iter(type(networks.make("STABLEHLO_COMPOSITE")).examples())).op
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (2, 3)))])
    x = graph.inputs[0]
    graph.append(Node(composite, [x, x, x], [Tensor("y", x.type)]))
    with pytest.raises(ct.ModelError, match="gives 3 tensors to a graph that takes 2; the file is damaged"):
        decompose(graph)


def test_what_an_initialisation_leaves_is_no_value() -> None:
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (2, 3)))])
    made = Tensor("y", graph.inputs[0].type)
    graph.append(Node(Opaque(129, "CALL_ONCE"), [graph.inputs[0]], [made]))
    graph.outputs.append(made)
    with pytest.raises(ct.ModelError, match="output 'y': what a variable's operator leaves is taken"):
        lower_variables(graph)


def test_recurrent_weights_without_dimensions_are_refused() -> None:
    op = networks.make("BIDIRECTIONAL_SEQUENCE_LSTM")
    types: list[TensorType | None] = [None] * len(op.inputs)
    names = [spec.name for spec in op.inputs]
    types[0] = TensorType(DType.FLOAT32, (5, 2, 3))
    for name in ("w_f", "w_g", "w_o", "r_g", "r_o"):
        types[names.index(f"fw_{name}")] = TensorType(DType.FLOAT32, (4, 3))
    types[names.index("fw_r_f")] = TensorType(DType.FLOAT32, ())
    types[names.index("fw_w_p")] = TensorType(DType.FLOAT32, (3, 4))
    with pytest.raises(
        ct.ModelError, match="recurrent weights 'r_f' is float32 scalar of rank 0, expected rank 2"
    ):
        op.infer(*types)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"bw_r": (4, 6)}, "columns"),
        ({"bw_r": (5, 4)}, "rows"),
        ({"fw_w": (3, 3)}, "rows"),
        ({"bw_b": (3,)}, "rows"),
        ({"bw_r": None}, "weights 'r' are missing"),
        ({"fw_b": None}, "weights 'b' are missing"),
    ],
)
def test_weights_of_another_layers_size_are_refused(
    change: dict[str, tuple[int, ...] | None], message: str
) -> None:
    """The kernel believed one of them, and read beyond the others."""
    op = networks.make("BIDIRECTIONAL_SEQUENCE_RNN")
    shapes: dict[str, tuple[int, ...] | None] = {"x": (2, 5, 3)}
    shapes |= {
        f"{way}_{name}": shape
        for way in ("fw", "bw")
        for name, shape in (("w", (4, 3)), ("r", (4, 4)), ("b", (4,)))
    }

    def infer() -> None:
        given = (shapes.get(spec.name) for spec in op.inputs)
        op.infer(*(None if shape is None else TensorType(DType.FLOAT32, shape) for shape in given))

    infer()
    shapes |= change
    with pytest.raises(ct.ModelError, match=message):
        infer()


@pytest.mark.parametrize("left", ["w_i", "r_i", "b_i"])
def test_a_gate_is_there_with_all_its_weights_or_with_none(left: str) -> None:
    """The kernel read the others of it at address 0."""
    for op in (networks.make("UNIDIRECTIONAL_SEQUENCE_LSTM"), networks.make("BIDIRECTIONAL_SEQUENCE_LSTM")):
        given = next(iter(type(op).examples())).inputs
        types = {
            spec.name: None if value is None else TensorType(DType.FLOAT32, np.shape(value))
            for spec, value in zip(op.inputs, given, strict=True)
        }
        types |= {name: None for name in types if name.endswith("_i") and not name.endswith(left)}
        with pytest.raises(ct.ModelError, match="are missing: the file is damaged"):
            op.infer(*types.values())


def test_an_output_of_constants_is_not_of_the_samples() -> None:
    """Beside an operator that holds the number of its samples, which has the batch taken one by one."""
    graph = Graph("net", [Tensor("x", TensorType(DType.FLOAT32, (1, 4, 4, 2)))])
    p = networks.weight("p", 1, 4, 4, 2)
    graph.emit(networks.make("ADD"), graph.inputs[0], p)
    pool = networks.make("MAX_POOL_2D", filter_height=2, filter_width=2, stride_h=1, stride_w=1)
    model = networks.finish(graph, graph.emit(pool, p))
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=2)
    with pytest.raises(ct.ModelError, match="float32 1×4×4×2"):
        ct.TrainSession(model, config).prepare()


def test_a_kernel_as_large_as_the_image_is_strewn() -> None:
    """169 bytes asked the native engine for minutes within one step, which no Ctrl-C ends."""
    assert is_mostly_void((65536, 3), (65536, 5), (1, 3))
    for kernel, wide, narrow in (((7, 7), (7, 7), (1, 1)), ((64, 64), (1024, 1024), (64, 64))):
        assert not is_mostly_void(kernel, wide, narrow)
    op = networks.make("TRANSPOSE_CONV", padding=Padding.VALID)
    x, w = np.ones((1, 1, 3, 1), np.float32), np.ones((2, 40_000, 3, 1), np.float32)
    shape = np.array([1, 40_000, 5, 2], np.int32)
    assert transposed(op, (shape, w, x, None), [np.empty(shape, np.float32)]) is None
    shape[1], w = 40, np.ones((2, 40, 3, 1), np.float32)
    assert transposed(op, (shape, w, x, None), [np.empty(shape, np.float32)]) is not None


def test_sizes_below_zero_fill_no_initializer() -> None:
    tensor = numpy_helper.from_array(np.zeros((2, 3), np.float32), "w")
    tensor.dims[1] = -1
    with pytest.raises(ValueError, match=r"shape \(2, -1\)"):
        to_array(tensor)


def test_a_constant_node_without_output_is_passed_over(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Constant", [], [], value=numpy_helper.from_array(np.ones(2, np.float32))),
        helper.make_node("MatMul", ["x", "w"], ["y"]),
    ]
    ends = [helper.make_tensor_value_info(name, 1, ["N", 3]) for name in "xy"]
    weights = [numpy_helper.from_array(np.eye(3, dtype=np.float32), "w")]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = ct.TrainSession(model.SerializeToString(), ct.TrainConfig(loss="mse", batch_size=2))
    session.train_step(np.ones((2, 3)), np.zeros((2, 3)))
    session.export(tmp_path / "y.onnx")
    np.testing.assert_allclose(
        ct.InferenceSession(tmp_path / "y.onnx")(np.ones((2, 3), np.float32)),
        session.predict(np.ones((2, 3), np.float32)),
        rtol=1e-6,
    )


@pytest.mark.parametrize(
    "said",
    [
        {"min_gram_length": -(2**31)},
        {"max_gram_length": 2**62},
        {"max_skip_count": 2**63 - 1},
        {"ngram_counts": [0, 2**62]},
    ],
)
def test_ngrams_are_counted_within_the_row(said: dict[str, Any]) -> None:
    """Whatever lengths and distances a file allows, a row has no longer ones."""
    attributes: dict[str, Any] = {
        "mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "max_skip_count": 0,
        "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "pool_int64s": [5, 6, 5, 6],
    } | said  # fmt: skip
    (counts,) = count_ngrams([np.array([5, 6, 5], np.int32)], attributes)
    assert 3 <= counts.sum() <= 4 and counts[0] == 2 * ("ngram_counts" not in said)
