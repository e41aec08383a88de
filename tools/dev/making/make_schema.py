"""Read the facts of Circle 0.10 off the `circle-schema` package; write the Python table and the .fbs files.

    python tools/dev/making/make_schema.py            # rewrites circle_train/format/flatbuffer/schema.py and schema/*.fbs

Facts are field ids, types, defaults and enumeration values. What generated Python does not tell (which
enumeration a scalar belongs to, which union a table is a member of), the training table, which no package holds, and TFLite's
metadata are written here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

import circle_schema.v0_10.circle
import tflite

ROOT = Path(__file__).resolve().parents[3]


class Field(NamedTuple):
    """One slot of a table; type is a scalar, "string", a table, "union", or one of those in brackets."""

    name: str
    type: str
    default: int | float | bool | None = None
    kind: str = ""
    """The enumeration of a scalar, the union of a union field."""


Table = tuple["Field | None", ...]
"""Fields in slot order; None where a slot is deprecated."""
Enums = dict[str, dict[str, int]]


class Facts(NamedTuple):
    """What the generated files say."""

    tables: dict[str, Table]
    tflite_tables: dict[str, Table]
    enums: Enums
    unions: dict[str, dict[int, str]]
    circle_only: dict[str, tuple[int, ...]]


SCALARS = {
    "Bool": "bool", "Int8": "int8", "Uint8": "uint8", "Int16": "int16", "Uint16": "uint16",
    "Int32": "int32", "Uint32": "uint32", "Int64": "int64", "Uint64": "uint64", "Float32": "float32",
    "Float64": "float64",
}  # fmt: skip
FBS_SCALARS = {
    "int8": "byte", "uint8": "ubyte", "int16": "short", "uint16": "ushort", "int32": "int",
    "uint32": "uint", "int64": "long", "uint64": "ulong", "float32": "float", "float64": "double",
}  # fmt: skip
UNIONS = {
    "builtin_options": "BuiltinOptions", "builtin_options_2": "BuiltinOptions2",
    "details": "QuantizationDetails", "array_segments": "SparseIndexVector",
    "array_indices": "SparseIndexVector",
}  # fmt: skip
ENUMS = {
    "fused_activation_function": "ActivationFunctionType", "padding": "Padding",
    "builtin_code": "BuiltinOperator", "custom_options_format": "CustomOptionsFormat",
    "in_data_type": "TensorType", "out_data_type": "TensorType", "output_type": "TensorType",
    "index_out_type": "TensorType", "idx_out_type": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat", "combiner": "CombinerType",
    "value_dtype": "TensorType", "key_dtype": "TensorType", "data_format": "DataFormat",
    "kernel_type": "LSTMKernelType", "compression_type": "CompressionType",
    "output_element_type": "TensorType", "comparison_direction": "StablehloComparisonDirection",
    "compare_type": "StablehloComparisonType", "algorithm": "RngAlgorithm",
    "reduce_function": "ReduceWindowFunction", "quantized_bias_type": "TensorType",
    "out_type": "TensorType", "composite_attributes_format": "CustomOptionsFormat",
}  # fmt: skip
ENUMS_OF_TABLE = {
    ("Tensor", "type"): "TensorType", ("VariantSubType", "type"): "TensorType",
    ("DimensionMetadata", "format"): "DimensionType", ("MirrorPadOptions", "mode"): "MirrorPadMode",
    ("RoPEOptions", "mode"): "RoPEMode", ("LSHProjectionOptions", "type"): "LSHProjectionType",
}  # fmt: skip
TFLITE_DETAILS = "TFLiteQuantizationDetails"
"""Circle gave the number that TFLite's union uses next to a member of its own."""

