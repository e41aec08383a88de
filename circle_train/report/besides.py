"""What a process takes besides a training step, by what for; a memory budget covers it too."""

from __future__ import annotations

from collections.abc import Mapping

from circle_train.compile.program import Program
from circle_train.model import Model
from circle_train.runtime.executor import OPERATOR

BATCHES = 3
"""Of the data: the one that is trained, the next, and the one that is being made."""
ENTRY, EXPORTED, REPORTED = 2_600, 7_200, 2_800
"""Bytes for an array of a checkpoint, for an operator of an exported file, for one of a report; as measured by
tools/dev/measuring/besides.py on models of 3 to 300 operators. The arrays themselves are written from where they lie."""
PACKAGE = 7_000_000
"""What Python, numpy with its random numbers and this package take before a model is opened, and what compiling and files leave
behind, beyond 45 MB; as measured by tools/dev/measuring/budgets.py."""
ACCUMULATING = 4
"""Programs that accumulated gradients take: the batch's, its parts', what takes a part back, and what making them leaves;
as measured by tools/dev/measuring/budgets.py on a model that is taken in parts."""
CONVERTER, CONVERTED = 2_100_000, 6_000
"""Bytes that stay taken: the converter's code, and what it leaves behind for one operator; as measured by
tools/dev/memory.py on models of 3 to 300 operators."""
WHAT_FOR = {
    "package": "its code, beyond the 45 MB that come on top of a budget",
    "data": "three batches",
    "evaluation": "its program, in the step's memory",
    "prediction": "its program, in the step's memory",
    "accumulation": "its program, in the step's memory",
    "checkpoint": "written array by array",
    "export": "written array by array",
    "report": "a page",
    "conversion": "the converter",
    "gradients that wait": "for update()",
    "best weights": "that a callback gives back",
}


def besides_bytes(program: Program, model: Model, reserved: Mapping[str, int]) -> dict[str, int]:
    """By what for; `reserved` is what the session's user has turned out to need."""
    operators, forward = len(program.operators), program.forward_nodes
    keys = {tensor.state for tensor in program.graph.all_tensors() if tensor.state is not None}
    arrays = sum(key.kind != "gradient" for key in keys) + len(program.trained)
    # weights on grids, of which these compute as the file does
    stored = sum(p.tensor.type.size for p in program.parameters if p.tensor.quantization is not None)
    found = {
        "package": PACKAGE,
        "data": BATCHES * sum(tensor.type.nbytes for tensor in (*program.inputs, *program.targets)),
        "evaluation": OPERATOR * forward + 2 * stored,  # as the file holds them, and in panels
        "prediction": OPERATOR * forward + stored,
        "accumulation": ACCUMULATING * OPERATOR * operators,
        "checkpoint": ENTRY * arrays,
        "export": EXPORTED * forward,
        "report": REPORTED * operators,
        "conversion": conversion_bytes(model),
    }
    return {**found, **reserved}


def conversion_bytes(model: Model) -> int:
    """What is left of making the model from an ONNX file."""
    if model.provenance is None or model.provenance.source is None:
        return 0
    return CONVERTER + CONVERTED * len(model.module.main.nodes)
