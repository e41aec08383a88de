"""What people and other programs must know to use a model: how samples become its input, what its outputs mean.

In the file it stands twice: as TFLite's metadata (`TFLITE_METADATA`, with the labels in a file behind the flatbuffer), which
MediaPipe and Android read, and as JSON, which says what TFLite's schema has no field for.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping
from dataclasses import asdict, field, replace
from typing import Any

import numpy as np

from circle_train.errors import ModelError, shown
from circle_train.format import flatbuffer
from circle_train.format.flatbuffer.decode import Table, decode
from circle_train.format.flatbuffer.schema import ENUMS, UNIONS
from circle_train.format.metadata.training_info import find, put
from circle_train.ir import Module
from circle_train.kinds import is_number
from circle_train.printable import lines, printable
from circle_train.record import record

ENTRY, OURS = "TFLITE_METADATA", "circle_train.description"
IDENTIFIER = b"M001"
LABELS = "labels.txt"
MANY = 8
"""Means are no longer written out."""
MOST_LABELS = 100_000
LARGEST_SIDE, FASTEST = 1 << 16, 1 << 20
"""Pixels of a side, and samples of a second or tokens, that a file may say a sample has."""
KINDS, SCORES = ("image", "audio", "features", "text"), ("softmax", "sigmoid", "values")
CONTENT = {"image": "ImageProperties", "audio": "AudioProperties"}


@record
class Description:
    """How samples become a model's input, and what its output means.

    Example:
        >>> from circle_train.format.metadata.description import Description
        >>> Description(kind="image", size=(224, 224), mean=(127.5,), std=(127.5,), labels=("cat", "dog")).range
        'pixels -1…1'
    """

    kind: str = "features"
    """"image", "audio", "features" or "text"."""
    size: tuple[int, int] | None = None
    """Height and width of images."""
    channels: int = 3
    sample_rate: int | None = None
    mean: tuple[float, ...] | None = None
    std: tuple[float, ...] | None = None
    """The input is (value - mean) / std, for all channels or for each; None: nobody knows."""
    labels: tuple[str, ...] = ()
    scores: str = "softmax"
    """What the outputs are: "softmax", "sigmoid" or "values"."""
    details: Mapping[str, Any] = field(default_factory=dict)
    """What only we read: how pictures are cut, how sounds are windowed, which columns a table had."""

    @property
    def range(self) -> str:
        """What pixels or samples become, in words."""
        if self.mean is None or self.std is None:
            return "values as they are"
        top = 255.0 if self.kind == "image" else 1.0
        bottom = 0.0 if self.kind == "image" else -1.0
        word = {"image": "pixels", "audio": "samples"}.get(self.kind, "values")
        if len({*self.mean}) > 1 or len({*self.std}) > 1:
            if len(self.mean) > MANY:
                return f"{word} of {len(self.mean)} columns, each less its mean and by its deviation"
            return f"{word} less {_numbers(self.mean)}, by {_numbers(self.std)}"
        low, high = ((end - self.mean[0]) / self.std[0] for end in (bottom, top))
        return f"{word} {_short(low)}…{_short(high)}"

    def __str__(self) -> str:
        parts = ["×".join(map(str, self.size))] if self.size else []
        parts += [f"{self.sample_rate} Hz"] if self.sample_rate else []
        parts.append(self.range)
        if self.labels:
            shown = ", ".join(self.labels[:8]) + (", …" if len(self.labels) > 8 else "")
            parts.append(f"{len(self.labels)} classes: {shown}")
        return ", ".join(parts)


def describe(module: Module, description: Description | None) -> Module:
    """A module that carries this description in place of an older one."""
    files = {name: raw for name, raw in module.attachments.items() if name != LABELS}
    ours = raw = None
    if description is not None:
        ours = json.dumps(asdict(description)).encode()
        raw = flatbuffer.encode.encode("ModelMetadata", _table(module, description), IDENTIFIER)
        if description.labels:
            files[LABELS] = f"{lines(description.labels)}\n".encode()
    carried = {key: value for key, value in module.carried.items() if key != "source"}
    return put(put(replace(module, attachments=files, carried=carried), OURS, ours), ENTRY, raw)


def described(module: Module) -> Description | None:
    """What the file says; None where it says nothing."""
    ours = find(module, OURS)
    if ours is not None:
        return _restore(ours)
    raw = find(module, ENTRY)
    if raw is None:
        return None
    root = decode(raw, "ModelMetadata", IDENTIFIER, source=f"metadata '{ENTRY}'")
    return _judged(_understand(root, module), ENTRY)


def _restore(raw: bytes) -> Description:
    try:
        data = json.loads(raw)
        tuples = {
            name: None if data[name] is None else tuple(data[name])
            for name in ("size", "mean", "std", "labels")
        }
        return _judged(Description(**{**data, **tuples}), OURS)
    except (ValueError, RecursionError, KeyError, TypeError, AttributeError) as error:
        raise ModelError(f"metadata '{OURS}' is damaged ({error!r}); describe the model anew") from None


def _judged(said: Description, entry: str) -> Description:
    """The description, if samples can be made as it says; numbers beyond all measure would become memory."""
    mean, std = said.mean or (), said.std or ()
    tokens, crop = said.details.get("tokens", 1), said.details.get("crop", "")
    fits = {
        "kind": said.kind in KINDS,
        "size": said.size is None
        or (len(said.size) == 2 and all(_is_count(n, LARGEST_SIDE) for n in said.size)),
        "channels": _is_count(said.channels, LARGEST_SIDE),
        "sample_rate": said.sample_rate is None or _is_count(said.sample_rate, FASTEST),
        "mean": said.mean is None or (len(mean) > 0 and all(is_number(n, finite=True) for n in mean)),
        "std": said.std is None or (len(std) > 0 and all(is_number(n, finite=True) and n for n in std)),
        "labels": len(said.labels) <= MOST_LABELS and all(isinstance(label, str) for label in said.labels),
        "scores": said.scores in SCORES,
        "details": isinstance(crop, str) and _is_count(tokens, FASTEST),
    }
    if said.mean is not None and said.std is not None:
        fits["std"] = fits["std"] and len(mean) == len(std)
    for name, fit in fits.items():
        if not fit:
            raise ModelError(
                f"metadata '{entry}': {name} is {shown(repr(getattr(said, name)))}, of which no sample can be made; "
                "describe the model anew"
            )
    return said


def _is_count(value: Any, most: int) -> bool:
    return type(value) is int and 1 <= value <= most


def _table(module: Module, said: Description) -> Table:
    """TFLite's metadata: one entry for each input and output, the first of them described."""
    inputs, outputs = module.main.inputs, module.main.outputs
    first: Table = {"name": said.kind, "description": str(said), "content": _content(said)}
    if said.mean is not None and said.std is not None:
        options = {"mean": np.array(said.mean, np.float32), "std": np.array(said.std, np.float32)}
        number = _member("ProcessUnitOptions", "NormalizationOptions")
        first["process_units"] = [{"options_type": number, "options": options}]
        first["stats"] = _stats(said)
    scores: Table = {"name": "score" if said.labels else "value", "content": _content(None)}
    if said.labels:
        kind = ENUMS["AssociatedFileType"]["TENSOR_AXIS_LABELS"]
        scores["associated_files"] = [{"name": LABELS, "description": "The classes' names.", "type": kind}]
        if said.scores in ("softmax", "sigmoid"):
            scores["stats"] = {"max": np.ones(1, np.float32), "min": np.zeros(1, np.float32)}
    graph = {
        "input_tensor_metadata": [first, *({"name": tensor.name} for tensor in inputs[1:])],
        "output_tensor_metadata": [scores, *({"name": tensor.name} for tensor in outputs[1:])],
    }
    return {
        "name": module.main.name or "model",
        "description": str(said),
        "subgraph_metadata": [graph],
        "min_parser_version": "1.0.0",
    }


