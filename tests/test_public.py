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


PACKAGES = [
    ".".join(p.parent.relative_to(ROOT).parts) for p in sorted(ROOT.glob("circle_train/**/__init__.py"))
]
HEAVY = {
    "onnx",
    "torch",
    "tensorflow",
    "matplotlib",
    "PIL",
    "flwr",
    "onnxruntime",
    "scipy",
    "pandas",
    "tqdm",
    "zipfile",
}


def loaded_by(code: str) -> set[str]:
    """The modules that a fresh process has, which has run this."""
    code = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(done.stdout.splitlines()[-1].split())


LATER = (
    "callbacks", "cli", "data.opening", "data.pictures", "convert.building", "convert.handlers", "convert.onnx_file",
    "checkpoints.by_suffix", "federated", "finetuning", "fitting.callbacks", "fitting.progress", "passes.litert.suit",
    "quantize", "report.page", "session.account", "session.export", "session.fit", "session.shipping.ship",
)  # fmt: skip
"""Rooms that training steps on a .tflite file do not need."""
MOST_MODULES = 336
"""What a training step needs; each takes about a third of a millisecond."""


@pytest.mark.parametrize(
    "code",
    [
        "import circle_train",
        "from circle_train.cli.main import main\ntry: main(['--help'])\nexcept SystemExit: pass",
    ],
    ids=["import", "help"],
)
def test_what_a_training_step_does_not_need_is_not_imported(code: str) -> None:
    ours = {
        name.removeprefix("circle_train.") for name in loaded_by(code) if name.startswith("circle_train.")
    }
    ours -= {"cli", "cli.main", "cli.runs", "cli.runs.ending"}
    assert [name for name in sorted(ours) if name.startswith(LATER)] == []
    assert len(ours) <= MOST_MODULES


def test_a_first_step_imports_nothing() -> None:
    """Its time and memory are its own."""
    code = """
import sys
import circle_train as ct, numpy as np
known = set(sys.modules)
session = ct.TrainSession("tests/data/mlp.circle", ct.TrainConfig(loss="mse", optimizer="adam", metrics=["accuracy"]))
session.train_step(np.zeros((32, 6), np.float32), np.zeros((32, 5), np.float32))
came = sorted(name for name in set(sys.modules) - known if name.startswith("circle_train"))
assert not came, came
"""
    assert "circle_train.session" in loaded_by(code)


def test_import_loads_nothing_heavy() -> None:
    assert not loaded_by("import circle_train") & HEAVY


@pytest.mark.parametrize(
    "package", [name for name in PACKAGES if hasattr(importlib.import_module(name), "HOMES")]
)
def test_names_are_brought_from_where_type_checkers_are_told(package: str) -> None:
    room = importlib.import_module(package)
    tree = ast.parse(Path(str(room.__file__)).read_text(encoding="utf-8"))
    told: dict[str, str | None] = {}
    for line in next(node for node in tree.body if isinstance(node, ast.If)).body:
        assert isinstance(line, ast.ImportFrom)
        told.update({one.name: line.module for one in line.names})
    assert told.keys() == {name for names in room.HOMES.values() for name in names}
    for name, home in told.items():
        assert home is not None
        where = importlib.import_module(home)
        assert getattr(room, name) is (
            importlib.import_module(f"{home}.{name}") if where is room else getattr(where, name)
        )


def test_first_uses_may_be_in_threads() -> None:
    """Whichever names and rooms they begin with: none waits for one that waits for it, and all are whole."""
    rooms = [
        "callbacks",
        "data",
        "federated",
        "finetuning.stages",
        "ir.node",
        "metrics",
        "ops.base",
        "session.fit",
    ]
    code = f"""
import sys, threading
from importlib import import_module
sys.setswitchinterval(1e-5)
import circle_train as ct
asked, failed = {[*sorted(NAMES), *rooms]}, []
gate = threading.Barrier(len(asked))
def ask(name):
    gate.wait()
    try: getattr(ct, name) if name in ct.__all__ else import_module(f"circle_train.{{name}}")
    except BaseException as error: failed.append(repr(error))
threads = [threading.Thread(target=ask, args=(name,)) for name in asked]
for one in threads: one.start()
for one in threads: one.join()
assert not failed, failed
"""
    assert "circle_train.session" in loaded_by(code)


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
