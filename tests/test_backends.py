"""The native engine against the specification: every operator, whole training steps, threads, forks, refusals."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import networks
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from single_operator import examples, is_constant, is_float

import circle_train as ct
from circle_train.backends import native
from circle_train.backends.base import Reference
from circle_train.backends.native import Native, abi, step
from circle_train.backends.native.codes import Kernel, Tier
from circle_train.backends.native.library import load
from circle_train.backends.native.step import NativeRun
from circle_train.errors import DataError
from circle_train.executor import Executor
from circle_train.ir import DType, Graph, Node, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ir.tensor_type import Array
from circle_train.model import Model
from circle_train.ops import Example
from circle_train.ops.arithmetic import Mul
from circle_train.ops.attributes import Activation, Padding
from circle_train.ops.conv import Conv2D, DepthwiseConv2D
from circle_train.ops.gradient import NonFiniteLoss
from circle_train.ops.linear import BatchMatMul, FullyConnected
from circle_train.ops.pool import AveragePool2D, MaxPool2D
from circle_train.train import prefix
from circle_train.train.autodiff import add_backward
from circle_train.train.compile import compile
from circle_train.train.program import Mode
from circle_train.train.state import State

pytestmark = pytest.mark.skipif(not native.is_available(), reason="the native engine was not built")
ARGS = {
    Kernel.MATMUL: abi.MatmulArgs,
    Kernel.MATMUL_GRAD_W: abi.MatmulGradWArgs,
    Kernel.CONV: abi.ConvArgs,
    Kernel.CONV_GRAD_X: abi.ConvGradXArgs,
    Kernel.CONV_GRAD_W: abi.ConvGradWArgs,
    Kernel.MAX_POOL: abi.PoolArgs,
    Kernel.SOFTMAX: abi.SoftmaxArgs,
    Kernel.SOFTMAX_CROSS_ENTROPY: abi.CrossEntropyArgs,
    Kernel.MEAN_SQUARED_ERROR: abi.RegressionLossArgs,
    Kernel.CHAIN: abi.ChainArgs,
    Kernel.REDUCE: abi.ReduceArgs,
    Kernel.COPY: abi.CopyArgs,
    Kernel.FILL: abi.FillArgs,
    Kernel.GATHER: abi.GatherArgs,
    Kernel.SCATTER_ADD: abi.ScatterAddArgs,
    Kernel.LAYER_NORM: abi.NormArgs,
    Kernel.LAYER_NORM_GRAD: abi.NormGradArgs,
    Kernel.UPDATE: abi.UpdateArgs,
    Kernel.GUARD_FINITE: abi.GuardArgs,
}


def tiers() -> Iterator[Any]:
    """Those that this machine can run."""
    library = load()
    best = library.ct_best_tier() if library is not None else -1
    for tier in (Tier.PORTABLE, Tier.AVX2, Tier.AVX512):
        reason = f"this processor cannot run {tier.name}"
        yield pytest.param(tier, id=tier.name, marks=pytest.mark.skipif(tier > best, reason=reason))


every_tier = pytest.mark.parametrize("tier", list(tiers()))


@pytest.mark.parametrize("kernel", ARGS, ids=lambda kernel: kernel.name)
def test_structs_are_laid_out_as_in_c(kernel: Kernel) -> None:
    library = load()
    assert library is not None
    assert ctypes.sizeof(ARGS[kernel]) == library.ct_args_size(kernel)
    assert library.ct_kernel_name(kernel).decode() == kernel.name


# Operators one by one


def run_graph(graph: Graph, values: dict[Tensor, Array], engine: Native, joined: bool) -> tuple[int, float]:
    """Run each node natively on what the specification gave its makers; how many were native, the largest error."""
    known = dict(values)
    count, worst = 0, 0.0
    if joined:
        engine.fuse(graph, graph.outputs)
    for node in graph.nodes:
        inputs = [None if t is None else known.get(t, t.data if t.is_constant else None) for t in node.inputs]
        contiguous = [None if a is None else dense(a) for a in inputs]
        with np.errstate(all="ignore"):
            expected = [dense(a) for a in node.op.compute(contiguous)]
        known.update(zip(node.outputs, expected, strict=True))
        if node.op.view_input is not None:
            continue
        outputs = [np.full_like(a, 77) for a in expected]
        step = engine.bind(node, contiguous, outputs)
        if step is None:
            continue
        step()
        count += 1
        worst = max([worst, *(error(a, b) for a, b in zip(expected, outputs, strict=True))])
    return count, worst


def dense(array: Array) -> Array:
    return np.ascontiguousarray(array).reshape(np.shape(array))


def error(expected: Array, found: Array) -> float:
    """The largest difference, in proportion to the largest number."""
    if expected.size == 0:
        return 0.0
    if expected.dtype.kind != "f":
        return float(np.max(expected != found))
    assert (np.isnan(expected) == np.isnan(found)).all()
    with np.errstate(all="ignore"):
        difference = np.nan_to_num(np.abs(expected.astype(np.float64) - found))
    return float(difference.max() / max(np.nan_to_num(np.abs(expected)).max(), 0.1))


def graph_of(example: Example) -> tuple[Graph, dict[Tensor, Array]]:
    """The operator, its output times random factors, and the gradients of the sum of that."""
    graph = Graph("one")
    values: dict[Tensor, Array] = {}
    inputs: list[Tensor | None] = []
    for index, value in enumerate(example.inputs):
        if value is None:
            inputs.append(None)
            continue
        array = np.ascontiguousarray(value, np.float32 if is_float(value) else None).reshape(np.shape(value))
        if is_constant(example, index):
            inputs.append(constant(array))
            continue
        inputs.append(Tensor(f"x{index}", TensorType(DType.of(array.dtype), array.shape)))
        values[inputs[-1]] = array  # type: ignore[index]
    graph.inputs = list(values)
    outputs = graph.emit_all(example.op, *inputs)
    leaves = [
        t for i, t in enumerate(inputs) if t in values and example.op.input_name(i) in example.op.gradients
    ]
    if example.differentiable and leaves and outputs[0].dtype is DType.FLOAT32 and outputs[0].type.size:
        factor = constant(np.random.default_rng(1).normal(size=outputs[0].shape).astype(np.float32))
        weighted = graph.emit(Mul(), outputs[0], factor)
        graph.outputs = [
            *outputs,
            *add_backward(graph, weighted, [t for t in leaves if t is not None]).values(),
        ]
    else:
        graph.outputs = outputs
    return graph, values


@every_tier
def test_every_operator_and_gradient_is_as_specified(tier: Tier) -> None:
    """Over the registry's examples; what has no kernel is left to the reference."""
    engine = Native(2, tier)
    native_nodes = 0
    for parameter in examples():
        example: Example = parameter.values[0]
        for joined in (False, True):
            graph, values = graph_of(example)
            count, worst = run_graph(graph, values, engine, joined)
            native_nodes += count
            assert worst < 4e-5, f"{parameter.id} joined={joined}: {worst}"
    assert native_nodes > 1000


