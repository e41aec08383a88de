"""The public names, and the examples in their docstrings."""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import re
import subprocess
import sys
import textwrap
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import circle_train as ct

ROOT = Path(__file__).resolve().parents[1]
NAMES = {
    "CheckpointError", "CircleTrainError", "ConfigError", "ConversionError", "DataError", "InferenceSession", "Int8", "Model",
    "ModelError", "TrainConfig", "TrainSession", "UnsupportedOpError", "callbacks", "choose", "data", "finetune",
    "load", "losses", "make_artifacts", "metrics", "optimizers", "schedules",
}  # fmt: skip


def test_the_public_surface_is_pinned() -> None:
    assert set(ct.__all__) == NAMES
    assert all(hasattr(ct, name) for name in NAMES)
    assert len(NAMES) <= 23  # twenty, and the second edition's finetune, choose, Int8


@pytest.mark.parametrize("name", ["callbacks", "data", "losses", "metrics", "optimizers", "schedules"])
def test_rooms_are_modules_that_offer_their_public_names(name: str) -> None:
    room = importlib.import_module(f"circle_train.{name}")
    assert room is getattr(ct, name)
    assert dir(room) == sorted(room.__all__)
    assert all(hasattr(room, public) for public in room.__all__)


def test_completion_offers_public_names() -> None:
    assert dir(ct) == sorted([*NAMES, "__version__"])


def test_every_error_is_a_circle_train_error() -> None:
    assert issubclass(ct.UnsupportedOpError, ct.ModelError)
    for name in NAMES:
        if name.endswith("Error"):
            assert issubclass(getattr(ct, name), ct.CircleTrainError)


def test_public_names_have_documentation() -> None:
    for name in NAMES:
        assert inspect.getdoc(getattr(ct, name)), name


def with_examples() -> list[str]:
    """Every module that shows a session of Python."""
    package = Path(ct.__file__).parent
    found = [path for path in package.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8")]
    names = [".".join(path.relative_to(package.parent).with_suffix("").parts) for path in sorted(found)]
    return [name.removesuffix(".__init__") for name in names]


@pytest.mark.parametrize("module", with_examples())
def test_examples_in_docstrings_run(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    failed, tried = doctest.testmod(importlib.import_module(module))
    assert tried > 0
    assert failed == 0


def test_import_loads_nothing_heavy() -> None:
    heavy = ["onnx", "torch", "tensorflow", "matplotlib", "PIL", "flwr", "onnxruntime", "scipy", "pandas"]
    code = f"import sys, circle_train; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=Path(__file__).parent
    )
    assert done.stdout.strip() == "[]"


def settings() -> list[type]:
    """Every class of settings that people may make."""
    rooms = (ct.losses, ct.optimizers, ct.metrics, ct.schedules, ct.callbacks)
    found = [getattr(room, name) for room in rooms for name in room.__all__]
    return [
        ct.TrainConfig,
        ct.Int8,
        *(
            cls
            for cls in found
            if isinstance(cls, type) and is_dataclass(cls) and cls is not ct.losses.Symbol
        ),
    ]


@pytest.mark.parametrize("cls", settings(), ids=lambda cls: cls.__name__)
def test_every_setting_is_documented_and_in_the_signature(cls: type) -> None:
    said = "\n".join(inspect.getdoc(base) or "" for base in cls.__mro__ if is_dataclass(base))
    described = set(re.findall(r"(?m)^    (\w+): ", said))
    for base in cls.__mro__:
        if is_dataclass(base):
            body = ast.parse(textwrap.dedent(inspect.getsource(base))).body[0].body  # type: ignore[attr-defined]
            for line, below in itertools.pairwise(body):
                if isinstance(line, ast.AnnAssign) and isinstance(below, ast.Expr):
                    described.add(ast.unparse(line.target))
    wanted = {one.name for one in fields(cls) if one.init}
    assert not wanted - described
    assert wanted == set(inspect.signature(cls).parameters)
