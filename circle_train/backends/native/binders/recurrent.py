"""Recurrent operators: products over all steps at once around the sweeps along time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from circle_train.backends.native.binders.products.linear import forward, input_gradient, weight_gradients
from circle_train.backends.native.binders.update import gradient_only
from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.abi import Kernel
from circle_train.backends.native.engine.binding import Calls, binds_fused, call, floats, pointer
from circle_train.backends.native.engine.step import Call
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.internal.fused import Fused
from circle_train.ops.internal.sequence.operators import OverSequence, SequenceGru, SequenceLstm, SequenceRnn
from circle_train.ops.internal.tape import Tape
from circle_train.ops.layers.gru import Gru
from circle_train.ops.layers.linear import FullyConnected
from circle_train.ops.layers.lstm import Lstm, UnidirectionalSequenceLstm
from circle_train.ops.layers.recurrent import AUXILIARY, Recurrent, Rnn, Swept
from circle_train.record import record

DENSE = FullyConnected()
PLAIN = {"h", "c", "w", "r", "b", "b_w", "b_r", *(f"{kind}_{gate}" for kind in "wrb" for gate in "ifgo")}
"""Operands of a direction that the sweeps know; peepholes, projections and the like are the reference's."""
FUNCTIONS = {"Tanh": Activation.TANH, "Relu": Activation.RELU}
Values = Mapping[str, Any]


@record
class RecurrentOptions:
    """The operator, and the names of its operands that have a gradient here."""

    op: Swept
    wanted: tuple[str, ...] = ()


def directions_of(op: Swept) -> int:
    """How many sweeps it is."""
    return len(op.direction.backwards if isinstance(op, OverSequence) else op.prefixes)  # type: ignore[attr-defined]


def tape_names(direction: int) -> list[str]:
    """The roles of what a direction keeps."""
    return [f"tape.{direction}.{name}" for name in ("gates", "cells", "before")]


def is_known(op: Swept, given: Values) -> bool:
    """Whether the sweeps compute this operator with these operands (arrays or tensors), and nothing is left out."""
    if not given["x"].dtype.is_float or given.get("lengths") is not None:
        return False
    if any(t is not None and (t.dtype is not given["x"].dtype or not all(t.shape)) for t in given.values()):
        return False
    if isinstance(op, OverSequence):
        return _is_known_sequence(op, given)
    assert isinstance(op, Recurrent)
    has_time = len(given["x"].shape) == 3
    return (
        has_time
        and given.get(AUXILIARY) is None
        and all(_is_known_layer(op, part, given["x"]) for part in op.split(dict(given)))
    )


def _is_known_sequence(op: OverSequence, given: Values) -> bool:
    count = directions_of(op)
    if op.clip or given.get("p") is not None:
        return False
    if isinstance(op, SequenceLstm):
        return not op.coupled and op.functions == ("Sigmoid", "Tanh", "Tanh") * count
    if isinstance(op, SequenceGru):
        return op.linear_before_reset and op.functions == ("Sigmoid", "Tanh") * count
    return all(name in FUNCTIONS for name in op.functions)


def _is_known_layer(op: Recurrent, part: Values, x: Any) -> bool:
    here = {name: value for name, value in part.items() if value is not None}
    units = next(here[name] for name in ("r", "r_f") if name in here).shape[-1]
    samples = x.shape[1 if op.is_time_major else 0]
    if here.keys() - PLAIN or any(
        here[name].shape != (samples, units) for name in ("h", "c") if name in here
    ):
        return False
    if isinstance(op, Lstm):
        is_diagonal = isinstance(op, UnidirectionalSequenceLstm) and op.diagonal_recurrent_tensors
        is_whole = "w_i" in here and not op.cell_clip and not op.proj_clip
        return is_whole and not is_diagonal and op.fused_activation_function is Activation.TANH
    return isinstance(op, Gru) or (
        isinstance(op, Rnn) and op.fused_activation_function is not Activation.SIGN_BIT
    )


