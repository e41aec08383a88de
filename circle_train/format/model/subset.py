"""What Circle has and TFLite has not, refused by name before a .tflite file is written."""

from __future__ import annotations

from collections.abc import Iterator

from circle_train.errors import ModelError, UnsupportedOpError
from circle_train.format.flatbuffer.decode import Table
from circle_train.format.flatbuffer.schema import CIRCLE_ONLY
from circle_train.format.model.nodes import OPERATORS, read_operator_code
from circle_train.format.model.patch import COMMON_DETAILS
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
        quantization = tensor.get("quantization") or {}
        if quantization.get("details_type", 0) > COMMON_DETAILS and isinstance(
            quantization.get("details"), dict
        ):
            yield f"quantization details {quantization['details_type']} of tensor '{tensor['name']}'"
    for index, operator in enumerate(graph["operators"]):
        if operator.get("builtin_options_type", 0) in CIRCLE_ONLY["BuiltinOptions"]:
            yield f"options of type {operator['builtin_options_type']} of operator {index}"
        options = operator.get("builtin_options")
        weights = options.get("weights_format", 0) if isinstance(options, dict) else 0
        if weights in CIRCLE_ONLY["FullyConnectedOptionsWeightsFormat"]:
            yield f"weights_format {weights} of operator {index}"
