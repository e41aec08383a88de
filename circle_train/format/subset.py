"""What Circle has and TFLite has not, refused by name before a .tflite file is written."""

from __future__ import annotations

from collections.abc import Iterator

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.format.decode import Table
from circle_train.format.nodes import OPERATORS, read_operator_code
from circle_train.format.schema import CIRCLE_ONLY
from circle_train.ir import DType


def check_tflite(root: Table) -> None:
    """Refuse a model that TFLite cannot express, naming everything that is in the way."""
    codes = {code.code for code in map(read_operator_code, root["operator_codes"])}
    unknown = sorted(OPERATORS[code] for code in codes & set(CIRCLE_ONLY["BuiltinOperator"]))
    if unknown:
        raise UnsupportedOpError(
            f"operators {', '.join(unknown)} exist in Circle only, not in .tflite files; save as .circle"
        )
    problems = [problem for graph in root["subgraphs"] for problem in _problems(graph)]
    if problems:
        raise ModelError(
            f"{'; '.join(problems[:8])}: exists in Circle only, not in .tflite files; save as .circle"
        )


def _problems(graph: Table) -> Iterator[str]:
    for tensor in graph["tensors"]:
        if tensor["type"] in CIRCLE_ONLY["TensorType"]:
            yield f"tensor '{tensor['name']}' of type {DType(tensor['type']).name}"
        if tensor.get("compression_type", 0):
            yield f"compressed tensor '{tensor['name']}'"
        details = (tensor.get("quantization") or {}).get("details_type", 0)
        if details in CIRCLE_ONLY["QuantizationDetails"]:
            yield f"quantization details {details} of tensor '{tensor['name']}'"
    for index, operator in enumerate(graph["operators"]):
        for field, union in (
            ("builtin_options_type", "BuiltinOptions"),
            ("builtin_options_2_type", "BuiltinOptions2"),
        ):
            if operator.get(field, 0) in CIRCLE_ONLY[union]:
                yield f"{field} {operator[field]} of operator {index}"
        options = operator.get("builtin_options")
        if (
            isinstance(options, dict)
            and options.get("weights_format", 0) in CIRCLE_ONLY["FullyConnectedOptionsWeightsFormat"]
        ):
            yield f"weights_format {options['weights_format']} of operator {index}"