def pieces(op: Swept, number: int, values: Values) -> dict[str, list[Any]]:
    """Of weights (or of their gradients) what belongs to each gate of a direction, in the sweeps' order."""
    if isinstance(op, OverSequence):
        own = {
            name: None if (v := values.get(name)) is None else v[number] for name in ("w", "r", "b", "h", "c")
        }
        order = (0, 2, 3, 1) if isinstance(op, SequenceLstm) else tuple(range(op.gates))
        both = _split(own["b"], 2 * op.gates, range(2 * op.gates))
        found = {name: _split(own[name], op.gates, order) for name in "wr"}
        found |= {"b": [both[i] for i in order], "rb": [both[op.gates + i] for i in order]}
        return found | {name: [own[name]] for name in "hc"}
    assert isinstance(op, Recurrent)
    prefix = op.prefixes[number]
    own = {name.removeprefix(prefix): v for name, v in values.items() if name.startswith(prefix)}
    states = {name: [own.get(name)] for name in "hc"}
    if isinstance(op, Lstm):
        return (
            states
            | {name: [own.get(f"{name}_{gate}") for gate in "ifgo"] for name in "wrb"}
            | {"rb": [None] * 4}
        )
    if isinstance(op, Gru):
        names = {"w": "w", "r": "r", "b": "b_w", "rb": "b_r"}
        return states | {role: _split(own.get(name), 3, (0, 2, 1)) for role, name in names.items()}
    return states | {name: [own.get(name)] for name in ("w", "r", "b", "rb")}


def _split(whole: Array | None, count: int, order: Sequence[int]) -> list[Any]:
    if whole is None:
        return [None] * count
    parts = np.split(whole, count)
    return [parts[i] for i in order]


@record
class Sweep:
    """One direction of an operator: its weights gate by gate, and what it keeps."""

    op: Swept
    number: int
    x: Array
    weights: dict[str, list[Any]]
    gates: Array
    cells: Array | None
    before: Array | None

    @property
    def is_time_major(self) -> bool:
        return not isinstance(self.op, Recurrent) or self.op.is_time_major

    @property
    def kernels(self) -> tuple[Kernel, Kernel]:
        """There and back."""
        if isinstance(self.op, (Lstm, SequenceLstm)):
            return Kernel.LSTM, Kernel.LSTM_GRAD
        if isinstance(self.op, (Gru, SequenceGru)):
            return Kernel.GRU, Kernel.GRU_GRAD
        return Kernel.RNN, Kernel.RNN_GRAD

    @property
    def act(self) -> Activation:
        if isinstance(self.op, SequenceRnn):
            return FUNCTIONS[self.op.functions[self.number]]
        return self.op.fused_activation_function if isinstance(self.op, Rnn) else Activation.TANH

    @property
    def is_backwards(self) -> bool:
        return (
            self.op.direction.backwards[self.number] if isinstance(self.op, OverSequence) else self.number > 0
        )

    def call(self, back: bool, ys: Sequence[Array], **states: Array | None) -> Call:
        """The kernel along time; `ys` are the operator's outputs or their gradients."""
        outer, inner, _ = self.x.shape
        steps, samples = (outer, inner) if self.is_time_major else (inner, outer)
        rows = (samples, 1) if self.is_time_major else (1, steps)
        y, y_rows, last = self.seen(ys, rows)
        cells = self.cells if self.kernels[0] is not Kernel.RNN else None
        args = abi.RecurrentArgs(
            **{f"gate{i}": pointer(gate) for i, gate in enumerate(self.gates)},
            **{f"r{i}": pointer(r) for i, r in enumerate(self.weights["r"])},
            **{f"bias{i}": pointer(b) for i, b in enumerate(self.weights["rb"])},
            **{name: pointer(state) for name, state in {**last, **states}.items()},
            h0=pointer(self.weights["h"][0]), c0=pointer(self.weights["c"][0]), c=pointer(cells),
            before=pointer(self.before), steps=steps, samples=samples, units=self.gates.shape[-1], time_row=rows[0],
            sample_row=rows[1], y_time_row=y_rows[0], y_sample_row=y_rows[1], gates=len(self.gates),
            backwards=self.is_backwards, act=int(self.act),
        )  # fmt: skip
        setattr(args, "dy" if back else "y", pointer(y))
        return call(self.kernels[back], args, self.gates, cells, self.before, self.weights, ys, states)

    def seen(
        self, ys: Sequence[Array], rows: tuple[int, int]
    ) -> tuple[Array | None, tuple[int, int], dict[str, Array]]:
        """Where this direction's outputs lie, how far apart their rows are, and the last states among them."""
        op = self.op
        if isinstance(op, OverSequence):
            last = dict(zip(("h1", "c1"), (y[self.number] for y in ys[1:]), strict=False))
            return ys[0][:, self.number], (ys[0].shape[1] * rows[0], 1), last
        if isinstance(op, Gru) and not op.return_sequences:
            return None, rows, {"h1": ys[0]}
        assert isinstance(op, Recurrent)
        if op.is_merged:
            units = self.gates.shape[-1]
            return ys[0][..., self.number * units :], (2 * rows[0], 2 * rows[1]), {}
        return ys[self.number], rows, {}


