"""Read the facts of Circle 0.10 off the `circle-schema` package; write the Python table and the .fbs files.

    python tools/dev/make_schema.py            # rewrites circle_train/format/schema.py and schema/*.fbs

Facts are field ids, types, defaults and enumeration values. What generated Python does not tell (which
enumeration a scalar belongs to, which union a table is a member of) and the training table, which no package
holds, is written here.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Field(NamedTuple):
    """One slot of a table; type is a scalar, "string", a table, "union", or one of those in brackets."""

    name: str
    type: str
    default: int | float | bool | None = None
    kind: str = ""
    """The enumeration of a scalar, the union of a union field."""


Table = tuple["Field | None", ...]
"""Fields in slot order; None where a slot is deprecated."""

SCALARS = {
    "Bool": "bool", "Int8": "int8", "Uint8": "uint8", "Int16": "int16", "Uint16": "uint16", "Int32": "int32",
    "Uint32": "uint32", "Int64": "int64", "Uint64": "uint64", "Float32": "float32", "Float64": "float64",
}  # fmt: skip
FBS_SCALARS = {"int8": "byte", "uint8": "ubyte", "int16": "short", "uint16": "ushort", "int32": "int", "uint32": "uint",
               "int64": "long", "uint64": "ulong", "float32": "float", "float64": "double"}  # fmt: skip
UNIONS = {"builtin_options": "BuiltinOptions", "builtin_options_2": "BuiltinOptions2", "details": "QuantizationDetails",
          "array_segments": "SparseIndexVector", "array_indices": "SparseIndexVector"}  # fmt: skip
ENUMS = {
    "fused_activation_function": "ActivationFunctionType", "padding": "Padding", "builtin_code": "BuiltinOperator",
    "custom_options_format": "CustomOptionsFormat", "in_data_type": "TensorType", "out_data_type": "TensorType",
    "output_type": "TensorType", "index_out_type": "TensorType", "idx_out_type": "TensorType",
    "weights_format": "FullyConnectedOptionsWeightsFormat", "combiner": "CombinerType", "value_dtype": "TensorType",
    "key_dtype": "TensorType", "data_format": "DataFormat", "kernel_type": "LSTMKernelType",
    "compression_type": "CompressionType", "output_element_type": "TensorType",
    "comparison_direction": "StablehloComparisonDirection", "compare_type": "StablehloComparisonType",
    "algorithm": "RngAlgorithm", "reduce_function": "ReduceWindowFunction", "quantized_bias_type": "TensorType",
    "out_type": "TensorType", "composite_attributes_format": "CustomOptionsFormat",
}  # fmt: skip
ENUMS_OF_TABLE = {
    ("Tensor", "type"): "TensorType", ("VariantSubType", "type"): "TensorType",
    ("DimensionMetadata", "format"): "DimensionType", ("MirrorPadOptions", "mode"): "MirrorPadMode",
    ("RoPEOptions", "mode"): "RoPEMode", ("LSHProjectionOptions", "type"): "LSHProjectionType",
}  # fmt: skip

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


def read_package(package: ModuleType) -> tuple[dict[str, Table], dict[str, dict[str, int]]]:
    """Tables and enumerations of a package that flatc generated."""
    tables: dict[str, Table] = {}
    enums: dict[str, dict[str, int]] = {}
    for info in pkgutil.iter_modules(package.__path__):
        module = importlib.import_module(f"{package.__name__}.{info.name}")
        cls = getattr(module, info.name, None)
        if cls is None:
            continue
        if hasattr(cls, "Init"):
            tables[info.name] = read_table(info.name, Path(str(module.__file__)).read_text())
        else:
            enums[info.name] = {name: value for name, value in vars(cls).items() if isinstance(value, int)}
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


def circle_only(circle: dict[str, dict[str, int]], tflite: dict[str, dict[str, int]]) -> dict[str, list[int]]:
    """Values that Circle added to enumerations of TFLite."""
    added = {name: sorted(set(circle[name].values()) - set(tflite[name].values())) for name in sorted(tflite)}
    return {name: values for name, values in added.items() if values}


def other_slots(circle: dict[str, Table], tflite: dict[str, Table]) -> dict[str, Table]:
    """TFLite's tables whose slots mean something else than Circle's (a mere prefix or another name does not count)."""

    def kinds(table: Table) -> list[tuple[object, ...] | None]:
        return [None if field is None else field[1:] for field in table]

    return {n: t for n, t in sorted(tflite.items()) if kinds(t) != kinds(circle[n])[: len(t)]}


def python_source() -> str:
    """The text of circle_train/format/schema.py."""
    import circle_schema.v0_10.circle
    import tflite

    tables, classes = read_package(circle_schema.v0_10.circle)
    tflite_tables, tflite_classes = read_package(tflite)
    unions = {n: {v: m for m, v in classes[n].items() if v} for n in sorted(set(UNIONS.values()))}
    enums = {n: members for n, members in sorted(classes.items()) if n not in unions} | TRAINING_ENUMS
    lines = [
        '"""Field ids, types, defaults and enumerations of Circle 0.10 and CTR0. Written by tools/dev/make_schema.py."""',
        "",
        "from __future__ import annotations",
        "",
        "from typing import Any",
        "",
        "FieldFact = tuple[str, str, Any, str]",
        '"""Name, type, default, and the enumeration or union that it belongs to."""',
        "",
        "TABLES: dict[str, tuple[FieldFact | None, ...]] = {",
        *table_lines(dict(sorted(tables.items())) | TRAINING_TABLES),
        "}",
        '"""Fields in slot order; None where a slot is deprecated."""',
        "",
        "TFLITE_TABLES: dict[str, tuple[FieldFact | None, ...]] = {",
        *table_lines(other_slots(tables, tflite_tables)),
        "}",
        '"""Where TFLite uses a slot otherwise."""',
        "",
        "ENUMS: dict[str, dict[str, int]] = {",
        *(line for name, members in enums.items() for line in enum_lines(name, members)),
        "}",
        "",
        "UNIONS: dict[str, dict[int, str]] = {",
        *(line for name, members in (unions | TRAINING_UNIONS).items() for line in enum_lines(name, members)),
        "}",
        "",
        "CIRCLE_ONLY: dict[str, tuple[int, ...]] = {",
        *(f'    "{name}": {tuple(values)},' for name, values in circle_only(classes, tflite_classes).items()),
        "}",
        '"""Values that TFLite does not know."""',
        "",
    ]
    return "\n".join(lines)


def table_lines(tables: dict[str, Table]) -> list[str]:
    lines = []
    for name, table in tables.items():
        if not table:
            lines.append(f'    "{name}": (),')
            continue
        lines.append(f'    "{name}": (')
        lines += [f"        {literal(tuple(field)) if field else None}," for field in table]
        lines.append("    ),")
    return lines


def enum_lines(name: str, members: dict[str, int] | dict[int, str]) -> list[str]:
    return [
        f'    "{name}": {{',
        *(f"        {literal(key)}: {literal(value)}," for key, value in members.items()),
        "    },",
    ]


def literal(value: object) -> str:
    """repr with double quotes."""
    return repr(value).replace("'", '"')


def fbs_source(tables: dict[str, Table], identifier: str, extension: str, root: str, namespace: str) -> str:
    """A schema file in flatbuffers' own language."""
    sys.path.insert(0, str(ROOT))
    from circle_train.format.schema import ENUMS as enums
    from circle_train.format.schema import UNIONS as unions

    base = {f.kind: f.type for table in tables.values() for f in table if f and f.kind and f.type != "union"}
    lines = [f"// Written by tools/dev/make_schema.py from field ids, types and values; see schema/README.md.",
             "", f"namespace {namespace};", "", f'file_identifier "{identifier}";', f'file_extension "{extension}";', ""]  # fmt: skip
    for name in sorted(kind for kind in base if kind in enums):
        members = sorted(enums[name].items(), key=lambda item: item[1])
        lines += [
            f"enum {name} : {FBS_SCALARS[base[name]]} {{",
            *(f"  {m} = {v}," for m, v in members),
            "}",
            "",
        ]
    for name in sorted(kind for kind in base if kind in unions):
        lines += [f"union {name} {{", *(f"  {m} = {v}," for v, m in sorted(unions[name].items())), "}", ""]
    for name, table in tables.items():
        lines += [f"table {name} {{", *(fbs_field(table, slot, enums) for slot in range(len(table))), "}", ""]
    return "\n".join([*(line for line in lines if line != "  "), f"root_type {root};", ""])


