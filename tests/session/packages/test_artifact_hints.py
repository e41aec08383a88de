"""What a package says of its layouts, damaged or outdated."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_artifacts import network

import circle_train as ct

onnx = pytest.importorskip("onnx")


@pytest.mark.parametrize(
    "raw", [b"{", b"[1]", b'{"dropout": 3}', b'{"fixed": 7}', b'{"batch_norm": {"b": 1}}', b"[" * 100_000]
)
def test_damaged_hints_are_refused(tmp_path: Path, raw: bytes) -> None:
    from circle_train.format.metadata import hints
    from circle_train.ir import Buffer, Metadata

    model = ct.load(network(tmp_path))
    kept = [entry for entry in model.module.metadata if entry.name != hints.ENTRY]
    entry = Metadata(hints.ENTRY, Buffer(np.frombuffer(raw.replace(b'"b"', b'"r"'), np.uint8)))
    model.module.metadata[:] = [*kept, entry]
    model.module.buffers.append(entry.buffer)
    model.save(tmp_path / "x.circle")
    with pytest.raises(ct.ModelError, match=r"circle_train\.hints' is damaged"):
        ct.load(tmp_path / "x.circle")


def test_a_layout_that_cannot_be_is_refused(tmp_path: Path) -> None:
    """A package from a stranger: its layouts are undone where somebody asks for values."""
    from circle_train.convert.back import ENTRY
    from circle_train.format.metadata import hints

    config = ct.TrainConfig(loss="mse", batch_size=4)
    package = ct.make_artifacts(network(tmp_path), tmp_path / "package", config)
    model = ct.load(package)
    told = hints.read_entry(model.module, ENTRY)
    assert told is not None
    nothing = {**told, "initializers": {"w": [["transposed"]]}}
    with pytest.raises(ct.ModelError, match="is damaged"):
        ct.Model(hints.put_entry(model.module, ENTRY, nothing)).save(tmp_path / "x.circle")
        ct.load(tmp_path / "x.circle")
    layouts = {name: [["transposed", [1, 0, 2, 3, 4, 5]]] for name in told["initializers"]}
    ct.Model(hints.put_entry(model.module, ENTRY, {**told, "initializers": layouts})).save(
        tmp_path / "x.circle"
    )
    session = ct.TrainSession(tmp_path / "x.circle", config)
    with pytest.raises(ct.ModelError, match="the layout of an initializer contradicts itself"):
        session.parameters.flat()


@pytest.mark.parametrize("gone", ["gone", 7])
def test_hints_of_what_is_gone_are_a_warning(gone: object, tmp_path: Path) -> None:
    from circle_train.format.metadata import hints

    model = ct.load(network(tmp_path))
    changed = {"dropout": {"conv": {"ratio": 0.5, "seed": None}}, "fixed": [gone]}
    ct.Model(hints.put_entry(model.module, hints.ENTRY, changed)).save(tmp_path / "x.circle")
    with pytest.warns(UserWarning, match="what training should know of 'conv' and 1 more is lost"):
        ct.load(tmp_path / "x.circle")


def test_a_replaced_entry_leaves_nothing_behind(tmp_path: Path) -> None:
    from circle_train.format import write
    from circle_train.format.metadata import hints

    module = ct.load(network(tmp_path)).module
    once = hints.put_entry(module, "mine", {"text": "a" * 1000})
    several = once
    for letter in "bcde":
        several = hints.put_entry(several, "mine", {"text": letter * 1000})
    assert hints.read_entry(several, "mine") == {"text": "e" * 1000}
    assert len(write(several)) == len(write(once))