def sweeps(op: Swept, given: Values, tapes: Values) -> list[Sweep]:
    """Those of the operator, with room for gates where no tape is kept."""
    made = []
    for number in range(directions_of(op)):
        gates, cells, before = (tapes.get(name) for name in tape_names(number))
        if gates is None:
            types = Tape(op, number).infer(*(given.get(spec.name) for spec in op.inputs))
            gates = np.empty(types[0].shape, np.float32)
        made.append(Sweep(op, number, given["x"], pieces(op, number, given), gates, cells, before))
    return made


def _rows(values: Array) -> Array:
    return values.reshape(-1, values.shape[-1])


def _operands(op: Swept, given: Values) -> dict[str, Any]:
    return {spec.name: given.get(spec.name) for spec in op.inputs}


@binds_fused("recurrent")
def fused_forward(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """What the inputs give all gates of all steps, then the sweep."""
    of = op.settings.op
    operands = _operands(of, given)
    if not floats(*operands.values(), *outputs):
        return None
    names = [name for number in range(directions_of(of)) for name in tape_names(number)]
    count = len(op.results) - len(names)
    kept = dict(zip(names, outputs[count:], strict=True)) if count > 0 and op.parts[1:] else {}
    made: list[Call] = []
    for sweep in sweeps(of, operands, kept):
        for gate, w, b in zip(sweep.gates, sweep.weights["w"], sweep.weights["b"], strict=True):
            made += forward(DENSE, {"x": sweep.x, "w": w, "b": b}, Activation.NONE, _rows(gate)) or []
        made.append(sweep.call(False, outputs[:count] if kept else outputs))
    return made


@binds_fused("recurrent_gradient")
def fused_gradient(op: Fused, given: dict[str, Any], outputs: Sequence[Array]) -> Calls:
    """The sweep back, which leaves the gates' gradients on the tape, then products over all steps."""
    of = op.settings.op
    operands, dys = _operands(of, given), [given[name] for name in sorted(given) if name.startswith("dy")]
    results = dict(zip(op.settings.wanted, outputs, strict=True))
    if not floats(*operands.values(), *dys, *outputs):
        return None
    made: list[Call] = []
    for sweep in sweeps(of, operands, given):
        own = pieces(of, sweep.number, results)
        made.append(sweep.call(True, dys, dh0=own["h"][0], dc0=own["c"][0]))
        made += _products_back(sweep, own, results.get("x"))
    return made


def _products_back(sweep: Sweep, own: dict[str, list[Any]], dx: Array | None) -> list[Call]:
    """The gradients of weights, biases and inputs from those of the gates' sums."""
    sums = list(sweep.gates)
    hidden = [*sums[:2], sweep.cells] if sweep.kernels[0] is Kernel.GRU else sums
    made: list[Call] = []
    for i, w in enumerate(sweep.weights["w"]):
        made += _weights(sums[i], sweep.x, own["w"][i], own["b"][i])
        made += _weights(hidden[i], sweep.before, own["r"][i], own["rb"][i])
        if dx is not None:
            (product,) = (
                input_gradient(DENSE, {"dy": _rows(sums[i]), "w": w}, Activation.NONE, _rows(dx)) or ()
            )
            product.args.accumulate = int(sweep.number + i > 0)
            made.append(product)
    return made


def _weights(dz: Array | None, x: Array | None, w: Array | None, b: Array | None) -> list[Call]:
    updates = {name: gradient_only(out) for name, out in (("w", w), ("b", b)) if out is not None}
    if not updates or dz is None or x is None:
        return []
    arrays = {"dy": _rows(dz), "x": _rows(x), "w": w, "b": b}
    return list(weight_gradients(DENSE, (dz.shape[-1], x.shape[-1]), updates, arrays) or [])