def fbs_field(table: Table, slot: int, enums: dict[str, dict[str, int]]) -> str:
    """One line of a table; the tag of a union is implied by the union."""
    field = table[slot]
    if field is None:
        return f"  unused_{slot}:byte (id: {slot}, deprecated);"
    if field.kind and field.type == "uint8":
        return "  "
    if field.type == "union":
        return f"  {field.name}:{field.kind} (id: {slot});"
    inner = field.type.strip("[]")
    type_ = field.type.replace(inner, FBS_SCALARS.get(inner, inner))
    default = ""
    if field.kind:
        type_ = field.kind
        default = " = " + next(
            member for member, value in enums[field.kind].items() if value == field.default
        )
    elif field.default:
        default = f" = {str(field.default).lower()}"
    return f"  {field.name}:{type_}{default} (id: {slot});"


def main() -> None:
    import circle_schema.v0_10.circle

    (ROOT / "circle_train/format/schema.py").write_text(python_source())
    tables, _ = read_package(circle_schema.v0_10.circle)
    (ROOT / "schema/circle.fbs").write_text(fbs_source(tables, "CIR0", "circle", "Model", "circle"))
    training = fbs_source(TRAINING_TABLES, "CTR0", "circletr", "ModelTraining", "circle_training")
    (ROOT / "schema/circle_training.fbs").write_text(training)


if __name__ == "__main__":
    main()
