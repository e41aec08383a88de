"""abi.py is what abi.h says, and both are what the compiler and the library make of it."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from native import STRUCTURES, lib

from circle_train.backends.native.engine import abi
from circle_train.backends.native.engine.binding import call
from circle_train.ops.attributes import Activation

ROOT = next(p for p in Path(__file__).resolve().parents if (p / "pyproject.toml").exists())
HEADER = next((ROOT / "circle_train/backends/native/kernels").rglob("abi.h"))
COMPILER = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def test_the_python_side_is_generated_from_the_header() -> None:
    subprocess.run([sys.executable, ROOT / "tools/dev/make_abi.py", "--check"], check=True)


@pytest.mark.parametrize("kernel", abi.Kernel, ids=lambda kernel: kernel.name)
def test_the_library_has_the_kernel_and_its_struct(kernel: abi.Kernel) -> None:
    assert lib.ct_kernel_name(kernel).decode() == kernel.name
    assert lib.ct_args_size(kernel) == ctypes.sizeof(abi.ARGS[kernel])


def test_the_library_has_no_other_kernel() -> None:
    assert lib.ct_args_size(len(abi.Kernel)) == lib.ct_args_size(-1) == -1
    assert lib.ct_kernel_name(len(abi.Kernel)) == b""


@pytest.mark.skipif(COMPILER is None, reason="asks a C compiler")
def test_every_field_lies_where_the_compiler_puts_it(tmp_path: Path) -> None:
    """Every struct there is, nested ones and those of no kernel, too; and the header is C."""
    places = {
        f"{name}.{field}": (getattr(kind, field).offset, getattr(kind, field).size)
        for name, kind in STRUCTURES.items()
        for field, *_ in kind._fields_
    }
    asked = [key.split(".") for key in places]
    prints = [f'printf("%zu %zu\\n", offsetof({s}, {f}), sizeof ((({s}*)0)->{f}));' for s, f in asked]
    source = [
        "#include <stddef.h>",
        "#include <stdio.h>",
        f'#include "{HEADER}"',
        "int main(void) {",
        *prints,
        "}",
    ]
    (tmp_path / "places.c").write_text("\n".join(source))
    subprocess.run(
        [COMPILER, "-Wall", "-Werror", "-o", tmp_path / "places", tmp_path / "places.c"], check=True
    )
    done = subprocess.run([tmp_path / "places"], capture_output=True, text=True, check=True)
    found = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert dict(zip(places, found, strict=True)) == places


def test_activations_have_circles_numbers() -> None:
    """Binders pass them on as they are; SIGN_BIT has no kernel, and what kernels know besides has none of its numbers."""
    files = {a.name: int(a) for a in Activation}
    kernels = {a.name: int(a) for a in abi.Act}
    assert {name: number for name, number in kernels.items() if name in files} == {
        name: number for name, number in files.items() if name != "SIGN_BIT"
    }
    assert not {number for name, number in kernels.items() if name not in files} & {*files.values()}


def test_a_binder_with_another_kernels_struct_is_stopped() -> None:
    with pytest.raises(AssertionError, match="FILL takes FillArgs"):
        call(abi.Kernel.FILL, abi.CopyArgs(), np.zeros(1))