Shape = tuple[int, ...]
odd = st.integers(1, 19)


def check(op: Any, *shapes: Shape) -> None:
    """One op on random numbers, natively on three threads."""
    rng = np.random.default_rng([len(shapes), *shapes[0]])
    example = Example(op, tuple(rng.uniform(-2, 2, shape) for shape in shapes))
    for joined in (False, True):
        graph, values = graph_of(example)
        count, worst = run_graph(graph, values, Native(3), joined)
        assert count and worst < 4e-5


@settings(max_examples=25, deadline=None)
@given(odd, odd, st.integers(1, 40), st.integers(1, 150), st.sampled_from([0, 1, 3]))
def test_dense_layers_of_any_size(batch: int, rows: int, outputs: int, inputs: int, act: int) -> None:
    check(FullyConnected(Activation(act)), (batch * rows, inputs), (outputs, inputs), (outputs,))
    check(BatchMatMul(adjoint_rhs=True), (batch, rows, inputs), (batch, outputs, inputs))


@settings(max_examples=25, deadline=None)
@given(odd, odd, st.integers(1, 40), st.integers(1, 40), st.integers(1, 4), st.integers(1, 3), st.booleans())
def test_convolutions_of_any_size(
    h: int, w: int, cin: int, cout: int, k: int, stride: int, same: bool
) -> None:
    padding = Padding.SAME if same or min(h, w) < k else Padding.VALID
    options = {"padding": padding, "stride_h": stride, "stride_w": 1}
    check(Conv2D(**options), (2, h, w, cin), (cout, k, k, cin), (cout,))  # type: ignore[arg-type]
    check(DepthwiseConv2D(**options), (2, h, w, cin), (1, k, k, cin), (cin,))  # type: ignore[arg-type]
    pool = {**options, "filter_height": k, "filter_width": k}
    check(MaxPool2D(**pool), (2, h, w, cin))  # type: ignore[arg-type]
    check(AveragePool2D(**pool), (2, h, w, cin))  # type: ignore[arg-type]


