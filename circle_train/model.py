"""The public face of a model file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any, BinaryIO, Protocol, runtime_checkable

from circle_train import convert, format, runtime, settings
from circle_train.convert import back
from circle_train.convert.other.files import refuse_foreign
from circle_train.errors import ConfigError, ModelError, shown
from circle_train.format.metadata import hints
from circle_train.format.metadata.description import Description, describe, described
from circle_train.format.model.reader import read
from circle_train.info import OperatorInfo, TensorInfo
from circle_train.ir import Module
from circle_train.ir.mapped import files_behind
from circle_train.passes import pipelines
from circle_train.passes.batch import fix_sizes
from circle_train.passes.heads.new_head import SCORES
from circle_train.printable import as_table, printable
from circle_train.runtime.module import with_float_head, with_head, with_inputs, with_values
from circle_train.runtime.state import State
from circle_train.runtime.weights import Parameters
from circle_train.settings.config import TrainConfig
from circle_train.settings.parameters import find_parameters, make_states

PACKAGED, CHECKPOINT = "training.circle", "checkpoint.safetensors"
"""The files of a package that is a folder (see artifacts.py)."""


@runtime_checkable
class Proto(Protocol):
    """An onnx.ModelProto in memory."""

    def SerializeToString(self) -> bytes: ...


Path = str | os.PathLike[str]
Bytes = bytes | bytearray | memoryview
Source = Path | Bytes | BinaryIO | Proto


class Model:
    """A loaded .circle, .tflite or .onnx file.

    Example:
        >>> import circle_train as ct
        >>> model = ct.load("tests/data/mlp.circle")
        >>> [(t.name, t.shape) for t in model.inputs]
        [('x', (1, 6))]
    """

    def __init__(
        self, module: Module, provenance: Any = None, options: Mapping[str, Any] = MappingProxyType({})
    ) -> None:
        self.module = module
        self.options = options
        """What load was told of an ONNX file."""
        self.provenance = provenance
        """How an ONNX file's initializers became constants; None for other files."""
        self.files = files_behind(module)
        """What is mapped of the files that hold the constants; must stay as it is (see ir.mapped)."""

    @property
    def inputs(self) -> list[TensorInfo]:
        return [TensorInfo.of(tensor) for tensor in self.module.main.inputs]

    @property
    def outputs(self) -> list[TensorInfo]:
        return [TensorInfo.of(tensor) for tensor in self.module.main.outputs]

    @property
    def operators(self) -> list[OperatorInfo]:
        """The main graph's operators in file order, which is the order that `trainable=("last", n)` counts in."""
        return [OperatorInfo.of(node) for node in sorted(self.module.main.nodes, key=lambda node: node.index)]

    @property
    def training(self) -> TrainConfig | None:
        """The settings that the file carries (Circle+), or None."""
        return settings.circleplus.training_of(self.module)

    def with_training(self, config: TrainConfig | None) -> Model:
        """A model that carries these settings (None: carries none)."""
        return Model(settings.circleplus.with_training(self.module, config), self.provenance)

    def with_parameters(self, values: Mapping[str, Any]) -> Model:
        """A model with these values in its parameters, by name: what a session trained, a checkpoint held.

        Example:
            >>> import circle_train as ct
            >>> session = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse"))
            >>> trained = ct.load("tests/data/mlp.circle").with_parameters(session.parameters)
        """
        graph = pipelines.run(pipelines.before_training(None), self.module.main.copy())
        state = State(make_states(find_parameters(graph)), 1.0)
        parameters = self.parameters_of(state)
        for name, value in values.items():
            parameters[name] = value
        state.require_values()
        module = read(format.write(with_values(self.module, state)))
        hints.restore(module)
        return Model(module, self.provenance)

    def with_inputs(self, values: Mapping[str, Any]) -> Model:
        """A model that asks no longer for the inputs of these names, whose values are these: a sampling rate, a first state.

        Example:
            >>> import circle_train as ct
            >>> ct.load("tests/data/mlp.circle").with_inputs({"x": 0}).inputs
            []
        """
        return Model(with_inputs(self.module, values), self.provenance) if values else self

    def with_float_head(self, count: int) -> Model:
        """A model whose last `count` operators compute in float; of an integer model they can then be trained.

        What comes before them stays in integers, and frozen. The file that training exports is as small but for
        the head, whose small steps no scale of integers rounds away.
        """
        return Model(with_float_head(self.module, count))

    def with_head(self, classes: int | Sequence[str], *, scores: str = "softmax") -> Model:
        """A model with a new classifier where the old one ends, for so many classes, or for classes of these names.

        The classifier is found behind SOFTMAX, RESHAPE and the like: a dense layer or a 1×1 convolution; where there is
        none the last features are averaged over their places. What comes before stays as it is, integers included.
        `scores` says what the outputs are: "softmax" (one class each), "sigmoid" (any number of labels) or "values".

        Example:
            >>> import circle_train as ct
            >>> ct.load("tests/data/mlp.circle").with_head(["cat", "dog", "cow"]).labels
            ('cat', 'dog', 'cow')
        """
        names = () if isinstance(classes, int) else tuple(classes)
        count = classes if isinstance(classes, int) else len(names)
        if (
            scores not in SCORES
            or isinstance(classes, bool)
            or count < 1
            or not all(isinstance(n, str) for n in names)
        ):
            raise ConfigError(
                f"with_head: classes is {classes!r} and scores {scores!r}, expected a count from 1 or the classes' names, and "
                f"one of {', '.join(SCORES)}"
            )
        known = self.description
        said = replace(known or Description(), labels=names, scores=scores)
        said_so = said if names or known else None
        if self.provenance is not None and self.provenance.source is not None and find_spec("onnx"):
            made = load(convert.with_head(self.provenance, count, scores), **self.options)
            return made.described(said_so)
        return Model(describe(with_head(self.module, count, scores), said_so), self.provenance)

    @property
    def description(self) -> Description | None:
        """How samples become its input and what its outputs mean, as far as the file says so."""
        return described(self.module)

    @property
    def labels(self) -> tuple[str, ...]:
        """The classes' names, as far as the file holds them."""
        return self.description.labels if self.description else ()

    def described(self, description: Description | None) -> Model:
        """A model that carries this description."""
        return Model(describe(self.module, description), self.provenance, self.options)

    def parameters_of(self, state: State) -> Parameters:
        """A state's weights, in the names, layouts and order of the file that was loaded."""
        if self.provenance is None:
            return Parameters(state)
        return Parameters(state, self.provenance.to_circle, self.provenance.to_onnx, self.provenance.lineages)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model; the suffix decides: .circle or .tflite."""
        runtime.litert.save(self.module, path)

    def _repr_html_(self) -> str:
        return as_table(repr(self))

    def __repr__(self) -> str:
        inputs, outputs = (
            ", ".join(f"{t.name} {t.shape}" for t in group) for group in (self.inputs, self.outputs)
        )
        return printable(f"Model({len(self.module.main.nodes)} operators: {inputs} → {outputs})")


def load(source: Source | Model, **options: Any) -> Model:
    """Load a .circle, .tflite or .onnx model from a path, bytes, a file object or an onnx.ModelProto.

    `shapes={"x": (-1, 128)}` fixes sizes that an input leaves open, -1 for those that stay open. `inputs={"sr": 16000}`
    fixes the values of inputs that are no samples, one number for all of an array; the model then asks no longer for
    them. The other options go to the ONNX converter (`io="nhwc"`, `fold_batchnorm=True`).
    """
    if isinstance(source, Model):
        _refuse(options.keys() - {"inputs"}, "the model is loaded already")
        return source.with_inputs(options.get("inputs") or {})
    if isinstance(source, (str, os.PathLike)) and not os.path.exists(source):
        raise ModelError(
            f"{os.fspath(source)}: no such file; give the path of a .circle, .tflite or .onnx model"
        )
    if isinstance(source, (str, os.PathLike)) and os.path.isdir(source):
        return load(os.path.join(source, PACKAGED), **options)
    if isinstance(source, (str, os.PathLike)):
        refuse_foreign(os.fspath(source))
    name = None if isinstance(source, os.PathLike) else getattr(source, "name", None)
    source = _as_file(source)
    if _is_onnx(source):
        _refuse(options.keys() - set(convert.OPTIONS), f"expected one of {', '.join(convert.OPTIONS)}")
        module, provenance = convert.load_onnx(source, **options)
        return Model(hints.attach(module), provenance, options)
    _refuse(options.keys() - {"shapes", "inputs"}, "a Circle or TFLite model takes shapes and inputs alone")
    module = read(source, name and str(name))
    hints.restore(module)
    fix_sizes(module.main, options.get("shapes") or {})
    origin = hints.read_entry(module, back.ENTRY)
    loaded = Model(module, None if origin is None else back.portable.restore(origin))
    return loaded.with_inputs(options.get("inputs") or {})


def checkpoint_of(source: Source | Model) -> str | None:
    """The checkpoint that a package brings along."""
    if not isinstance(source, (str, os.PathLike)) or not os.path.isdir(source):
        return None
    path = os.path.join(source, CHECKPOINT)
    return path if os.path.exists(path) else None


def _refuse(options: Iterable[str], why: str) -> None:
    for name in sorted(options):
        raise ConfigError(f"load: option '{name}' is not known here, {why}; leave it out")


def _as_file(source: Source) -> Path | Bytes:
    if isinstance(source, Proto):
        return source.SerializeToString()
    if isinstance(source, (str, os.PathLike, bytes, bytearray, memoryview)):
        return source
    try:
        data = source.read()
        if isinstance(data, (bytes, bytearray, memoryview)):
            return data
        why = f"it gives {type(data).__name__}"
    except (AttributeError, OSError, ValueError) as error:
        why = shown(error)
    raise ModelError(
        f"a model is given as {type(source).__name__} ({why}), expected a path, bytes, or a file opened with 'rb'"
    )


def _is_onnx(source: Path | Bytes) -> bool:
    """By suffix; bytes by their first field, where they are no Circle or TFLite file."""
    if isinstance(source, (str, os.PathLike)):
        return os.fspath(source).lower().endswith(".onnx")
    return bytes(source[4:8]) not in (b"CIR0", b"TFL3") and bytes(source[:1]) in convert.FIRST_BYTES