TRAINING_ENUMS = {
    "OptimizerType": {"SGD": 0, "ADAM": 1},
    "LossFn": {"SPARSE_CATEGORICAL_CROSSENTROPY": 0, "CATEGORICAL_CROSSENTROPY": 1, "MEAN_SQUARED_ERROR": 2},
    "LossReductionType": {"SumOverBatchSize": 0, "Sum": 1},
}
TRAINING_UNIONS = {
    "OptimizerOptions": {1: "SGDOptions", 2: "AdamOptions"},
    "LossFnOptions": {1: "SparseCategoricalCrossentropyOptions", 2: "CategoricalCrossentropyOptions",
                      3: "MeanSquaredErrorOptions"},
}  # fmt: skip
TRAINING_TABLES: dict[str, Table] = {
    "SGDOptions": (Field("learning_rate", "float32", 0.0),),
    "AdamOptions": tuple(
        Field(name, "float32", 0.0) for name in ("learning_rate", "beta_1", "beta_2", "epsilon")
    ),
    "SparseCategoricalCrossentropyOptions": (Field("from_logits", "bool", False),),
    "CategoricalCrossentropyOptions": (Field("from_logits", "bool", False),),
    "MeanSquaredErrorOptions": (),
    "ModelTraining": (
        Field("version", "uint32", 0),
        Field("optimizer", "int8", 0, "OptimizerType"),
        Field("optimizer_opt_type", "uint8", 0, "OptimizerOptions"),
        Field("optimizer_opt", "union", None, "OptimizerOptions"),
        Field("lossfn", "int8", 0, "LossFn"),
        Field("lossfn_opt_type", "uint8", 0, "LossFnOptions"),
        Field("lossfn_opt", "union", None, "LossFnOptions"),
        Field("epochs", "int32", 0),
        Field("batch_size", "int32", 0),
        Field("loss_reduction_type", "int8", 0, "LossReductionType"),
        Field("trainable_ops", "[int32]"),
    ),
}

METADATA_ENUMS = {
    "AssociatedFileType": {"UNKNOWN": 0, "DESCRIPTIONS": 1, "TENSOR_AXIS_LABELS": 2, "TENSOR_VALUE_LABELS": 3,
                           "TENSOR_AXIS_SCORE_CALIBRATION": 4, "VOCABULARY": 5, "SCANN_INDEX_FILE": 6},
    "ColorSpaceType": {"UNKNOWN": 0, "RGB": 1, "GRAYSCALE": 2},
    "BoundingBoxType": {"UNKNOWN": 0, "BOUNDARIES": 1, "UPPER_LEFT": 2, "CENTER": 3},
    "CoordinateType": {"RATIO": 0, "PIXEL": 1},
    "ScoreTransformationType": {"IDENTITY": 0, "LOG": 1, "INVERSE_LOGISTIC": 2},
}  # fmt: skip
METADATA_UNIONS = {
    "ContentProperties": {1: "FeatureProperties", 2: "ImageProperties", 3: "BoundingBoxProperties",
                          4: "AudioProperties"},
    "ProcessUnitOptions": {1: "NormalizationOptions", 2: "ScoreCalibrationOptions", 3: "ScoreThresholdingOptions",
                           4: "BertTokenizerOptions", 5: "SentencePieceTokenizerOptions",
                           6: "RegexTokenizerOptions"},
}  # fmt: skip
METADATA_TABLES: dict[str, Table] = {
    "AssociatedFile": (
        Field("name", "string"),
        Field("description", "string"),
        Field("type", "int8", 0, "AssociatedFileType"),
        Field("locale", "string"),
        Field("version", "string"),
    ),
    "FeatureProperties": (),
    "ImageSize": (Field("width", "uint32", 0), Field("height", "uint32", 0)),
    "ImageProperties": (
        Field("color_space", "int8", 0, "ColorSpaceType"),
        Field("default_size", "ImageSize"),
    ),
    "AudioProperties": (Field("sample_rate", "uint32", 0), Field("channels", "uint32", 0)),
    "BoundingBoxProperties": (
        Field("index", "[uint32]"),
        Field("type", "int8", 0, "BoundingBoxType"),
        Field("coordinate_type", "int8", 0, "CoordinateType"),
    ),
    "ValueRange": (Field("min", "int32", 0), Field("max", "int32", 0)),
    "Content": (
        Field("content_properties_type", "uint8", 0, "ContentProperties"),
        Field("content_properties", "union", None, "ContentProperties"),
        Field("range", "ValueRange"),
    ),
    "NormalizationOptions": (Field("mean", "[float32]"), Field("std", "[float32]")),
    "ScoreCalibrationOptions": (
        Field("score_transformation", "int8", 0, "ScoreTransformationType"),
        Field("default_score", "float32", 0.0),
    ),
    "ScoreThresholdingOptions": (Field("global_score_threshold", "float32", 0.0),),
    "BertTokenizerOptions": (Field("vocab_file", "[AssociatedFile]"),),
    "SentencePieceTokenizerOptions": (
        Field("sentencePiece_model", "[AssociatedFile]"),
        Field("vocab_file", "[AssociatedFile]"),
    ),
    "RegexTokenizerOptions": (
        Field("delim_regex_pattern", "string"),
        Field("vocab_file", "[AssociatedFile]"),
    ),
    "ProcessUnit": (
        Field("options_type", "uint8", 0, "ProcessUnitOptions"),
        Field("options", "union", None, "ProcessUnitOptions"),
    ),
    "Stats": (Field("max", "[float32]"), Field("min", "[float32]")),
    "TensorGroup": (Field("name", "string"), Field("tensor_names", "[string]")),
    "TensorMetadata": (
        Field("name", "string"),
        Field("description", "string"),
        Field("dimension_names", "[string]"),
        Field("content", "Content"),
        Field("process_units", "[ProcessUnit]"),
        Field("stats", "Stats"),
        Field("associated_files", "[AssociatedFile]"),
    ),
    "CustomMetadata": (Field("name", "string"), Field("data", "[uint8]")),
    "SubGraphMetadata": (
        Field("name", "string"),
        Field("description", "string"),
        Field("input_tensor_metadata", "[TensorMetadata]"),
        Field("output_tensor_metadata", "[TensorMetadata]"),
        Field("associated_files", "[AssociatedFile]"),
        Field("input_process_units", "[ProcessUnit]"),
        Field("output_process_units", "[ProcessUnit]"),
        Field("input_tensor_groups", "[TensorGroup]"),
        Field("output_tensor_groups", "[TensorGroup]"),
        Field("custom_metadata", "[CustomMetadata]"),
    ),
    "ModelMetadata": (
        Field("name", "string"),
        Field("description", "string"),
        Field("version", "string"),
        Field("subgraph_metadata", "[SubGraphMetadata]"),
        Field("author", "string"),
        Field("license", "string"),
        Field("associated_files", "[AssociatedFile]"),
        Field("min_parser_version", "string"),
    ),
}


