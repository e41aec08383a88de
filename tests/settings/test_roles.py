"""What trainable="all" trains is decided by gradient and role, for initializers as for Constant nodes; check lists both."""

from __future__ import annotations

import json
from pathlib import Path

import networks
import numpy as np
import pytest
from networks import make
from onnx import TensorProto, helper, numpy_helper

import circle_train as ct
from circle_train.cli.main import main
from circle_train.ir import Graph

RNG = np.random.default_rng(4)
SIZE = 4


def normal(*shape: int) -> np.ndarray:
    return RNG.normal(size=shape).astype(np.float32)


def sines(length: int, width: int) -> np.ndarray:
    angle = np.arange(length)[:, None] / 10 ** np.arange(width // 2)
    return np.concatenate([np.sin(angle), np.cos(angle)], 1).astype(np.float32)


NODES = {
    "left": ("MatMul", ["left", "h"], normal(SIZE, SIZE)),
    "threshold": ("Max", ["h", "threshold"], normal(SIZE)),
    "ceiling": ("Min", ["h", "ceiling"], normal(SIZE, SIZE)),
    "exponent": ("Pow", ["h", "exponent"], 1 + np.abs(normal(SIZE))),
    "bias": ("Add", ["h", "bias"], normal(SIZE)),
    "places": ("Add", ["places", "h"], normal(SIZE, SIZE)),
    "mask": ("Add", ["h", "mask"], np.triu(np.full((SIZE, SIZE), -1e9, np.float32), 1)),
    "visible": ("Mul", ["h", "visible"], np.tril(np.ones((SIZE, SIZE), np.float32))),
    "table": ("Add", ["h", "table"], sines(SIZE, SIZE)),
    "half": ("Mul", ["h", "half"], np.array([0.5], np.float32)),
}
"""Behind a first layer, by the name of the constant."""
LEARNED = {"left", "threshold", "ceiling", "exponent", "bias", "places"}


def model_of(names: list[str], as_nodes: bool, prepared: bool = False) -> bytes:
    """(x - mean)·scale, MatMul, then one operator for each constant, which lies in an initializer or in a node."""
    values = {"w": normal(SIZE, SIZE)} | {name: NODES[name][2] for name in names}
    nodes, x = [], "x"
    if prepared:
        values |= {"mean": normal(SIZE), "scale": normal(SIZE)}
        nodes += [
            helper.make_node("Sub", ["x", "mean"], ["s"]),
            helper.make_node("Mul", ["s", "scale"], ["p"]),
        ]
        x = "p"
    nodes.append(helper.make_node("MatMul", [x, "w"], ["h0"]))
    for i, name in enumerate(names):
        op, inputs, _ = NODES[name]
        nodes.append(helper.make_node(op, [f"h{i}" if n == "h" else n for n in inputs], [f"h{i + 1}"]))
    made = [numpy_helper.from_array(value, name) for name, value in values.items()]
    if as_nodes:
        nodes[:0] = [helper.make_node("Constant", [], [t.name], value=t) for t in made if t.name != "w"]
        made = [t for t in made if t.name == "w"]
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", SIZE, SIZE])
        for name in ("x", f"h{len(names)}")
    ]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], made)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


def trained(model: bytes | ct.Model, trainable: object = "all") -> set[str]:
    config = ct.TrainConfig(loss="mse", optimizer="sgd", batch_size=2, trainable=trainable)  # type: ignore[arg-type]
    return {parameter.name for parameter in ct.TrainSession(model, config).program.trained}


@pytest.mark.parametrize("name", NODES)
def test_a_constant_is_trained_if_its_role_is_that_of_a_parameter(name: str) -> None:
    assert trained(model_of([name], as_nodes=False)) == {"w"} | ({name} & LEARNED)


@pytest.mark.parametrize("name", NODES)
def test_any_constant_is_trained_if_it_is_named(name: str) -> None:
    assert trained(model_of([name], as_nodes=False), [name]) == {name}


def test_what_prepares_the_input_is_not_trained() -> None:
    assert trained(model_of(["bias"], as_nodes=False, prepared=True)) == {"w", "bias"}


def test_a_model_of_nothing_but_a_scale_trains_it() -> None:
    node = helper.make_node("Mul", ["x", "scale"], ["y"])
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 3]) for name in "xy"]
    graph = helper.make_graph([node], "g", ends[:1], ends[1:], [numpy_helper.from_array(normal(3), "scale")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert trained(model.SerializeToString()) == {"scale"}


def test_constants_without_numbers_are_left_alone() -> None:
    x = networks.new_input("x", 2, 3)
    graph = Graph("empty", [x])
    hidden = graph.emit(make("FULLY_CONNECTED"), x, networks.weight("w", 4, 3), None)
    nothing = graph.emit(make("FULLY_CONNECTED"), hidden, networks.weight("none", 0, 4), None)
    summed = graph.emit(make("ADD"), nothing, networks.weight("nothing", 2, 0))
    model = networks.finish(graph, graph.emit(make("CONCATENATION", axis=-1), hidden, summed))
    assert "nothing" not in trained(model)


def test_masks_and_tables_are_left_alone_wherever_the_file_keeps_them() -> None:
    names = ["mask", "table", "half"]
    assert trained(model_of(names, as_nodes=True)) == trained(model_of(names, as_nodes=False)) == {"w"}


def test_check_lists_what_is_trained_and_what_must_be_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "net.onnx"
    path.write_bytes(model_of(["bias", "mask", "table", "half"], as_nodes=False, prepared=True))
    assert main(["check", str(path), "--batch-size", "2"]) == 0
    shown = capsys.readouterr().out
    assert "trained by 'all': w, bias" in shown
    for name, reason in {"mean": "prepares the input", "mask": "a mask", "table": "a table of sines"}.items():
        assert any(line.startswith(name) and reason in line for line in shown.splitlines())
    assert main(["check", str(path), "--batch-size", "2", "--json"]) == 0
    constants = {entry["name"]: entry for entry in json.loads(capsys.readouterr().out)["constants"]}
    assert constants["w"]["trained"] and constants["half"]["why_not"] == "one number of a formula"
