"""Bfloat16 activations: rounding, half the memory, the same numbers from every engine, and gradients that stay close."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networks
import numpy as np
import pytest
from networks import make, weight

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native
from circle_train.backends.native.codes import Tier
from circle_train.backends.native.library import load
from circle_train.cli.main import main
from circle_train.errors import ConfigError
from circle_train.executor import Executor
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.base import Op
from circle_train.ops.bfloat16 import (
    Narrow,
    RoundedBatchMatMul,
    RoundedConv2D,
    RoundedFullyConnected,
    RoundToBfloat16,
    Widen,
    narrowed,
    rounded,
    widened,
)
from circle_train.ops.gradient import Gradient
from circle_train.train import compile as compiling
from circle_train.train.program import Mode
from circle_train.train.state import State

needs_native = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
RNG = np.random.default_rng(5)
IMAGES = RNG.normal(size=(8, 16, 16, 3)).astype(np.float32)
WORDS = RNG.normal(size=(8, 24, 32)).astype(np.float32)
LABELS = np.eye(5, dtype=np.float32)[np.arange(8) % 5]


def inverted_residual() -> Model:
    """A convolution of three channels, then one of every kind that knows bfloat16, with a residual and a pool."""
    graph = Graph("net", [networks.new_input("image", 1, 16, 16, 3)])

    def conv(x: Tensor, outputs: int, size: int, stride: int, act: Activation, name: str) -> Tensor:
        op = make(
            "CONV_2D", padding=Padding.SAME, stride_h=stride, stride_w=stride, fused_activation_function=act
        )
        return graph.emit(
            op,
            x,
            weight(f"{name}/w", outputs, size, size, x.shape[3]),
            weight(f"{name}/b", outputs),
            name=name,
        )

    first = conv(graph.inputs[0], 16, 3, 1, Activation.RELU6, "first")
    x = conv(first, 24, 1, 1, Activation.RELU6, "expand")
    op = make("DEPTHWISE_CONV_2D", padding=Padding.SAME, fused_activation_function=Activation.RELU6)
    x = graph.emit(op, x, weight("dw/w", 1, 3, 3, 24), weight("dw/b", 24), name="dw")
    x = graph.emit(make("ADD"), conv(x, 16, 1, 1, Activation.NONE, "project"), first, name="sum")
    x = conv(x, 32, 3, 2, Activation.RELU, "down")
    x = conv(x, 32, 3, 1, Activation.RELU, "same")
    pool = make("MAX_POOL_2D", padding=Padding.VALID, stride_h=2, stride_w=2, filter_height=2, filter_width=2)
    x = graph.emit(pool, x, name="pool")
    x = graph.emit(make("MEAN"), x, constant(np.array([1, 2], np.int32), "axes"), name="mean")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("fc/w", 5, 32), weight("fc/b", 5), name="fc")
    return networks.finish(graph, x)


def attention() -> Model:
    """One layer of self-attention with two heads, and a feed-forward part with GELU."""
    graph = Graph("attention", [networks.new_input("words", 1, 24, 32)])

    def dense(x: Tensor, outputs: int, name: str) -> Tensor:
        op = make("FULLY_CONNECTED", keep_num_dims=True)
        return graph.emit(
            op, x, weight(f"{name}/w", outputs, x.shape[-1]), weight(f"{name}/b", outputs), name=name
        )

    def moved(x: Tensor, shape: tuple[int, ...], order: tuple[int, ...], first: bool) -> Tensor:
        for is_reshape in (first, not first):
            if is_reshape:
                x = graph.emit(make("RESHAPE"), x, constant(np.array((-1, *shape), np.int32), "shape"))
            else:
                x = graph.emit(make("TRANSPOSE"), x, constant(np.array(order, np.int32), "perm"))
        return x

    words = graph.inputs[0]
    q, k, v = (moved(dense(words, 32, name), (24, 2, 16), (0, 2, 1, 3), True) for name in "qkv")
    scores = graph.emit(make("BATCH_MATMUL", adjoint_rhs=True), q, k, name="scores")
    weights = graph.emit(make("SOFTMAX", beta=0.25), scores, name="weights")
    mixed = graph.emit(make("BATCH_MATMUL"), weights, v, name="mixed")
    mixed = moved(mixed, (24, 32), (0, 2, 1, 3), False)
    x = graph.emit(make("ADD"), dense(mixed, 32, "out"), words, name="sum")
    x = dense(graph.emit(make("GELU"), dense(x, 64, "up"), name="gelu"), 32, "down")
    x = graph.emit(make("MEAN"), x, constant(np.array([1], np.int32), "axes"), name="mean")
    x = graph.emit(make("FULLY_CONNECTED"), x, weight("fc/w", 5, 32), weight("fc/b", 5), name="fc")
    return networks.finish(graph, x)


NETS = {"inverted_residual": (inverted_residual, IMAGES), "attention": (attention, WORDS)}
every_net = pytest.mark.parametrize("net", sorted(NETS))


def config_of(activations: str = "bfloat16", **settings: Any) -> ct.TrainConfig:
    loss = ct.losses.CategoricalCrossentropy(from_logits=True)
    settings = {"optimizer": ct.optimizers.SGD(0.05), "batch_size": 8, **settings}
    return ct.TrainConfig(loss, activations=activations, **settings)


def session_of(net: str, activations: str = "bfloat16", *, backend: str = "auto", threads: int | None = None,
               **settings: Any) -> ct.TrainSession:  # fmt: skip
    return ct.TrainSession(
        NETS[net][0](), config_of(activations, **settings), backend=backend, threads=threads
    )


def gradients_of(session: ct.TrainSession, net: str) -> dict[str, Array]:
    session.train_step(NETS[net][1], LABELS, update=False, accumulate=True)
    return {name: array.copy() for name, array in session.gradients.items()}


def distance(found: dict[str, Array], expected: dict[str, Array]) -> float:
    """Of two sets of gradients, relative to their length."""
    difference = sum(float(np.sum((found[name] - expected[name]) ** 2)) for name in expected)
    return float(np.sqrt(difference / sum(float(np.sum(g**2)) for g in expected.values())))


# Rounding


def test_rounding_is_to_nearest_even() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    bits = RNG.integers(0, 1 << 32, 200_000, dtype=np.uint32)
    halfway = (RNG.integers(0, 1 << 16, 50_000, dtype=np.uint32) << 16) | 0x8000
    x = np.concatenate([bits, halfway]).view(np.float32)
    x = x[(np.abs(x) >= 2.0**-126) | (x == 0)]
    with np.errstate(all="ignore"):
        expected = x.astype(ml_dtypes.bfloat16)
    ours = narrowed(x).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(np.isnan(ours), np.isnan(x))
    np.testing.assert_array_equal(ours[~np.isnan(x)].view(np.uint16), expected[~np.isnan(x)].view(np.uint16))


def test_subnormals_become_zero_and_keep_their_sign() -> None:
    tiny = np.array([1e-40, -1e-40], np.float32)
    assert rounded(tiny).tobytes() == np.array([0.0, -0.0], np.float32).tobytes()


SPECIAL = np.array(
    [np.nan, -np.nan, np.inf, -np.inf, 0, -0.0, 1e-40, 3.4e38, -3.4e38, 1.00390625], np.float32
)


@needs_native
@pytest.mark.parametrize("tier", list(Tier)[1:])
@pytest.mark.parametrize("size", [1, 3, 15, 16, 33, 4099])
def test_engine_rounds_alike(tier: Tier, size: int) -> None:
    engine = engine_of(tier)
    x = np.resize(np.concatenate([SPECIAL, RNG.normal(size=50).astype(np.float32)]), size).astype(np.float32)
    for op, given in ((RoundToBfloat16(), x), (Narrow(), x), (Widen(), narrowed(x))):
        expected = np.asarray(op.forward(given))
        out = np.zeros_like(expected)
        step = engine.bind(node_of(op, [given], out), [given], [out])
        assert step is not None
        step()
        assert out.tobytes() == expected.tobytes(), op


def engine_of(tier: Tier, threads: int = 3) -> Native:
    library = load()
    if library is None or tier > library.ct_best_tier():
        pytest.skip(f"this processor cannot run {tier.name}")
    return Native(threads, tier)


def node_of(op: Op, values: list[Array | None], out: Array) -> Node:
    tensors = [None if v is None else Tensor("x", TensorType(DType.of(v.dtype), v.shape)) for v in values]
    return Node(op, tensors, [Tensor("y", TensorType(DType.of(out.dtype), out.shape))])


# Products


def products() -> list[Any]:
    """Rounded operators and inputs of sizes that are multiples of nothing, and of what tiles are."""
    cases = []
    for rows, inputs, outputs in (
        (5, 7, 3),
        (50, 33, 40),
        (130, 64, 96),
        (300, 129, 17),
        (1, 1, 1),
        (13, 4000, 33),
    ):
        x, w, b = normal(rows, inputs), normal(outputs, inputs), normal(outputs)
        cases.append(pytest.param(RoundedFullyConnected(), (x, w, b), id=f"fc-{rows}x{inputs}x{outputs}"))
    for lhs in (False, True):
        for rhs in (False, True):
            x, w = normal(5, 2, 19, 34), normal(5, 2, 34, 21)
            x, w = np.swapaxes(x, 2, 3).copy() if lhs else x, np.swapaxes(w, 2, 3).copy() if rhs else w
            cases.append(pytest.param(RoundedBatchMatMul(lhs, rhs), (x, w), id=f"bmm-{lhs}-{rhs}"))
    for size, stride in ((1, 1), (3, 1), (3, 2), (1, 2)):
        op = RoundedConv2D(Padding.SAME, stride, stride, Activation.RELU6)
        given = (normal(2, 9, 8, 18), normal(35, size, size, 18), normal(35))
        cases.append(pytest.param(op, given, id=f"conv-{size}-{stride}"))
    return cases


def normal(*shape: int) -> Array:
    return np.random.default_rng([9, *shape]).normal(size=shape).astype(np.float32)


def all_of_product(engine: Native, op: Op, given: tuple[Array, ...]) -> list[tuple[Array, Array]]:
    """Forward and the gradients of x and w: what the engine computes, and what is specified."""
    y = op.compute(given)[0]
    dy = normal(*y.shape)
    nodes: list[tuple[Op, list[Array | None]]] = [(op, list(given))]
    for wrt, other in ((0, given[1]), (1, given[0])):
        name, kept = ("x", "w") if wrt == 0 else ("w", "x")
        needs = op.gradients[name].needs
        shapes = {f"{name}_shape": given[wrt].shape} if f"{name}_shape" in needs else {}
        type_ = TensorType(DType.FLOAT32, given[wrt].shape)
        nodes.append((Gradient(op, wrt, type_, (("dy", 1), (kept, 1)), shapes), [dy, other]))
    results = []
    for one, values in nodes:
        expected = np.ascontiguousarray(one.compute(values)[0])
        out = np.full_like(expected, np.nan)
        step = engine.bind(node_of(one, values, out), values, [out])
        assert step is not None, one
        step()
        results.append((out, expected))
    return results


@needs_native
@pytest.mark.parametrize(("op", "given"), products())
def test_products_are_of_rounded_operands(op: Op, given: tuple[Array, ...]) -> None:
    for found, expected in all_of_product(Native(3), op, given):
        assert np.abs(found - expected).max() <= 3e-6 * max(float(np.abs(expected).max()), 1.0) * 8


@needs_native
@pytest.mark.parametrize(("op", "given"), products())
def test_products_are_the_same_bits_with_and_without_the_instruction(
    op: Op, given: tuple[Array, ...]
) -> None:
    """AVX2 code has no instruction for them and multiplies in two steps; the weight gradients' sums are cut alike."""
    best, other = engine_of(Tier.AUTO), engine_of(Tier.AVX2)
    for (a, _), (b, _) in zip(
        all_of_product(best, op, given)[:2], all_of_product(other, op, given)[:2], strict=True
    ):
        assert a.tobytes() == b.tobytes()