def _content(said: Description | None) -> Table:
    """What an input is to other programs."""
    member = "FeatureProperties" if said is None else CONTENT.get(said.kind, "FeatureProperties")
    facts: Table = {}
    if said is not None and said.kind == "image":
        space = "GRAYSCALE" if said.channels == 1 else "RGB"
        facts["color_space"] = ENUMS["ColorSpaceType"][space]
        if said.size is not None:
            facts["default_size"] = {"height": said.size[0], "width": said.size[1]}
    if said is not None and said.kind == "audio":
        facts = {"sample_rate": said.sample_rate or 0, "channels": 1}
    return {"content_properties_type": _member("ContentProperties", member), "content_properties": facts}


def _stats(said: Description) -> Table:
    """The ends of what a normalised input can be."""
    assert said.mean is not None and said.std is not None
    low, high = (0.0, 255.0) if said.kind == "image" else (-1.0, 1.0)
    pairs = list(zip(said.mean, said.std, strict=True))
    return {
        "max": np.array([(high - mean) / std for mean, std in pairs], np.float32),
        "min": np.array([(low - mean) / std for mean, std in pairs], np.float32),
    }


def _understand(root: Table, module: Module) -> Description:
    """What another program wrote."""
    graph: Table = next(iter(root.get("subgraph_metadata", ())), {})
    first: Table = next(iter(graph.get("input_tensor_metadata", ())), {})
    content: Table = first.get("content", {})
    kind = {_member("ContentProperties", m): k for k, m in CONTENT.items()}.get(
        content.get("content_properties_type", 0), "features"
    )
    facts: Table = content.get("content_properties") or {} if kind != "features" else {}
    size: Table = facts.get("default_size", {})
    mean, std = _normalisation(first)
    return Description(
        kind=kind,
        size=(size["height"], size["width"]) if size.get("height") and size.get("width") else None,
        channels=1 if facts.get("color_space") == ENUMS["ColorSpaceType"]["GRAYSCALE"] else 3,
        sample_rate=facts.get("sample_rate") or None,
        mean=mean,
        std=std,
        labels=_labels(graph, module.attachments),
    )


