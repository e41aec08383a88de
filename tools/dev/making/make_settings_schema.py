"""Writes docs/settings.schema.json: what `circle-train plus` reads, from the settings classes themselves."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import Field, fields
from pathlib import Path
from typing import Any

import circle_train as ct
from circle_train.fitting.metrics.scores import BY_NAME as METRICS
from circle_train.settings.as_json import GROUP, QUANTIZE, SCHEDULES

TARGET = Path(__file__).parents[3] / "docs" / "settings.schema.json"
WORDS = {"reduction": ["mean", "sum", "none"], "style": ["torch", "ort"]}
KINDS = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "Sequence": "array",
    "None": "null",
}


def schema() -> dict[str, Any]:
    """The whole schema."""
    loss, optimizer = either("loss", ct.losses.BY_NAME), either("optimizer", ct.optimizers.BY_NAME)
    trainable = [
        {"enum": ["all", "none"]},
        {"type": "string", "pattern": "^last:-?[0-9]+$"},
        {"type": "array", "items": {"type": "integer", "minimum": 0}},
        {"type": "array", "items": {"type": "string"}, "description": "parameter names or patterns"},
    ]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "circle_train training settings",
        "description": "What `circle-train plus MODEL SETTINGS.json` reads, besides ONERT's own JSON.",
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "loss": {
                "anyOf": [
                    *loss["anyOf"],
                    {"type": "array", "items": loss, "description": "one for each output"},
                ]
            },
            "optimizer": optimizer,
            "batch_size": {"type": "integer", "minimum": 1, "default": 32},
            "trainable": {"anyOf": trainable, "default": "all"},
            "frozen": {"type": "array", "items": {"type": "string"}, "description": "names or patterns"},
            "metrics": {"type": "array", "items": either("metric", METRICS)},
            "loss_weights": {"type": "array", "items": {"type": "number"}},
            "epochs": {"type": "integer", "minimum": 0},
            "batch_norm": {"enum": ["frozen", "train"], "default": "frozen"},
            "dropout": {"type": "boolean", "default": True},
            "memory_budget": {"type": ["integer", "string"], "description": "bytes, or a text like 150MB"},
            "activations": {"enum": ["float32", "bfloat16"], "default": "float32"},
            "quantize": {"$ref": "#/$defs/quantize"},
            "extra_outputs": {"type": "array", "items": {"type": "string"}},
            "outputs": {"type": "array", "items": {"type": "string"}, "description": "tensors to train at"},
        },
        "$defs": {
            "loss": part(ct.losses.BY_NAME),
            "optimizer": part(ct.optimizers.BY_NAME),
            "schedule": part(SCHEDULES),
            "metric": part(METRICS),
            "group": part(GROUP),
            "quantize": part(QUANTIZE),
        },
    }


def either(name: str, table: Mapping[str, type]) -> dict[str, Any]:
    """A name by itself, or an object with settings."""
    return {"anyOf": [{"enum": sorted(table)}, {"$ref": f"#/$defs/{name}"}]}


def part(table: Mapping[str, type]) -> dict[str, Any]:
    """An object of one of these types; its settings are those of all of them."""
    properties: dict[str, Any] = {"type": {"enum": sorted(table)}}
    for cls in dict.fromkeys(table.values()):
        for field in fields(cls):
            properties.setdefault(field.name, value(field))
    return {"type": "object", "required": ["type"], "additionalProperties": False, "properties": properties}


def value(field: Field[Any]) -> dict[str, Any]:
    """What a setting may be, from its annotation."""
    annotation = str(field.type)
    if field.name in WORDS:
        return {"enum": WORDS[field.name]}
    if field.name == "groups":
        return {"type": "array", "items": {"$ref": "#/$defs/group"}}
    if "Schedule" in annotation:
        return {"anyOf": [{"type": "number", "exclusiveMinimum": 0}, {"$ref": "#/$defs/schedule"}]}
    kinds = [
        kind for word, kind in KINDS.items() if word in annotation.replace("Sequence[float]", "Sequence")
    ]
    return {"type": kinds[0] if len(kinds) == 1 else kinds} if kinds else {}


def main() -> int:
    TARGET.write_text(json.dumps(schema(), indent=2) + "\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