@needs_native
def test_float32_would_not_pass() -> None:
    """The bound above tells rounded operands from others."""
    x, w, b = normal(50, 33), normal(40, 33), normal(40)
    exact = x @ w.T + b
    assert np.abs(RoundedFullyConnected().forward(x, w, b) - exact).max() > 1e-3


# Whole steps


@every_net
@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_storing_loses_nothing(net: str, backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only what is rounded already is narrowed: without that, the same bits."""
    stored = session_of(net, backend=backend)
    kinds = {t.dtype for t in stored.program.graph.all_tensors()}
    assert DType.UINT16 in kinds
    losses = [stored.train_step(NETS[net][1], LABELS).loss for _ in range(3)]
    monkeypatch.setattr(compiling, "store", lambda *_: None)
    plain = session_of(net, backend=backend)
    assert DType.UINT16 not in {t.dtype for t in plain.program.graph.all_tensors()}
    assert [plain.train_step(NETS[net][1], LABELS).loss for _ in range(3)] == losses
    for name, value in plain.parameters.items():
        assert value.tobytes() == stored.parameters[name].tobytes(), name


@needs_native
@every_net
def test_engine_computes_what_its_program_says(net: str) -> None:
    """The native program, joined nodes and all, once by its kernels and once in numpy, node by node."""
    found = []
    for engine in (Native(2), Reference()):
        state = None
        program = compiling.compile(NETS[net][0]().module.main, config_of(), Mode.TRAIN, 8, Native(2))
        state = State(program.parameters, 0.05)
        executor = Executor(program, state, engine)
        if isinstance(engine, Native):
            assert "reference" not in executor.engines.values()
        config_of().rule.set_scalars(state)
        before = {p.name: state.array(p.tensor).copy() for p in program.trained}
        executor.run({program.inputs[0]: NETS[net][1], program.targets[0]: LABELS})
        assert program.loss is not None
        moved = {p.name: state.array(p.tensor) - before[p.name] for p in program.trained}
        found.append((float(executor[program.loss].reshape(-1)[0]), moved))
    assert found[0][0] == pytest.approx(found[1][0], rel=1e-4)
    assert distance(found[0][1], found[1][1]) < 2e-3


@needs_native
@every_net
def test_engines_agree(net: str) -> None:
    native_, reference = (gradients_of(session_of(net, backend=b), net) for b in ("native", "reference"))
    assert distance(native_, reference) < 2e-3


@every_net
def test_gradients_stay_close_to_those_of_float32(net: str) -> None:
    exact, found = (gradients_of(session_of(net, kind), net) for kind in ("float32", "bfloat16"))
    assert 1e-4 < distance(found, exact) < 0.02


@needs_native
@every_net
def test_any_number_of_threads_gives_the_same_bits(net: str) -> None:
    first, *others = (session_of(net, threads=n) for n in (1, 2, 5))
    for session in (first, *others):
        for _ in range(2):
            session.train_step(NETS[net][1], LABELS)
    for session in others:
        for name, value in first.parameters.items():
            assert value.tobytes() == session.parameters[name].tobytes(), name


def deep() -> Model:
    """Twelve layers of one size: nearly all of the memory is what waits."""
    graph = Graph("deep", [networks.new_input("x", 1, 64)])
    gelu, x = make("GELU"), graph.inputs[0]
    for i in range(12):
        x = graph.emit(
            make("FULLY_CONNECTED"), x, weight(f"{i}/w", 64, 64), weight(f"{i}/b", 64), name=f"fc{i}"
        )
        x = graph.emit(gelu, x, name=f"gelu{i}")
    return networks.finish(graph, x)


@pytest.mark.parametrize("backend", ["reference", "auto"])
def test_what_waits_takes_half_the_memory(backend: str) -> None:
    def plan(activations: str) -> Any:
        config = ct.TrainConfig("mse", batch_size=256, activations=activations)
        return ct.TrainSession(deep(), config, backend=backend).plan

    halves, whole = plan("bfloat16"), plan("float32")
    assert halves.memory["arena"] < 0.6 * whole.memory["arena"]
    assert "wait for the backward pass" in str(halves)
    assert not whole.bfloat16


@every_net
def test_small_models_need_less_too(net: str) -> None:
    halves, whole = (session_of(net, kind).plan for kind in ("bfloat16", "float32"))
    assert halves.memory["arena"] < 0.9 * whole.memory["arena"]


@every_net
def test_evaluation_and_prediction_are_float32(net: str) -> None:
    halves, whole = (session_of(net, kind) for kind in ("bfloat16", "float32"))
    x = NETS[net][1]
    np.testing.assert_array_equal(halves.predict(x), whole.predict(x))
    assert halves.eval_step(x, LABELS).loss == whole.eval_step(x, LABELS).loss


@every_net
def test_training_learns(net: str) -> None:
    session = session_of(net, optimizer=ct.optimizers.Adam(5e-3))
    losses = [session.train_step(NETS[net][1], LABELS).loss for _ in range(40)]
    assert losses[-1] < 0.2 * losses[0]


def test_agrees_with_torch_rounding_at_the_same_places() -> None:
    """Two dense layers in torch with what is kept, and what is multiplied, rounded by torch's own bfloat16."""
    torch = pytest.importorskip("torch")
    model, x = networks.mlp(40, 1024, 5, softmax=False), normal(8, 40)
    session = ct.TrainSession(model, config_of())
    found = gradients_of_mlp(session, x)

    def rounded_(t: Any) -> Any:
        return t.bfloat16().float()

    w0, b0, w1, b1 = (
        torch.tensor(np.array(session.parameters[n])) for n in ("fc0/w", "fc0/b", "fc1/w", "fc1/b")
    )
    inner = rounded_(torch.relu(rounded_(torch.tensor(x)) @ rounded_(w0).T + b0))
    z = inner @ rounded_(w1).T + b1
    dz = (torch.softmax(z, 1) - torch.tensor(LABELS)) / 8
    dinner = (rounded_(dz) @ rounded_(w1)) * (inner > 0)
    expected = {
        "fc1/w": rounded_(dz).T @ inner,
        "fc1/b": dz.sum(0),
        "fc0/w": rounded_(dinner).T @ rounded_(torch.tensor(x)),
        "fc0/b": dinner.sum(0),
    }
    assert distance(found, {name: g.numpy() for name, g in expected.items()}) < 2e-4


def gradients_of_mlp(session: ct.TrainSession, x: Array) -> dict[str, Array]:
    session.train_step(x, LABELS, update=False, accumulate=True)
    return dict(session.gradients.items())


# Together with everything else


def test_gradient_accumulation_sums(tmp_path: Path) -> None:
    session = session_of("inverted_residual")
    once = gradients_of(session, "inverted_residual")
    session.train_step(IMAGES, LABELS, update=False, accumulate=True)
    for name, value in session.gradients.items():
        np.testing.assert_allclose(value, 2 * once[name], rtol=1e-6, atol=1e-7)


def test_fits_a_budget() -> None:
    whole = session_of("inverted_residual")
    budget = int(whole.plan.total_bytes - 0.3 * whole.plan.memory["arena"])
    thrifty = session_of("inverted_residual", memory_budget=budget)
    for _ in range(2):
        loss = thrifty.train_step(IMAGES, LABELS).loss
        assert loss == pytest.approx(whole.train_step(IMAGES, LABELS).loss, rel=1e-2)
    assert thrifty.plan.total_bytes <= budget
    assert thrifty.plan.parts > 1 or thrifty.plan.repeats


def test_a_frozen_beginning_stays_float32() -> None:
    """What no gradient passes through is computed as the file has it; its result waits as bfloat16."""
    halves, whole = (
        session_of("inverted_residual", kind, trainable=("last", 4)) for kind in ("bfloat16", "float32")
    )
    assert {type(n.op).__name__ for n in halves.program.operators[:5]} & {"RoundedConv2D"} == set()
    exact = gradients_of(whole, "inverted_residual")
    assert distance(gradients_of(halves, "inverted_residual"), exact) < 0.02


def test_training_resumes_from_a_checkpoint(tmp_path: Path) -> None:
    session = session_of("inverted_residual", optimizer="adam")
    session.train_step(IMAGES, LABELS)
    session.save_checkpoint(tmp_path / "c.safetensors")
    again = session_of("inverted_residual", optimizer="adam")
    again.load_checkpoint(tmp_path / "c.safetensors")
    assert session.train_step(IMAGES, LABELS).loss == again.train_step(IMAGES, LABELS).loss
    for name, value in session.parameters.items():
        assert value.tobytes() == again.parameters[name].tobytes()


def test_the_setting_is_part_of_circleplus(tmp_path: Path) -> None:
    inverted_residual().with_training(config_of()).save(tmp_path / "plus.circle")
    config = ct.load(tmp_path / "plus.circle").training
    assert config is not None and config.activations is ct.TrainConfig(activations="bfloat16").activations


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match="activations is 'float16', expected 'float32' or 'bfloat16'"):
        ct.TrainConfig(activations="float16")


