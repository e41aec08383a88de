"""Weights of an inference session lie as its products read them: the same bits, made once, gone with their programs."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from networks import finish, make, new_input, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.native import Native
from circle_train.ir import Graph
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.attributes import Padding

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")


def products() -> Model:
    """A convolution of one place, one that strides, and a product of many rows."""
    graph = Graph("net", [new_input("x", 1, 9, 9, 16)])
    one = make("CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1)
    two = make("CONV_2D", padding=Padding.SAME, stride_h=2, stride_w=2)
    x = graph.emit(one, graph.inputs[0], weight("w0", 40, 1, 1, 16), weight("b0", 40))
    x = graph.emit(two, x, weight("w1", 24, 3, 3, 40), weight("b1", 24))
    many = make("FULLY_CONNECTED", keep_num_dims=True)
    return finish(graph, graph.emit(many, x, weight("w2", 33, 24), weight("b2", 33)))


def images(count: int) -> Array:
    return np.random.default_rng(count).normal(size=(count, 9, 9, 16)).astype(np.float32)


def kept(session: ct.InferenceSession) -> int:
    """How many weights lie anew."""
    assert isinstance(session.backend, Native) and session.backend._panels is not None
    gc.collect()
    return len(session.backend._panels._made)


def without_panels(model: ct.Model) -> ct.InferenceSession:
    """One that brings no weights into another order."""
    session = ct.InferenceSession(model, threads=2)
    session.backend = Native(2)
    return session


def test_results_are_the_same_bits() -> None:
    session = ct.InferenceSession(products(), threads=2)
    found = session(images(3))
    assert kept(session) == 3
    assert without_panels(products())(images(3)).tobytes() == found.tobytes()


def test_programs_of_several_shapes_share_them_and_the_last_lets_them_go() -> None:
    session = ct.InferenceSession(products(), threads=1)
    session(images(1)), session(images(4))
    assert kept(session) == 3
    session._executors.clear()
    assert kept(session) == 0


@pytest.mark.parametrize("height", [4, 5, 9])
def test_points_of_few_tiles_are_made_once(height: int) -> None:
    """Winograd's, where the picture is small; another size of the same weights is convolved in its own way."""
    graph = Graph("small", [new_input("x", 1, height, height, 32)])
    same = make("CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1)
    model = finish(graph, graph.emit(same, graph.inputs[0], weight("w", 40, 3, 3, 32), weight("b", 40)))
    x = np.random.default_rng(0).normal(size=(4, height, height, 32)).astype(np.float32)
    session = ct.InferenceSession(model, threads=2)
    few, many = session(x[:1]), session(x)
    assert kept(session) == 1
    plain = without_panels(model)
    assert plain(x[:1]).tobytes() == few.tobytes() == many[:1].tobytes()
    assert plain(x).tobytes() == many.tobytes()


def test_weights_that_are_trained_are_read_where_they_lie() -> None:
    """What a training session foresees follows its steps."""
    session = ct.TrainSession(products(), ct.TrainConfig("mse", "sgd", batch_size=2), threads=1)
    before = session.predict(images(2))
    session.train_step(images(2), np.ones_like(before))
    assert np.abs(session.predict(images(2)) - before).max() > 0


def test_pictures_of_thousands_of_places_bring_their_few_weights_along() -> None:
    """Beside so long a product the order of its weights is no work."""
    graph = Graph("wide", [new_input("x", 1, 64, 64, 4)])
    one = make("CONV_2D", padding=Padding.SAME, stride_h=1, stride_w=1)
    model = finish(graph, graph.emit(one, graph.inputs[0], weight("w", 40, 1, 1, 4), weight("b", 40)))
    session = ct.InferenceSession(model, threads=1)
    session(np.zeros((1, 64, 64, 4), np.float32))
    assert kept(session) == 0
