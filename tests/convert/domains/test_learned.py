"""Operators of classical machine learning, as scikit-learn's exporter writes them, against onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import circle_train as ct
from circle_train.ir.tensor_type import Array

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
helper = onnx.helper
RNG = np.random.default_rng(0)
X = RNG.normal(size=(7, 5)).astype(np.float32)
GAPS = np.where(RNG.random((7, 5)) < 0.3, np.float32(np.nan), X)
WHOLE = RNG.integers(0, 5, (7, 2))


def numbers(count: int) -> list[float]:
    return list(map(float, RNG.normal(size=count)))


def model_of(operator: str, attributes: dict[str, Any], inputs: list[Array], outputs: int) -> bytes:
    names = [f"y{i}" for i in range(outputs)]
    infos = [
        helper.make_tensor_value_info(f"x{i}", helper.np_dtype_to_tensor_dtype(x.dtype), ["N", *x.shape[1:]])
        for i, x in enumerate(inputs)
    ]
    node = helper.make_node(operator, [info.name for info in infos], names, domain="ai.onnx.ml", **attributes)
    graph = helper.make_graph([node], "net", infos, [onnx.ValueInfoProto(name=name) for name in names])
    opsets = [
        helper.make_opsetid("", 17),
        helper.make_opsetid("ai.onnx.ml", 5 if operator == "TreeEnsemble" else 3),
    ]
    return bytes(helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString())


def compared(operator: str, attributes: dict[str, Any], *inputs: Array, outputs: int = 1) -> None:
    data = model_of(operator, attributes, list(inputs), outputs)
    feeds = {f"x{i}": x for i, x in enumerate(inputs)}
    theirs = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"]).run(None, feeds)
    for ours, wanted in zip(ct.InferenceSession(data).run(None, feeds), theirs, strict=True):
        assert ours.shape == wanted.shape and (operator != "TreeEnsemble" or ours.dtype == wanted.dtype)
        np.testing.assert_allclose(ours, wanted, atol=1e-5)


def forest(branch: str = "BRANCH_LEQ") -> tuple[dict[str, Any], list[tuple[int, int]]]:
    """Four trees of several depths, and their leaves."""
    columns: dict[str, Any] = {
        f"nodes_{name}": []
        for name in ("treeids", "nodeids", "modes", "truenodeids", "falsenodeids", "featureids", "values")
    }
    leaves = []

    def grow(tree: int, depth: int, first: int) -> int:
        place, number = len(columns["nodes_modes"]), len(columns["nodes_modes"]) - first
        for column in columns.values():
            column.append(0)
        columns["nodes_treeids"][place], columns["nodes_nodeids"][place] = tree, number
        columns["nodes_values"][place] = float(RNG.normal())
        if not depth or RNG.random() < 0.15:
            columns["nodes_modes"][place] = "LEAF"
            leaves.append((tree, number))
            return number
        columns["nodes_modes"][place], columns["nodes_featureids"][place] = branch, int(RNG.integers(5))
        for name in ("nodes_truenodeids", "nodes_falsenodeids"):
            columns[name][place] = grow(tree, depth - 1, first)
        return number

    for tree in range(4):
        grow(tree, 4, len(columns["nodes_modes"]))
    return columns, leaves


def said(kind: str, leaves: list[tuple[int, int]], ids: list[int], weights: Array) -> dict[str, Any]:
    return {
        f"{kind}_treeids": [tree for tree, _ in leaves], f"{kind}_nodeids": [node for _, node in leaves],
        f"{kind}_ids": ids, f"{kind}_weights": list(map(float, weights)),
    }  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_linear_models(transform: str) -> None:
    shared = {"post_transform": transform}
    compared(
        "LinearRegressor", {"coefficients": numbers(10), "intercepts": [0.1, 0.2], "targets": 2, **shared}, X
    )
    for classes, rows in (([3, 5, 9], 3), ([0, 1], 2), ([4, 7], 1)):
        attributes = {
            "coefficients": numbers(5 * rows),
            "intercepts": numbers(rows),
            "classlabels_ints": classes,
        }
        compared("LinearClassifier", attributes | shared, X, outputs=2)


@pytest.mark.parametrize("kernel", ["LINEAR", "RBF", "POLY", "SIGMOID"])
def test_support_vectors(kernel: str) -> None:
    shared = {"kernel_type": kernel, "kernel_params": [0.3, 0.1, 3.0]}
    for vectors in ([3, 4], [3, 4, 2]):
        classes, count = len(vectors), sum(vectors)
        attributes = {
            "vectors_per_class": vectors, "support_vectors": numbers(5 * count), "rho": numbers(classes * (classes - 1) // 2),
            "coefficients": numbers((classes - 1) * count), "classlabels_ints": list(range(classes)),
        }  # fmt: skip
        compared("SVMClassifier", attributes | shared, X, outputs=2)
    regression = {"n_supports": 4, "support_vectors": numbers(20), "coefficients": numbers(4), "rho": [0.3]}
    compared("SVMRegressor", regression | shared, X)


@pytest.mark.parametrize("branch", ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GT"])
@pytest.mark.parametrize("how", ["SUM", "AVERAGE", "MIN", "MAX"])
def test_regression_by_trees(branch: str, how: str) -> None:
    nodes, leaves = forest(branch)
    leaf = said("target", leaves, RNG.integers(0, 2, len(leaves)).tolist(), RNG.normal(size=len(leaves)))
    compared("TreeEnsembleRegressor", {**nodes, **leaf, "n_targets": 2, "aggregate_function": how}, X)


def ensemble(kind: type, modes: list[int]) -> dict[str, Any]:
    """Four trees of the newer operator: questions of these kinds, leaves that have numbers of their own."""
    nodes: list[list[Any]] = []
    leaves: list[int] = []

    def grow(depth: int) -> tuple[int, int]:
        if not depth or (depth < 4 and RNG.random() < 0.15):
            leaves.append(int(RNG.integers(0, 2)))
            return len(leaves) - 1, 1
        place = len(nodes)
        nodes.append([])
        kept, left = grow(depth - 1), grow(depth - 1)
        nodes[place] = [
            RNG.integers(5),
            RNG.choice(modes),
            RNG.integers(-1, 2),
            *kept,
            *left,
            RNG.integers(2),
        ]
        return place, 0

    roots = [grow(4)[0] for _ in range(4)]
    names = "featureids", "modes", "splits", "truenodeids", "trueleafs", "falsenodeids", "falseleafs", GAP
    made: dict[str, Any] = {f"nodes_{name}": [int(node[i]) for node in nodes] for i, name in enumerate(names)}
    made |= {"tree_roots": roots, "leaf_targetids": leaves, "n_targets": 2}
    sets = [[*RNG.permutation(5)[: RNG.integers(1, 4)] - 2, np.nan] for node in nodes if node[1] == MEMBER]
    tables = {"nodes_splits": made["nodes_splits"], "leaf_weights": RNG.normal(size=len(leaves))}
    tables |= {"membership_values": np.concatenate(sets)} if sets else {}
    made |= {name: onnx.numpy_helper.from_array(np.asarray(values, kind)) for name, values in tables.items()}
    return made | {"nodes_modes": onnx.numpy_helper.from_array(np.array(made["nodes_modes"], np.uint8))}


GAP, MEMBER = "missing_value_tracks_true", 6


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("modes", [[0], [1], [3], [4, 0], [MEMBER], [MEMBER, 0, 5]])
@pytest.mark.parametrize("how", range(4))
def test_ensembles_of_trees(how: int, modes: list[int], kind: type) -> None:
    """Also where nodes ask in several ways, and for membership in sets."""
    x = np.where(RNG.random((40, 5)) < 0.1, np.nan, RNG.integers(-2, 3, (40, 5))).astype(kind)
    compared("TreeEnsemble", ensemble(kind, modes) | {"aggregate_function": how}, x)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
def test_classes_by_trees(transform: str) -> None:
    nodes, leaves = forest()
    weights = RNG.normal(size=len(leaves))
    several = said("class", leaves, RNG.integers(0, 3, len(leaves)).tolist(), weights)
    attributes = {**nodes, **several, "classlabels_int64s": [2, 4, 6], "post_transform": transform}
    compared("TreeEnsembleClassifier", attributes, X, outputs=2)
    for one in (weights, np.abs(weights) / 3):
        attributes |= {**said("class", leaves, [0] * len(leaves), one), "classlabels_int64s": [0, 1]}
        compared("TreeEnsembleClassifier", attributes, X, outputs=2)


@pytest.mark.parametrize("norm", ["MAX", "L1", "L2"])
def test_normalizer(norm: str) -> None:
    compared("Normalizer", {"norm": norm}, X)


def test_features() -> None:
    compared("Scaler", {"offset": numbers(5), "scale": numbers(5)}, X)
    compared("Binarizer", {"threshold": 0.2}, X)
    compared("Imputer", {"imputed_value_floats": numbers(5), "replaced_value_float": float("nan")}, GAPS)
    compared("FeatureVectorizer", {"inputdimensions": [5, 5]}, X, X)
    compared("LabelEncoder", {"keys_int64s": [1, 3], "values_int64s": [10, 30], "default_int64": -7}, WHOLE)
    compared(
        "LabelEncoder", {"keys_int64s": [1, 3], "values_floats": [1.5, 3.5], "default_float": 0.5}, WHOLE
    )
    compared("OneHotEncoder", {"cats_int64s": [0, 2, 4], "zeros": 1}, WHOLE)


def test_names_of_classes_become_their_places_and_that_is_said() -> None:
    attributes = {
        "coefficients": numbers(15),
        "intercepts": numbers(3),
        "classlabels_strings": ["cat", "dog", "owl"],
    }
    with pytest.warns(
        UserWarning, match="gives the places of classes instead of their names.*0 cat, 1 dog, 2 owl"
    ):
        model = ct.load(model_of("LinearClassifier", attributes, [X], 2))
    place, scores = ct.InferenceSession(model)(X)
    np.testing.assert_array_equal(place, scores.argmax(1))


def test_a_classifier_of_scikit_learn_goes_on_learning() -> None:
    attributes = {"coefficients": numbers(15), "intercepts": numbers(3), "classlabels_ints": [0, 1, 2]}
    model = ct.load(model_of("LinearClassifier", attributes | {"post_transform": "SOFTMAX"}, [X], 2))
    config = ct.TrainConfig(loss="sparse_categorical_crossentropy", batch_size=7, outputs=["y1"])
    session, y = ct.TrainSession(model, config.replace(optimizer=ct.optimizers.Adam(0.1))), np.arange(7) % 3
    losses = [session.train_step(X, y).loss for _ in range(30)]
    assert losses[-1] < losses[0] / 2


def test_an_untrained_one_goes_back_into_onnx(tmp_path: Path) -> None:
    attributes = {"coefficients": numbers(15), "intercepts": numbers(3), "classlabels_ints": [0, 1, 2]}
    data = model_of("LinearClassifier", attributes, [X], 2)
    config = ct.TrainConfig(loss="mse", trainable="none", outputs=["y1"])
    ct.TrainSession(ct.load(data), config).export(tmp_path / "out.onnx")
    np.testing.assert_array_equal(*(ct.InferenceSession(m)(X)[1] for m in (data, tmp_path / "out.onnx")))


@pytest.mark.parametrize(
    ("signed", "narrow", "low", "high"), [(1, 0, -8, 7), (1, 1, -7, 7), (0, 0, 0, 15), (0, 1, 0, 14)]
)
def test_brevitas_rounding(signed: int, narrow: int, low: int, high: int) -> None:
    values = {"scale": np.float32(0.25), "zero": np.float32(1), "bits": np.float32(4)}
    given = [onnx.numpy_helper.from_array(np.array(value), name) for name, value in values.items()]
    node = helper.make_node(
        "Quant", ["x", *values], ["y"], domain="onnx.brevitas", signed=signed, narrow=narrow
    )
    infos = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["N", 5]) for name in "xy"]
    graph = helper.make_graph([node], "net", infos[:1], infos[1:], given)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("onnx.brevitas", 1)]
    found = ct.InferenceSession(helper.make_model(graph, opset_imports=opsets))(X * 2)
    np.testing.assert_allclose(found, (np.round(np.clip(X * 8 + 1, low, high)) - 1) / 4)