def test_exported_models_are_float32(tmp_path: Path) -> None:
    halves, whole = (session_of("inverted_residual", kind) for kind in ("bfloat16", "float32"))
    for session, name in ((halves, "a"), (whole, "b")):
        session.export(tmp_path / f"{name}.circle")
    assert (tmp_path / "a.circle").read_bytes() == (tmp_path / "b.circle").read_bytes()


def test_widening_is_exact() -> None:
    numbers = np.arange(1 << 16, dtype=np.uint16)
    finite = ~np.isnan(widened(numbers)) & (numbers & 0x7F80 != 0)
    np.testing.assert_array_equal(narrowed(widened(numbers))[finite], numbers[finite])


@needs_native
def test_the_plan_says_what_the_processor_has() -> None:
    session = session_of("inverted_residual")
    has = session.backend.has_bfloat16_products
    assert ("the processor's own instruction" in session.plan.bfloat16) is has
    assert not engine_of(Tier.AVX2).has_bfloat16_products


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    networks.mlp(40, 1024, 5).save(tmp_path / "m.circle")
    np.save(tmp_path / "x.npy", normal(8, 40))
    np.save(tmp_path / "y.npy", LABELS)
    files = ["--input", str(tmp_path / "x.npy"), "--expected", str(tmp_path / "y.npy"), "--epochs", "1"]
    loss = ["--loss", "categorical_crossentropy", "--batch-size", "8", "--activations", "bfloat16"]
    plus = ["--export-circleplus", str(tmp_path / "plus.circle")]
    assert main(["train", str(tmp_path / "m.circle"), *files, *loss, *plus]) == 0
    config = ct.load(tmp_path / "plus.circle").training
    assert config is not None and config.activations.value == "bfloat16"
    assert main(["check", str(tmp_path / "m.circle"), "--activations", "bfloat16"]) == 0
    assert "bfloat16 activations" in capsys.readouterr().out