# Whole training steps


def residual() -> Model:
    """Blocks as MobileNet's: expand, depthwise, project, add; a pool of an activated convolution first."""
    graph = Graph("residual", [networks.new_input("image", 1, 11, 13, 3)])
    make, weight = networks.make, networks.weight
    relu = {"fused_activation_function": Activation.RELU}
    relu6 = {"fused_activation_function": Activation.RELU6}
    x = graph.emit(make("CONV_2D", **relu), graph.inputs[0], weight("c0", 12, 3, 3, 3), weight("b0", 12))
    x = graph.emit(make("MAX_POOL_2D", stride_h=2, stride_w=2, filter_height=2, filter_width=2), x)
    for i in range(2):
        y = graph.emit(make("CONV_2D", **relu6), x, weight(f"e{i}", 30, 1, 1, 12), weight(f"eb{i}", 30))
        y = graph.emit(
            make("DEPTHWISE_CONV_2D", **relu6), y, weight(f"d{i}", 1, 3, 3, 30), weight(f"db{i}", 30)
        )
        y = graph.emit(make("CONV_2D"), y, weight(f"p{i}", 12, 1, 1, 30), weight(f"pb{i}", 12))
        x = graph.emit(make("ADD"), x, y)
    x = graph.emit(make("MUL"), x, weight("scale", 12))
    x = graph.emit(make("MEAN"), x, constant(np.array([1, 2], np.int32)))
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("f", 5, 12), weight("fb", 5)))


def attention() -> Model:
    """An embedding, a layer norm spelled out, one head of attention, GELU."""
    graph = Graph("attention", [networks.new_input("tokens", 2, 6, dtype=DType.INT64)])
    make, weight = networks.make, networks.weight
    axes = constant(np.array([-1], np.int32))
    x = graph.emit(make("GATHER"), weight("table", 20, 8), graph.inputs[0])
    mean = graph.emit(make("MEAN", keep_dims=True), x, axes)
    centred = graph.emit(make("SUB"), x, mean)
    variance = graph.emit(make("MEAN", keep_dims=True), graph.emit(make("SQUARE"), centred), axes)
    shifted = graph.emit(make("ADD"), variance, constant(np.array(1e-5, np.float32)))
    normal = graph.emit(make("MUL"), centred, graph.emit(make("RSQRT"), shifted))
    x = graph.emit(make("ADD"), graph.emit(make("MUL"), normal, weight("gamma", 8)), weight("beta", 8))
    heads = []
    for name in "qkv":
        y = graph.emit(
            make("FULLY_CONNECTED", keep_num_dims=True), x, weight(name, 8, 8), weight(name + "b", 8)
        )
        y = graph.emit(make("RESHAPE", new_shape=(2, 6, 2, 4)), y)
        order = (0, 2, 3, 1) if name == "k" else (0, 2, 1, 3)
        heads.append(graph.emit(make("TRANSPOSE"), y, constant(np.array(order, np.int32))))
    scores = graph.emit(make("BATCH_MATMUL"), heads[0], heads[1])
    scores = graph.emit(make("MUL"), scores, constant(np.array(0.5, np.float32)))
    mixed = graph.emit(make("BATCH_MATMUL"), graph.emit(make("SOFTMAX"), scores), heads[2])
    mixed = graph.emit(make("TRANSPOSE"), mixed, constant(np.array((0, 2, 1, 3), np.int32)))
    x = graph.emit(make("ADD"), graph.emit(make("RESHAPE", new_shape=(2, 6, 8)), mixed), x)
    x = graph.emit(make("GELU"), x)
    x = graph.emit(make("RESHAPE", new_shape=(2, 48)), x)
    return networks.finish(graph, graph.emit(make("FULLY_CONNECTED"), x, weight("out", 3, 48)))


MODELS = {"mlp": networks.mlp, "cnn": networks.cnn, "residual": residual, "attention": attention}
OPTIMIZERS = {
    "sgd": ct.optimizers.SGD(0.05, weight_decay=0.01),
    "momentum": ct.optimizers.SGD(0.05, momentum=0.9),
    "nesterov": ct.optimizers.SGD(0.05, momentum=0.9, nesterov=True),
    "adam": ct.optimizers.Adam(0.01),
    "adamw": ct.optimizers.AdamW(0.01),
    "adamw_ort": ct.optimizers.AdamW(0.01, style="ort"),
    "clipped": ct.optimizers.Adam(0.01, clip_norm=0.1),
}


