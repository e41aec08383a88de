"""LSTM, GRU and RNN: one op for all steps; with functions that it has not, written out step after step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from circle_train.convert.building.builder import Builder
from circle_train.convert.building.refusal import Refusal
from circle_train.convert.building.registry import Call, handles
from circle_train.convert.handlers.numeric.activation import clipped, scaled_elu, softplus
from circle_train.ir import DType, Tensor
from circle_train.ir.size import Size
from circle_train.ops.internal.sequence.cells import FUNCTIONS
from circle_train.ops.internal.sequence.operators import (
    Direction,
    OverSequence,
    SequenceGru,
    SequenceLstm,
    SequenceRnn,
)

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
DEFAULTS = {"LSTM": ["Sigmoid", "Tanh", "Tanh"], "GRU": ["Sigmoid", "Tanh"], "RNN": ["Tanh"]}
LONGEST = 2048
Activation = Callable[[Tensor], Tensor]


@dataclass
class OneWay:
    """One direction's weights and functions; `xw` holds the inputs' part of all gates, step by step."""

    b: Builder
    xw: list[Tensor]
    r: Tensor
    rb: Tensor | None
    functions: list[Activation]
    hidden: int
    clip: float
    peepholes: list[Tensor] | None = None
    coupled: bool = False
    before_reset: bool = True

    def bounded(self, x: Tensor) -> Tensor:
        return clipped(self.b, x, -self.clip, self.clip) if self.clip else x

    def gates(self, tensor: Tensor, count: int) -> list[Tensor]:
        return self.b.all("SPLIT", self.b.constant(1, np.int32), tensor, num_splits=count)


@handles("LSTM", "GRU", "RNN")
def recurrent(c: Call) -> list[Tensor]:
    functions = _names(c)
    if all(name in FUNCTIONS for name in functions):
        return _swept(c, functions)
    return _unrolled(c)


def _names(c: Call) -> tuple[str, ...]:
    """The functions of all directions."""
    count = 2 if c.attr("direction", "forward") == "bidirectional" else 1
    return tuple(c.attr("activations") or DEFAULTS[c.op] * count)


def _swept(c: Call, functions: tuple[str, ...]) -> list[Tensor]:
    """As one op, which has ONNX's operands with time before the batch."""
    b, turned = c.b, bool(c.attr("layout", 0))
    direction = Direction[c.attr("direction", "forward").upper()]
    x = b.transpose(c[0], (1, 0, 2)) if turned else c[0]
    states = [c.optional(index) for index in (5, 6)[: 2 if c.op == "LSTM" else 1]]
    if turned:
        states = [None if state is None else b.transpose(state, (1, 0, 2)) for state in states]
    lengths = _lengths(c, b.shape(x)[0])
    clip = float(c.attr("clip", 0.0))
    op: OverSequence = SequenceRnn(direction, functions, clip)
    operands = [x, c[1], c[2], c.optional(3), lengths, *states]
    if c.op == "GRU":
        op = SequenceGru(direction, functions, clip, bool(c.attr("linear_before_reset", 0)))
    if c.op == "LSTM":
        op = SequenceLstm(direction, functions, clip, bool(c.attr("input_forget", 0)))
        operands.append(c.optional(7))
    y, *last = b.emit(op, operands)
    if turned:
        y, last = b.transpose(y, (2, 0, 1, 3)), [b.transpose(state, (1, 0, 2)) for state in last]
    return [y, *last][: c.output_count]