def read_package(package: ModuleType) -> tuple[dict[str, Table], Enums]:
    """Tables and enumerations of a package that flatc generated."""
    tables: dict[str, Table] = {}
    enums: Enums = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        cls = getattr(module, info.name, None)
        if cls is None:
            continue
        if hasattr(cls, "Init"):
            tables[info.name] = read_table(info.name, Path(str(module.__file__)).read_text())
        else:
            members = {name: value for name, value in vars(cls).items() if not name.startswith("__")}
            enums[info.name] = {name: value for name, value in members.items() if isinstance(value, int)}
    return tables, enums


def read_table(table: str, source: str) -> Table:
    """The slots that a generated module adds."""
    count = re.search(rf"def {table}Start\(builder\):\s+(?:return )?builder.StartObject\((\d+)\)", source)
    assert count, table
    slots: list[Field | None] = [None] * int(count.group(1))
    pattern = rf"def {table}Add(\w+)\(builder, (\w+)\):\s+builder\.Prepend(\w+)Slot\((\d+), .*, ([^,]+)\)\n"
    for camel, argument, kind, slot, default in re.findall(pattern, source):
        slots[int(slot)] = read_field(table, snake(argument), camel, kind, default, source)
    return tuple(slots)


def read_field(table: str, name: str, camel: str, kind: str, default: str, source: str) -> Field:
    """Type and default of one field, from its Add function and its getter."""
    getter = re.search(rf"    def {camel}\(self(?:, j)?\):\n(.*?)(?=\n\n|\n    # |\Z)", source, re.S)
    assert getter, (table, name)
    body = getter.group(1)
    if kind != "UOffsetTRelative":
        type_ = SCALARS[kind]
        number = (
            bool(int(float(default)))
            if type_ == "bool"
            else float(default)
            if "float" in type_
            else int(default)
        )
        stem = name.removesuffix("_type")
        enum = (
            ENUMS_OF_TABLE.get((table, name))
            or ENUMS.get(name, "")
            or (name != stem and UNIONS.get(stem))
            or ""
        )
        return Field(name, type_, number, enum if type_ != "bool" else "")
    inner = element_type(body)
    if f"def {table}Start{camel}Vector" in source:
        return Field(name, f"[{inner}]")
    return Field(name, inner, None, UNIONS[name] if inner == "union" else "")


