"""LSTM operators with TFLite's options: peepholes, projection, layer normalisation, coupled gates."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from circle_train.ir import TensorType
from circle_train.ir.tensor_type import Array
from circle_train.ops.attributes import Activation
from circle_train.ops.base import Example, random, register
from circle_train.ops.layers.recurrence import Cell, LstmCell
from circle_train.ops.layers.recurrent import AUXILIARY, STATES, Recurrent, both, example, with_inputs
from circle_train.record import record

WEIGHTS = (
    "w_i", "w_f", "w_g", "w_o", "r_i", "r_f", "r_g", "r_o", "p_i", "p_f", "p_o", "b_i", "b_f", "b_g", "b_o",
    "w_p", "b_p",
)  # fmt: skip
NORMS = ("n_i", "n_f", "n_g", "n_o")
NEEDED = ("w_f", "w_g", "w_o", "r_f", "r_g", "r_o", "b_f", "b_g", "b_o")
AUXILIARY_WEIGHTS = ("a_i", "a_f", "a_g", "a_o")


def weights_of(
    prefix: str, *, cifg: bool = False, peephole: bool = False, projection: bool = False, norm: bool = False
) -> dict[str, Array]:
    """Weights of an LSTM with 3 inputs, 4 units and 2 samples, for the examples."""
    outputs = 2 if projection else 4
    values = {f"w_{gate}": random(4, 3, seed=i) for i, gate in enumerate("ifgo")}
    values |= {f"r_{gate}": random(4, outputs, seed=i + 4) for i, gate in enumerate("ifgo")}
    values |= {f"b_{gate}": random(4, seed=i + 8) for i, gate in enumerate("ifgo")}
    if peephole:
        values |= {f"p_{gate}": random(4, seed=i + 12) for i, gate in enumerate("ifo")}
    if projection:
        values |= {"w_p": random(2, 4, seed=16), "b_p": random(2, seed=17)}
    if norm:
        values |= {f"n_{gate}": random(4, seed=i + 20, low=0.5, high=1.5) for i, gate in enumerate("ifgo")}
    values |= {"h": random(2, outputs, seed=30), "c": random(2, 4, seed=31)}
    return {prefix + name: value for name, value in values.items() if not (cifg and name.endswith("_i"))}


@record
class Lstm(Recurrent):
    """Options that the two LSTM operators share."""

    fused_activation_function: Activation = Activation.TANH
    cell_clip: float = 0.0
    proj_clip: float = 0.0

    def cell(self, weights: dict[str, Any]) -> Cell:
        return LstmCell(weights, self.fused_activation_function, self.cell_clip, self.proj_clip)

    def units(self, shapes: dict[str, TensorType | None]) -> int:
        projection, w = shapes["w_p"], shapes["w_f"]
        return projection.shape[0] if projection is not None else w.shape[0] if w is not None else -1


@register("UNIDIRECTIONAL_SEQUENCE_LSTM", "UnidirectionalSequenceLSTMOptions")
@with_inputs(("x", *WEIGHTS, *STATES, *NORMS), {"x", *NEEDED})
@record
class UnidirectionalSequenceLstm(Lstm):
    time_major: bool = False
    asymmetric_quantize_inputs: bool = False
    diagonal_recurrent_tensors: bool = False

    @classmethod
    def examples(cls) -> Iterable[Example]:
        x = random(2, 5, 3)
        yield example(cls(), x, weights_of(""))
        yield example(cls(), x, {name: value for name, value in weights_of("").items() if name not in STATES})
        yield example(cls(time_major=True), random(5, 2, 3), weights_of(""))
        for option in ("cifg", "peephole", "projection", "norm"):
            yield example(cls(), x, weights_of("", **{option: True}))
        yield example(cls(), x, weights_of("", cifg=True, peephole=True, projection=True, norm=True))
        yield example(cls(cell_clip=0.4, proj_clip=0.3), x, weights_of("", projection=True))
        yield example(cls(Activation.RELU), x, weights_of(""))
        diagonals = {name: value[:, 0] if name[0] == "r" else value for name, value in weights_of("").items()}
        yield example(cls(diagonal_recurrent_tensors=True), x, diagonals)


@register("BIDIRECTIONAL_SEQUENCE_LSTM", "BidirectionalSequenceLSTMOptions")
@with_inputs(("x", *both(WEIGHTS), *both(STATES), AUXILIARY, *both(AUXILIARY_WEIGHTS)), {"x", *both(NEEDED)})
@record
class BidirectionalSequenceLstm(Lstm):
    merge_outputs: bool = False
    time_major: bool = True
    asymmetric_quantize_inputs: bool = False

    prefixes = ("fw_", "bw_")

    @classmethod
    def examples(cls) -> Iterable[Example]:
        values = {**weights_of("fw_"), **weights_of("bw_")}
        for merge in (False, True):
            yield example(cls(merge_outputs=merge), random(5, 2, 3), values)
            yield example(cls(merge_outputs=merge, time_major=False), random(2, 5, 3), values)
        whole = {"cifg": True, "peephole": True, "projection": True}
        values = {**weights_of("fw_", **whole), **weights_of("bw_", **whole)}
        yield example(cls(Activation.RELU, cell_clip=0.4, proj_clip=0.35), random(5, 2, 3), values)
        values = {**weights_of("fw_", peephole=True), **weights_of("bw_", peephole=True)}
        yield example(cls(), random(5, 2, 3), values)