def batch(model: Model, size: int) -> tuple[Array, Array]:
    rng = np.random.default_rng(3)
    tensor = model.module.main.inputs[0]
    shape = (size, *tensor.shape[1:])
    x = (
        rng.integers(0, 20, shape)
        if tensor.dtype is DType.INT64
        else rng.normal(size=shape).astype(np.float32)
    )
    outputs = model.module.main.outputs[0].shape[-1]
    return x, np.eye(outputs, dtype=np.float32)[rng.integers(0, outputs, size)]


def trained(
    model: Model, config: ct.TrainConfig, engine: Any, steps: int = 3
) -> tuple[list[float], dict[str, Array]]:
    """Losses and parameters after some steps."""
    program = compile(model.module.main, config, Mode.TRAIN, config.batch_size, engine)
    state = State(program.parameters, config.rule.base_learning_rate)
    executor = Executor(program, state, engine)
    x, y = batch(model, config.batch_size)
    losses = []
    for _ in range(steps):
        config.rule.set_scalars(state)
        executor.run({program.inputs[0]: x, program.targets[0]: y})
        state.step += 1
        assert program.loss is not None
        losses.append(float(executor[program.loss]))
    if isinstance(engine, Native):
        assert (
            not [str(node) for node, name in executor.engines.items() if name != "native"]
            or config.rule.clip_norm
        )
    return losses, {p.name: np.array(state.value(p.name)) for p in program.trained}


class Joined(Reference):
    """The specification of the graph that the native engine runs."""

    def __init__(self, engine: Native) -> None:
        self.engine = engine

    def recognise(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        self.engine.recognise(graph, keep)

    def fuse(self, graph: Graph, keep: Sequence[Tensor]) -> None:
        self.engine.fuse(graph, keep)


def same(first: dict[str, Array], second: dict[str, Array], tolerance: float) -> None:
    for name, value in first.items():
        np.testing.assert_allclose(second[name], value, rtol=tolerance, atol=tolerance, err_msg=name)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("rule", OPTIMIZERS)
def test_training_is_as_specified(name: str, rule: str) -> None:
    """Natively, by numpy on the joined graph, and by numpy on the plain one."""
    model = MODELS[name]()
    loss = "mse" if name == "mlp" else "categorical_crossentropy"
    config = ct.TrainConfig(loss=loss, optimizer=OPTIMIZERS[rule], batch_size=2 if name == "attention" else 5)
    engine = Native(2)
    losses, values = trained(model, config, Reference())
    for other in (Joined(engine), engine):
        other_losses, other_values = trained(model, config, other)
        np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
        # Where a gradient vanishes but for rounding, Adam still takes a whole step in its direction.
        same({k: v for k, v in values.items() if k != "kb"}, other_values, 2e-4)


@every_tier
@pytest.mark.parametrize("name", MODELS)
def test_any_number_of_threads_gives_the_same_bits(name: str, tier: Tier) -> None:
    config = ct.TrainConfig(loss="mse", batch_size=2 if name == "attention" else 7)
    results = [trained(MODELS[name](), config, Native(threads, tier)) for threads in (1, 2, 3, 8)]
    for losses, values in results[1:]:
        assert losses == results[0][0]
        assert all((values[key] == value).all() for key, value in results[0][1].items())


def test_a_step_is_one_call() -> None:
    """Nothing is left to Python between the first kernel and the last."""
    for name, make in MODELS.items():
        config = ct.TrainConfig(loss="mse", batch_size=2 if name == "attention" else 4)
        model, engine = make(), Native(1)
        program = compile(model.module.main, config, Mode.TRAIN, config.batch_size, engine)
        assert len(Executor(program, State(program.parameters, 0.1), engine).steps) == 1


# Refusals, forks, threads


def test_an_index_outside_the_table_is_refused() -> None:
    node = Node(
        networks.make("GATHER"), [networks.weight("t", 4, 3), Tensor("i", TensorType(DType.INT32, (2,)))], []
    )
    node.outputs = [Tensor("y", TensorType(DType.FLOAT32, (2, 3)))]
    for index in (4, -5, 1 << 30):
        step = Native(1).bind(
            node,
            [np.ones((4, 3), np.float32), np.array([0, index], np.int32)],
            [np.zeros((2, 3), np.float32)],
        )
        assert step is not None
        with pytest.raises(DataError, match=r"GATHER.*outside its range"):
            step()


def test_a_loss_that_is_no_number_changes_nothing() -> None:
    model, engine = residual(), Native(2)
    config = ct.TrainConfig(loss="mse", batch_size=3)
    program = compile(model.module.main, config, Mode.TRAIN, 3, engine)
    state = State(program.parameters, 0.1)
    executor = Executor(program, state, engine)
    before = {p.name: state.value(p.name).copy() for p in program.trained}
    x, y = batch(model, 3)
    x[0] = np.nan
    with pytest.raises(NonFiniteLoss):
        executor.run({program.inputs[0]: x, program.targets[0]: y})
    assert all((state.value(name) == value).all() for name, value in before.items())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
def test_a_forked_child_trains_on() -> None:
    config = ct.TrainConfig(loss="mse", batch_size=64)
    model, engine = residual(), Native(3)
    expected = trained(model, config, engine)[0]
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, repr(trained(model, config, engine)[0]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    found = os.read(reading, 1000).decode()
    os.close(reading)
    os.waitpid(child, 0)
    assert found == repr(expected)


def test_sessions_in_several_python_threads_do_not_meet() -> None:
    """Each with an engine of its own, and all with one."""
    config = ct.TrainConfig(loss="mse", batch_size=33)
    expected = trained(residual(), config, Native(2))[0]
    shared = Native(2)
    for engines in ([Native(2) for _ in range(4)], [shared] * 4):
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda engine: trained(residual(), config, engine)[0], engines))
        assert found == [expected] * 4