def element_type(getter: str) -> str:
    """What the getter of an offset or vector returns."""
    if "obj = Table(" in getter:
        return "union"
    if found := re.search(r"import (\w+)\n\s+obj = ", getter):
        return found.group(1)
    if found := re.search(r"Get\(flatbuffers\.number_types\.(\w+)Flags, a", getter):
        return SCALARS[found.group(1)]
    assert "_tab.String(" in getter, getter
    return "string"


def snake(name: str) -> str:
    """builtinOptions2Type → builtin_options_2_type; potScaleInt16 → pot_scale_int16."""
    return re.sub(r"([A-Z])", r"_\1", name).lower().replace("options2", "options_2")


def circle_only(circle: Enums, tflite: Enums) -> dict[str, tuple[int, ...]]:
    """Values that Circle added to TFLite's enumerations; StableHLO's are newer TFLite, not Circle."""
    added = {
        name: tuple(
            sorted(
                value
                for member, value in circle[name].items()
                if value not in tflite[name].values() and not member.upper().startswith("STABLEHLO")
            )
        )
        for name in sorted(tflite)
    }
    return {name: values for name, values in added.items() if values}


def other_slots(circle: dict[str, Table], tflite: dict[str, Table]) -> dict[str, Table]:
    """TFLite's tables that have other slots than Circle's (other names do not count)."""

    def kinds(table: Table) -> list[tuple[object, ...] | None]:
        return [None if field is None else field[1:] for field in table]

    return {n: t for n, t in sorted(tflite.items()) if kinds(t) != kinds(circle[n])}


def gather() -> Facts:
    """Everything that the packages tell, and what stands above."""
    tables, classes = read_package(circle_schema.v0_10.circle)
    tflite_tables, tflite_classes = read_package(tflite)
    names = set(UNIONS.values())
    unions = {name: {v: m for m, v in classes[name].items() if v} for name in sorted(names)}
    enums = {name: members for name, members in sorted(classes.items()) if name not in names}
    unions[TFLITE_DETAILS] = {v: m for m, v in tflite_classes["QuantizationDetails"].items() if v}
    parameters = [
        field._replace(kind=TFLITE_DETAILS) if field and field.kind == "QuantizationDetails" else field
        for field in tflite_tables["QuantizationParameters"]
    ]
    tflite_tables["QuantizationParameters"] = tuple(parameters)
    return Facts(
        tables=dict(sorted(tables.items())) | TRAINING_TABLES | METADATA_TABLES,
        tflite_tables=other_slots(tables, tflite_tables),
        enums=enums | TRAINING_ENUMS | METADATA_ENUMS,
        unions=unions | TRAINING_UNIONS | METADATA_UNIONS,
        circle_only=circle_only(classes, tflite_classes),
    )


def python_source(facts: Facts) -> str:
    """The text of circle_train/format/flatbuffer/schema.py."""
    types = "dict[str, tuple[FieldFact | None, ...]]"
    return f'''"""The facts of Circle 0.10, CTR0 and TFLite's metadata; written by tools/dev/making/make_schema.py."""

from __future__ import annotations

from typing import Any

FieldFact = tuple[str, str, Any, str]
"""Name, type, default, and the enumeration or union that it belongs to."""

TABLES: {types} = {table_literal(facts.tables)}
"""Fields in slot order; None where a slot is deprecated."""

TFLITE_TABLES: {types} = {table_literal(facts.tflite_tables)}
"""Tables in which TFLite has other slots."""

ENUMS: dict[str, dict[str, int]] = {dict_literal(facts.enums)}

UNIONS: dict[str, dict[int, str]] = {dict_literal(facts.unions)}

CIRCLE_ONLY: dict[str, tuple[int, ...]] = {dict_literal(facts.circle_only)}
"""Values that TFLite does not know."""
'''


