"""Nothing of Python's or numpy's reaches a user: damage and nonsense become errors of ours that say where."""

from __future__ import annotations

import errno
import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from networks import finish, make, mlp, new_input, weight

import circle_train as ct
from circle_train.backends.base import Reference
from circle_train.errors import FOREIGN, refusing, shown
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.passes.fold import infer_node
from circle_train.runtime.executor import Executor, execute_once
from circle_train.settings.as_json import from_dict
from circle_train.settings.onert_json import from_onert_json

# Operators


@dataclass(frozen=True)
class Odd(type(make("ABS"))):  # type: ignore[misc]
    """An operator that stumbles over its inputs."""

    stumbles: tuple[type[Exception], ...] = ()

    def infer(self, x: TensorType) -> TensorType:
        if self.stumbles and self.stumbles[0] is not MemoryError:
            raise self.stumbles[0]("as Python puts it")
        return TensorType(x.dtype, x.shape)

    def forward(self, x: np.ndarray) -> np.ndarray:
        raise self.stumbles[0]("as Python puts it")


def odd_node(kind: type[Exception]) -> Node:
    x = Tensor("x", TensorType(DType.FLOAT32, (2, 3)))
    return Node(Odd(stumbles=(kind,)), [x], [Tensor("y", x.type)], 7)


@pytest.mark.parametrize("kind", [IndexError, RecursionError, ZeroDivisionError, AssertionError, TypeError])
def test_what_a_type_rule_stumbles_over_is_said_of_its_node(kind: type[Exception]) -> None:
    with pytest.raises(ct.ModelError, match=r"ABS 'y' \(operator 7\): its inputs \(float32 2×3\) do not fit"):
        infer_node(odd_node(kind))


def test_what_the_reference_stumbles_over_is_said_of_its_node() -> None:
    node = odd_node(MemoryError)
    x, y = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32)
    with pytest.raises(ct.ModelError, match=r"ABS 'y' \(operator 7\): .* as Python puts it"):
        Reference().bind(node, [x], [y])()
    with pytest.raises(ct.ModelError, match=r"ABS 'y' \(operator 7\): .* as Python puts it"):
        execute_once([node], {node.inputs[0]: x})


def test_a_result_that_does_not_fit_its_tensor_is_said_of_its_node() -> None:
    x = Tensor("x", TensorType(DType.FLOAT32, (2, 3)))
    node = Node(make("ABS"), [x], [Tensor("y", TensorType(DType.FLOAT32, (4,)))], 2)
    with pytest.raises(ct.ModelError, match=r"ABS 'y' \(operator 2\): .* cannot be computed"):
        Reference().bind(node, [np.zeros((2, 3))], [np.zeros(4)])()


def test_our_own_errors_of_a_type_rule_name_their_node_once() -> None:
    graph = Graph("bad", [new_input("x", 1, 4)])
    model = finish(
        graph, graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 3, 4), None, name="fc")
    )
    graph.inputs[0].type = graph.inputs[0].type.with_shape((1, 5))
    graph.inputs[0].shape_signature = (-1, 5)
    with pytest.raises(ct.ModelError, match=r"^FULLY_CONNECTED 'fc' \(operator 0\): (?!FULLY)"):
        ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=1), backend="reference").prepare()


class Uncopied(np.ndarray):
    """Results that are there, beside which nothing else fits."""

    def copy(self, order: Any = "C") -> Any:
        raise MemoryError


def test_results_that_there_is_no_memory_to_copy_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = Graph("plain", [new_input("x", 1, 4)])
    model = finish(graph, graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 3, 4), None))
    x = np.zeros((1, 4), np.float32)
    train = ct.TrainSession(model, ct.TrainConfig(loss="mse", batch_size=1), backend="reference")
    infer = ct.InferenceSession(model)
    calls = [partial(infer.run, None, {"x": x}), partial(train.predict, x), partial(train.eval_step, x)]
    for call in calls:
        call()
    looked_up = Executor.__getitem__
    monkeypatch.setattr(Executor, "__getitem__", lambda it, tensor: looked_up(it, tensor).view(Uncopied))
    for call in calls:
        with pytest.raises(ct.ModelError, match="needs 12 bytes of memory, which this machine does not have"):
            call()