def test_a_frozen_beginning_side_by_side_gives_the_same_bits(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many threads take its parts."""
    monkeypatch.setattr(prefix, "CACHE_BYTES", 20_000)
    config = ct.TrainConfig(loss="mse", batch_size=12, trainable=("last", 1))
    results = []
    for threads in (1, 2, 3, 8):
        session = ct.TrainSession(residual(), config, threads=threads, backend="native")
        x, y = batch(residual(), 12)
        losses = [session.train_step(x, y).loss for _ in range(3)]
        found = session.program.prefix
        assert found is not None and found.lanes == min(threads, 12 // found.program.batch_size)
        results.append((losses, session.parameters.flat().tobytes()))
    assert results == [results[0]] * 4


def test_ctrl_c_ends_a_long_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that took long is taken in pieces, between which Python answers signals."""
    monkeypatch.setattr(step, "LONG", 0.0)
    session = ct.TrainSession(residual(), ct.TrainConfig(loss="mse", batch_size=4), backend="native")
    plain = ct.TrainSession(residual(), ct.TrainConfig(loss="mse", batch_size=4), backend="reference")
    x, y = batch(residual(), 4)
    found = [session.train_step(x, y).loss for _ in range(3)]
    assert found == pytest.approx([plain.train_step(x, y).loss for _ in range(3)], rel=1e-5)
    (run,) = session._executor(Mode.TRAIN, 4).steps
    assert isinstance(run, NativeRun) and len(run._pieces) == len(run._calls)
    asked = []
    inner = run._run

    def interrupted(*arguments: Any) -> int:
        asked.append(arguments)
        signal.raise_signal(signal.SIGINT)
        return inner(*arguments)

    run._run = interrupted
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    try:
        with pytest.raises(KeyboardInterrupt):
            session.train_step(x, y)
    finally:
        signal.signal(signal.SIGINT, before)
    assert len(asked) == 1
    x[:] = np.nan
    run._run = inner
    with pytest.raises(DataError, match="NaN"):
        session.train_step(x, y)


def test_what_is_asked_for_by_name_survives_joining() -> None:
    """A tensor inside a formula that kernels know as one, and one that a product would have swallowed."""
    model = attention()
    inner = [
        node.outputs[0].name for node in model.module.main.nodes if node.op.name in ("RSQRT", "MUL", "ADD")
    ]
    config = ct.TrainConfig(loss="mse", batch_size=2, extra_outputs=inner)
    x, y = batch(model, 2)
    plain, joined = (ct.TrainSession(model, config, backend=name) for name in ("reference", "native"))
    expected, found = plain.train_step(x, y).extra, joined.train_step(x, y).extra
    assert set(found) == set(inner)
    for name, value in expected.items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-5, err_msg=name)