def table_literal(tables: dict[str, Table]) -> str:
    """A dict of tables, one line a field."""
    lines = []
    for name, table in tables.items():
        fields = "".join(f"\n        {literal(tuple(field)) if field else None}," for field in table)
        lines.append(f'    "{name}": ({fields}{chr(10) + "    " if fields else ""}),\n')
    return "{\n" + "".join(lines) + "}"


def dict_literal(entries: Mapping[str, object]) -> str:
    """A dict of small things, each wrapped."""
    lines = [f'    "{name}": {literal(value)},' for name, value in entries.items()]
    wrapped = [textwrap.fill(line, 110, subsequent_indent=" " * 8, break_on_hyphens=False) for line in lines]
    return "\n".join(["{", *wrapped, "}"])


def literal(value: object) -> str:
    """repr with double quotes."""
    return repr(value).replace("'", '"')


def fbs_source(facts: Facts, names: Iterable[str], root: str, identifier: str, extension: str) -> str:
    """A schema file in flatbuffers' own language, of the tables named."""
    tables = {name: facts.tables[name] for name in names}
    base = {f.kind: f.type for table in tables.values() for f in table if f and f.kind and f.type != "union"}
    parts = [
        "// Written by tools/dev/making/make_schema.py from field ids, types and values; see schema/README.md.",
        f'file_identifier "{identifier}";\nfile_extension "{extension}";',
    ]
    for name in sorted(base):
        if name in facts.enums:
            members = [
                f"  {m} = {v}," for m, v in sorted(facts.enums[name].items(), key=lambda item: item[1])
            ]
            parts.append(block(f"enum {name} : {FBS_SCALARS[base[name]]}", members))
        else:
            parts.append(
                block(f"union {name}", [f"  {m} = {v}," for v, m in sorted(facts.unions[name].items())])
            )
    for name, table in tables.items():
        lines = [fbs_field(facts, slot, field) for slot, field in enumerate(table)]
        parts.append(block(f"table {name}", [line for line in lines if line]))
    return "\n\n".join([*parts, f"root_type {root};"]) + "\n"


def block(head: str, lines: list[str]) -> str:
    return "\n".join([f"{head} {{", *lines, "}"])


def fbs_field(facts: Facts, slot: int, field: Field | None) -> str:
    """One line of a table; nothing for the tag of a union, which the union implies."""
    if field is None:
        return f"  unused_{slot}:byte (id: {slot}, deprecated);"
    if field.kind in facts.unions:
        return f"  {field.name}:{field.kind} (id: {slot});" if field.type == "union" else ""
    inner = field.type.strip("[]")
    type_ = field.kind or field.type.replace(inner, FBS_SCALARS.get(inner, inner))
    default = f" = {str(field.default).lower()}" if field.default else ""
    if field.kind:
        default = f" = {next(m for m, value in facts.enums[field.kind].items() if value == field.default)}"
    return f"  {field.name}:{type_}{default} (id: {slot});"


def generated(facts: Facts) -> dict[str, str]:
    """The files that this script writes, by their path in the repository."""
    circle = [name for name in facts.tables if name not in TRAINING_TABLES | METADATA_TABLES]
    return {
        "circle_train/format/flatbuffer/schema.py": python_source(facts),
        "schema/circle.fbs": fbs_source(facts, circle, "Model", "CIR0", "circle"),
        "schema/circle_training.fbs": fbs_source(facts, TRAINING_TABLES, "ModelTraining", "CTR0", "circletr"),
        "schema/tflite_metadata.fbs": fbs_source(
            facts, METADATA_TABLES, "ModelMetadata", "M001", "tflitemeta"
        ),
    }


def main() -> None:
    for path, text in generated(gather()).items():
        (ROOT / path).write_text(text)


if __name__ == "__main__":
    main()