@pytest.mark.parametrize(
    ("settings", "nbytes"),
    [({"loss": ct.losses.MeanSquaredError(reduction="none")}, 8), ({"extra_outputs": ["wide"]}, 40)],
)
def test_other_results_that_there_is_no_memory_to_copy_are_refused(
    settings: Any, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = Graph("wide", [new_input("x", 1, 4)])
    wide = graph.emit(make("FULLY_CONNECTED"), graph.inputs[0], weight("w", 5, 4), None, name="wide")
    model = finish(graph, graph.emit(make("FULLY_CONNECTED"), wide, weight("v", 1, 5), None))
    session = ct.TrainSession(
        model, ct.TrainConfig(**{"loss": "mse", "batch_size": 2, **settings}), backend="reference"
    )
    x, y = np.zeros((2, 4), np.float32), np.zeros((2, 1), np.float32)
    session.train_step(x, y)
    looked_up = Executor.__getitem__
    monkeypatch.setattr(Executor, "__getitem__", lambda it, tensor: looked_up(it, tensor).view(Uncopied))
    with pytest.raises(ct.ModelError, match=f"needs {nbytes} bytes of memory"):
        session.train_step(x, y)


def test_sizes_beyond_all_bounds_are_refused() -> None:
    huge = TensorType(DType.FLOAT32, (1 << 30, 1 << 30))
    with pytest.raises(ct.ModelError, match=r"ABS: its result would be .* at most"):
        make("ABS").infer_types([huge])


def test_a_foreign_message_is_quoted_in_one_line_of_bounded_length() -> None:
    assert shown(ValueError("a\nb" * 9000)).startswith("a ba b") and len(shown(ValueError("ab" * 9000))) < 400
    assert shown(MemoryError()) == "MemoryError"
    for kind in FOREIGN:
        with (
            pytest.raises(ct.DataError, match=r"here contradicts itself .*; go"),
            refusing(ct.DataError, "here", "go"),
        ):
            raise kind("x")


# Settings

NONSENSE: list[dict[str, Any]] = [
    {"optimizer": {"type": "sgd", "momentum": None}},
    {"optimizer": {"type": "sgd", "learning_rate": 10**400}},
    {"optimizer": {"type": "sgd", "learning_rate": True}},
    {"optimizer": {"type": "sgd", "nesterov": "yes", "momentum": 0.5}},
    {"optimizer": {"type": "adam", "beta_1": 0.9999999999}},
    {"optimizer": {"type": "adam", "clip_norm": [1]}},
    {"optimizer": {"type": "adam", "groups": "head"}},
    {"optimizer": {"type": "adam", "groups": [{"type": "parameters", "parameters": [3]}]}},
    {"optimizer": {"type": "adam", "groups": [{"type": "parameters", "parameters": 3}]}},
    {"optimizer": {"type": "adam", "groups": [{"type": "parameters", "parameters": "a", "multiplier": "x"}]}},
    {"optimizer": {"type": "adam", "learning_rate": {"type": "cosine", "total_steps": "ten"}}},
    {"optimizer": {"type": "adam", "learning_rate": {"type": "step", "step_size": float("nan")}}},
    {"loss": {"type": "huber", "delta": "wide"}},
    {"loss": {"type": "sum", "terms": []}},
    {"loss": {"type": "sum", "terms": [1, 2]}},
    {"loss": {"type": "sum", "terms": [["x", "mse"]]}},
    {"loss": {"type": "categorical_crossentropy", "class_weights": ["a"]}},
    {"loss": {"type": "categorical_crossentropy", "class_weights": 3}},
    {"loss": {"type": "categorical_crossentropy", "class_weights": {"x": 1}}},
    {"loss": {"type": "categorical_crossentropy", "label_smoothing": "some"}},
    {"loss": {"type": "traced", "graph": {"inputs": 3}}},
    {"loss": {"type": "mse", "reduction": ["mean"]}},
    {"metrics": 5},
    {"metrics": [{"type": "top_k_categorical_accuracy", "k": "all"}]},
    {"trainable": {"last": 3}},
    {"trainable": 2.5},
    {"trainable": "last:²"},
    {"loss_weights": "heavy"},
    {"loss_weights": ["heavy"]},
    {"epochs": "many"},
    {"dropout": "no"},
    {"memory_budget": [1]},
    {"memory_budget": float("nan")},
    {"batch_norm": []},
    {"frozen": 1},
]


@pytest.mark.parametrize("settings", NONSENSE, ids=json.dumps)
def test_settings_of_the_wrong_kind_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ct.ConfigError):
        from_dict(settings)


@pytest.mark.parametrize("epochs", [[], {}, "x"])
def test_onert_settings_of_the_wrong_kind_are_refused(epochs: Any) -> None:
    with pytest.raises(ct.ConfigError):
        from_onert_json(
            {
                "optimizer": {"type": "sgd", "args": {}},
                "loss": {"type": "mse"},
                "batchSize": 1,
                "epochs": epochs,
            }
        )


def test_numbers_of_any_library_are_numbers() -> None:
    rate = ct.schedules.Cosine(learning_rate=np.float32(0.1), total_steps=np.int64(5), warmup_steps=1.0)
    assert ct.optimizers.SGD(rate, momentum=np.array(0.5)).slots == ("momentum",)


def test_a_schedule_whose_factor_overflows_is_refused_when_it_does() -> None:
    optimizer = ct.optimizers.SGD(ct.schedules.Step(gamma=1e300))
    assert optimizer.factor(1) == 1e300
    with pytest.raises(ct.ConfigError, match="after 2 updates is too large"):
        optimizer.factor(2)


# Files


def test_nesting_without_end_in_metadata_is_refused(tmp_path: Path) -> None:
    session = ct.TrainSession(mlp(), ct.TrainConfig(loss="mse", batch_size=4), backend="reference")
    path = tmp_path / "c.safetensors"
    session.save_checkpoint(path)
    path.write_bytes(path.read_bytes().replace(b'{"format"', b'{"fit":[[]],"format"', 1))
    with pytest.raises(ct.CheckpointError):
        session.load_checkpoint(path)


@pytest.mark.parametrize("what", ["text", "closed", "number", "nothing", "a number's reader", "disk"])
def test_what_is_no_model_is_named(what: str) -> None:
    path = Path(__file__).parent / "data" / "mlp.circle"

    class Reader:
        def read(self) -> object:
            if what == "disk":
                raise OSError(errno.EIO, "no such sector")
            return 7

    with open(path, encoding="utf-8") as text, open(path, "rb") as closed:
        closed.close()
        given = {"text": text, "closed": closed, "number": 3, "nothing": None}.get(what, Reader())
        with pytest.raises(ct.ModelError, match="expected a path, bytes, or a file opened with 'rb'"):
            ct.load(given)  # type: ignore[arg-type]