def _unrolled(c: Call) -> list[Tensor]:
    b, directions = (
        c.b,
        {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[c.attr("direction", "forward")],
    )
    x = b.transpose(c[0], (1, 0, 2)) if c.attr("layout", 0) else c[0]
    steps = b.shape(x)[0]
    if isinstance(steps, Size) or steps > LONGEST:
        raise Refusal(f"it runs over {steps} steps; at most {LONGEST}, known beforehand, are unrolled")
    hidden = int(c.attr("hidden_size", 0)) or c.shape(2)[2]
    lengths = _lengths(c, steps)
    lengths = None if lengths is None else b.reshape(lengths, (b.shape(lengths)[0], 1))
    runs = [_run(c, x, number, d, hidden, lengths) for number, d in enumerate(directions)]
    axis = 2 if c.attr("layout", 0) else 0
    results = []
    if c.uses(0):
        outputs = [b("PACK", *run[0], values_count=steps, axis=0) for run in runs]
        whole = b("PACK", *outputs, values_count=len(runs), axis=1)
        results.append(b.transpose(whole, (2, 0, 1, 3)) if axis else whole)
    else:
        results.append(runs[0][0][-1])
    for state in range(len(runs[0][1])):
        last = [run[1][state] for run in runs]
        results.append(b("PACK", *last, values_count=len(last), axis=1 if axis else 0))
    return results[: c.output_count]


def _lengths(c: Call, steps: int) -> Tensor | None:
    """The samples' lengths, unless all are as long as can be."""
    lengths = c.optional(4)
    value = c.b.value(lengths)
    if lengths is None or (value is not None and (value == steps).all()):
        return None
    return c.b.cast(lengths, DType.INT32)


def _run(
    c: Call, x: Tensor, number: int, backwards: int, hidden: int, lengths: Tensor | None
) -> tuple[list[Tensor], list[Tensor]]:
    """All outputs of one direction in the sequence's order, and its last states."""
    b, steps = c.b, c.b.shape(x)[0]
    direction = _direction(c, x, number, hidden)
    states = [_initial(c, x, 5, number, hidden)]
    if c.op == "LSTM":
        states.append(_initial(c, x, 6, number, hidden))
    step = STEPS[c.op]
    outputs: list[Tensor] = []
    order = range(int(steps))
    for time in reversed(order) if backwards else order:
        made = step(direction, direction.xw[time], states)
        if lengths is not None:
            alive = b("GREATER", lengths, b.like(lengths, time))
            outputs.append(b("SELECT_V2", alive, made[0], b.like(made[0], 0)))
            states = [b("SELECT_V2", alive, new, old) for new, old in zip(made, states, strict=True)]
        else:
            states = made
            outputs.append(made[0])
    return (outputs[::-1] if backwards else outputs), states


def _part(b: Builder, tensor: Tensor, number: int) -> Tensor:
    """One direction of a tensor that begins with the axis of directions; if alone, still the initializer."""
    shape = b.shape(tensor)
    if shape[0] != 1:
        begin = b.integers([number] + [0] * (len(shape) - 1))
        tensor = b("SLICE", tensor, begin, b.integers([1, *shape[1:]]))
    return b.reshape(tensor, shape[1:])


def _initial(c: Call, x: Tensor, index: int, number: int, hidden: int) -> Tensor:
    b, given = c.b, c.optional(index)
    if given is None:
        zeros = b("FILL", b.integers([b.shape(x)[1], hidden]), b.like(x, 0))
        return zeros
    if c.attr("layout", 0):
        given = b.transpose(given, (1, 0, 2))
    return _part(b, given, number)


def _direction(c: Call, x: Tensor, number: int, hidden: int) -> OneWay:
    b, count = c.b, GATES[c.op]
    w, r = _part(b, c[1], number), _part(b, c[2], number)
    wb = rb = None
    if c.optional(3) is not None:
        both = _part(b, c[3], number)
        wb, rb = (
            b("SLICE", both, b.integers([i * count * hidden]), b.integers([count * hidden])) for i in (0, 1)
        )
    linear_reset = bool(c.attr("linear_before_reset", 0))
    if wb is not None and rb is not None and not (c.op == "GRU" and linear_reset):
        wb, rb = b("ADD", wb, rb), None
    products = b("FULLY_CONNECTED", x, w, wb, keep_num_dims=True)
    steps = int(b.shape(x)[0])
    xw = b.all("UNPACK", products, num=steps, axis=0)
    peepholes = None
    if c.op == "LSTM" and c.optional(7) is not None:
        flat = _part(b, c[7], number)
        peepholes = [b("SLICE", flat, b.integers([i * hidden]), b.integers([hidden])) for i in range(3)]
    return OneWay(b, xw, r, rb, _functions(c, number), hidden, float(c.attr("clip", 0.0)), peepholes,
                     bool(c.attr("input_forget", 0)), not linear_reset)  # fmt: skip


def _functions(c: Call, number: int) -> list[Activation]:
    count = len(DEFAULTS[c.op])
    names = (c.attr("activations") or DEFAULTS[c.op] * 2)[number * count :][:count]
    alphas, betas = list(c.attr("activation_alpha") or []), list(c.attr("activation_beta") or [])
    every = c.attr("activations") or DEFAULTS[c.op] * 2
    skipped_alphas = sum(name in WITH_ALPHA for name in every[: number * count])
    skipped_betas = sum(name in WITH_BETA for name in every[: number * count])
    alphas, betas = alphas[skipped_alphas:], betas[skipped_betas:]
    result = []
    for name in names:
        alpha = alphas.pop(0) if name in WITH_ALPHA and alphas else WITH_ALPHA.get(name, 0.0)
        beta = betas.pop(0) if name in WITH_BETA and betas else WITH_BETA.get(name, 0.0)
        result.append(function(c.b, name, alpha, beta))
    return result


WITH_ALPHA = {
    "LeakyRelu": 0.01,
    "ThresholdedRelu": 1.0,
    "Elu": 1.0,
    "HardSigmoid": 0.2,
    "Affine": 1.0,
    "ScaledTanh": 1.0,
}
WITH_BETA = {"HardSigmoid": 0.5, "Affine": 0.0, "ScaledTanh": 1.0}


def function(b: Builder, name: str, alpha: float = 0.0, beta: float = 0.0) -> Activation:
    """An activation by its ONNX name."""
    line: Activation = lambda x: b("ADD", b("MUL", x, b.like(x, alpha)), b.like(x, beta))  # noqa: E731
    known: dict[str, Activation] = {
        "Sigmoid": lambda x: b("LOGISTIC", x),
        "Tanh": lambda x: b("TANH", x),
        "Relu": lambda x: b("RELU", x),
        "Affine": line,
        "LeakyRelu": lambda x: b("LEAKY_RELU", x, alpha=alpha),
        "HardSigmoid": lambda x: clipped(b, line(x), 0.0, 1.0),
        "Elu": lambda x: scaled_elu(b, x, alpha, 1.0),
        "Softplus": lambda x: softplus(b, x),
        "Softsign": lambda x: b("DIV", x, b("ADD", b("ABS", x), b.like(x, 1))),
        "ScaledTanh": lambda x: b("MUL", b("TANH", b("MUL", x, b.like(x, beta))), b.like(x, alpha)),
        "ThresholdedRelu": lambda x: b("SELECT_V2", b("GREATER", x, b.like(x, alpha)), x, b.like(x, 0)),
    }
    if name not in known:
        raise Refusal(f"its activation '{name}' is unknown")
    return known[name]


def _lstm(d: OneWay, xw: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Gates in ONNX's order: input, output, forget, cell."""
    b, (h, cell), (f, g, last) = d.b, states, d.functions
    i, o, forget, z = d.gates(b("ADD", xw, b("FULLY_CONNECTED", h, d.r)), 4)
    if d.peepholes:
        i = b("ADD", i, b("MUL", d.peepholes[0], cell))
        forget = b("ADD", forget, b("MUL", d.peepholes[2], cell))
    i = f(d.bounded(i))
    forget = b("SUB", b.like(i, 1), i) if d.coupled else f(d.bounded(forget))
    cell = b("ADD", b("MUL", forget, cell), b("MUL", i, g(d.bounded(z))))
    if d.peepholes:
        o = b("ADD", o, b("MUL", d.peepholes[1], cell))
    return [b("MUL", f(d.bounded(o)), last(cell)), cell]


def _gru(d: OneWay, xw: Tensor, states: list[Tensor]) -> list[Tensor]:
    """Gates in ONNX's order: update, reset, hidden."""
    b, (h,), (f, g) = d.b, states, d.functions
    xz, xr, xh = d.gates(xw, 3)
    if d.before_reset:
        zr_rows = b("SLICE", d.r, b.integers([0, 0]), b.integers([2 * d.hidden, d.hidden]))
        h_rows = b("SLICE", d.r, b.integers([2 * d.hidden, 0]), b.integers([d.hidden, d.hidden]))
        hz, hr = d.gates(b("FULLY_CONNECTED", h, zr_rows), 2)
        z, reset = f(d.bounded(b("ADD", xz, hz))), f(d.bounded(b("ADD", xr, hr)))
        candidate = b("ADD", xh, b("FULLY_CONNECTED", b("MUL", reset, h), h_rows))
    else:
        hz, hr, hh = d.gates(b("FULLY_CONNECTED", h, d.r, d.rb), 3)
        z, reset = f(d.bounded(b("ADD", xz, hz))), f(d.bounded(b("ADD", xr, hr)))
        candidate = b("ADD", xh, b("MUL", reset, hh))
    candidate = g(d.bounded(candidate))
    return [b("ADD", b("MUL", b("SUB", b.like(z, 1), z), candidate), b("MUL", z, h))]


def _rnn(d: OneWay, xw: Tensor, states: list[Tensor]) -> list[Tensor]:
    b = d.b
    return [d.functions[0](d.bounded(b("ADD", xw, b("FULLY_CONNECTED", states[0], d.r))))]


STEPS: dict[str, Callable[[OneWay, Tensor, list[Tensor]], list[Tensor]]] = {
    "LSTM": _lstm, "GRU": _gru, "RNN": _rnn,
}  # fmt: skip
"""What the inputs give to the gates and the states before to the states behind."""
