#!/usr/bin/env python3
"""Builds the engine for aarch64 and runs its tests there, in qemu's user mode.

python tools/dev/aarch64.py                         kernels, operators and golden runs
python tools/dev/aarch64.py tests/session/test_session.py   others
python tools/dev/aarch64.py --cpu cortex-a53        a processor without products of bytes, and other things that are newer

On Debian, with g++-aarch64-linux-gnu, qemu-user-static, cmake and apt's sources; no rights are needed. Python comes in
Debian packages that are taken apart in a folder, numpy and pytest as wheels; a second run finds them there.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from sanitize import SOURCE, copy_beside

TESTS = (
    "tests/backends/kernels",
    "tests/backends/engine/test_engine_sessions.py",
    "tests/backends/engine/test_engine_shapes.py",
    "tests/backends/integers",
    "tests/passes/integers",
    "tests/peers/test_onert_golden.py",
)
LEFT_OUT = "not two_processes and not python_side and not interrupted and not sums"
"""What starts Python once more, which qemu is not asked for, waits for seconds, or sums long in float64."""
TOOLS = ("aarch64-linux-gnu-g++", "qemu-aarch64-static", "cmake", "apt-get", "dpkg-deb")
PACKAGES = ("python3", "libstdc++6")
WHEELS = ("numpy", "pytest", "hypothesis", "flatbuffers", "tqdm")


def run(*words: str | Path) -> None:
    """A command that must succeed."""
    subprocess.run([str(word) for word in words], check=True)


def get_root(folder: Path) -> Path:
    """Python for aarch64 and the libraries that it needs, as if installed under this folder."""
    root, state = folder / "root", folder / "apt"
    if root.exists():
        return root
    for name in ("lists/partial", "archives/partial"):
        (state / name).mkdir(parents=True, exist_ok=True)
    (state / "status").touch()
    settings = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "",
        "APT::Install-Recommends": "false",
        "Debug::NoLocking": "true",
        "Dir::State": state,
        "Dir::State::status": state / "status",
        "Dir::Cache": state,
    }
    options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
    run("apt-get", *options, "-qq", "update")
    run("apt-get", *options, "-qq", "--yes", "--download-only", "install", *PACKAGES)
    parts = folder / "parts"
    for package in sorted((state / "archives").glob("*.deb")):
        run("dpkg-deb", "--extract", package, parts)
    return parts.rename(root)


def get_wheels(folder: Path, python: Path) -> Path:
    """What the tests import, for the Python found there."""
    site = folder / "site"
    if not site.exists():
        version = python.resolve().name.removeprefix("python")
        platforms = [f"--platform=manylinux{name}_aarch64" for name in ("_2_28", "2014")]
        options = ["--only-binary=:all:", "--implementation=cp", f"--python-version={version}", *platforms]
        run(sys.executable, "-m", "pip", "install", "-q", "--target", folder / "wheels", *options, *WHEELS)
        (folder / "wheels").rename(site)
    return site


def build(folder: Path) -> Path:
    """The library; an earlier build is brought up to date."""
    target = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    compiler = ("-DCMAKE_CXX_COMPILER=aarch64-linux-gnu-g++", "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "-S", SOURCE, "-B", folder, *target, *compiler)
    run("cmake", "--build", folder, "--parallel", str(os.cpu_count()))
    return folder / "libcircle_train_native.so"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "circle_train_aarch64")
    parser.add_argument("--cpu", default="max", help="what qemu stands in for")
    options, others = parser.parse_known_args()  # pytest's options too
    if absent := [tool for tool in TOOLS if shutil.which(tool) is None]:
        sys.exit(f"{', '.join(absent)} missing: apt install g++-aarch64-linux-gnu qemu-user-static cmake")
    folder = options.folder.resolve()
    root = get_root(folder)
    python = next((root / "usr/bin").glob("python3.*[0-9]"))
    site, library = get_wheels(folder, python), build(folder / "build")
    with tempfile.TemporaryDirectory() as copy:
        copy_beside(library, copy)
        tests = [*options.tests, *others] if options.tests else [*TESTS, "-k", LEFT_OUT, *others]
        environment = {**os.environ, "PYTHONPATH": f"{copy}:{site}"}
        command = [
            "qemu-aarch64-static",
            "-cpu",
            options.cpu,
            "-L",
            str(root),
            str(python),
            "-m",
            "pytest",
            *tests,
        ]
        return subprocess.run(command, cwd=copy, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