def _normalisation(tensor: Table) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Mean and deviation, if they make sense."""
    number = _member("ProcessUnitOptions", "NormalizationOptions")
    for unit in tensor.get("process_units", ()):
        if unit.get("options_type", 0) == number:
            mean, std = (tuple(map(float, unit.get("options", {}).get(name, ()))) for name in ("mean", "std"))
            finite = all(np.isfinite(mean)) and all(np.isfinite(std)) and all(std)
            if mean and len(mean) == len(std) and finite:
                return mean, std
    return None, None


def _labels(graph: Table, files: Mapping[str, bytes]) -> tuple[str, ...]:
    """The classes' names, from the file that the first output names."""
    first: Table = next(iter(graph.get("output_tensor_metadata", ())), {})
    wanted = (
        ENUMS["AssociatedFileType"]["TENSOR_AXIS_LABELS"],
        ENUMS["AssociatedFileType"]["TENSOR_VALUE_LABELS"],
    )
    for known in first.get("associated_files", ()):
        raw = files.get(known.get("name", ""))
        if known.get("type", 0) not in wanted:
            continue
        if raw is None:
            name = printable(known.get("name", ""))
            warnings.warn(
                f"the model's classes stand in '{name}', which the file does not hold", stacklevel=2
            )
            continue
        text = raw.decode("utf-8", "replace").replace("\r\n", "\n").removesuffix("\n")
        return (
            tuple(text.split("\n")[:MOST_LABELS]) if text else ()
        )  # other marks of a line's end are of the name
    return ()


def _member(union: str, name: str) -> int:
    return next(number for number, member in UNIONS[union].items() if member == name)


def _numbers(values: tuple[float, ...]) -> str:
    return "/".join(map(_short, values))


def _short(value: float) -> str:
    return f"{value:.4g}"
