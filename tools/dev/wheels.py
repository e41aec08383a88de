#!/usr/bin/env python3
"""One wheel a platform, all made here: compiled by zig, looked over, and on Linux run through the demo.

python tools/dev/wheels.py                         every platform
python tools/dev/wheels.py linux-aarch64 --out dist    some of them

It takes `pip install ziglang scikit-build-core ninja cmake` and, for the other Linux machines, Debian's qemu-user and apt's
sources; no rights are needed. macOS is compiled and marked untried: nothing here runs it. Of Windows the library is loaded and
lets two workers turn a matrix, if Debian's wine64 is there; there is no Python for it.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
SOURCE = REPOSITORY / "circle_train" / "backends" / "native"
GLIBC = (2, 28)
"""The oldest that the Linux wheels ask for."""
ALLOWED = re.compile(r"(libc|libm|libdl|librt|libpthread)\.so\.\d|ld-linux.*\.so\.\d")
"""What a Linux wheel may need of the system; more would have to come along."""


@dataclass(frozen=True)
class Target:
    """A platform: zig's name for it, CMake's, the wheel's tag."""

    triple: str
    system: str
    processor: str
    tag: str
    library: str = "libcircle_train_native.so"
    debian: str = ""
    """Debian's name of the machine, for the Python that tries the wheel under qemu; "" is this one."""
    qemu: str = ""

    @property
    def is_linux(self) -> bool:
        return self.system == "Linux"


GNU = ".".join(map(str, GLIBC))
LINUX_TAG = "manylinux_2_28"
TARGETS = {
    "linux-x86_64": Target(f"x86_64-linux-gnu.{GNU}", "Linux", "x86_64", f"{LINUX_TAG}_x86_64"),
    "linux-aarch64": Target(
        f"aarch64-linux-gnu.{GNU}",
        "Linux",
        "aarch64",
        f"{LINUX_TAG}_aarch64",
        debian="arm64",
        qemu="qemu-aarch64",
    ),
    "linux-armv7": Target(
        f"arm-linux-gnueabihf.{GNU}",
        "Linux",
        "armv7l",
        f"{LINUX_TAG}_armv7l",
        debian="armhf",
        qemu="qemu-arm",
    ),
    "macos-arm64": Target(
        "aarch64-macos.11.0", "Darwin", "arm64", "macosx_11_0_arm64", "libcircle_train_native.dylib"
    ),
    "macos-x86_64": Target(
        "x86_64-macos.11.0", "Darwin", "x86_64", "macosx_11_0_x86_64", "libcircle_train_native.dylib"
    ),
    "windows-x86_64": Target(
        "x86_64-windows-gnu", "Windows", "AMD64", "win_amd64", "libcircle_train_native.dll"
    ),
}
FLAGS = {"linux-armv7": "-mcpu=generic+v7a+neon+vfp3 -mfloat-abi=hard"}
"""Beside the target: an armv7 wheel is for boards that have NEON, as all of the last decade do."""


def run(*words: str | Path, **options: object) -> subprocess.CompletedProcess[str]:
    """A command that must succeed."""
    return subprocess.run([str(word) for word in words], check=True, text=True, **options)  # type: ignore[call-overload,no-any-return]


def pure_wheel(folder: Path) -> Path:
    """The package without its library, as scikit-build-core makes it of the repository."""
    made = folder / "pure"
    settings = ("-C", "wheel.cmake=false", "-C", "wheel.py-api=py3")
    shutil.rmtree(made, ignore_errors=True)
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, *settings, "-w", made, REPOSITORY)
    return next(made.glob("*.whl"))


def compile_library(name: str, folder: Path) -> Path:
    """The kernels for a platform, by zig's clang and libc."""
    target, build = TARGETS[name], folder / name
    build.mkdir(parents=True, exist_ok=True)
    tools = {}
    for tool in ("c++", "ar", "ranlib"):
        script = build / f"zig-{tool}"
        arguments = f"-target {target.triple} {FLAGS.get(name, '')}" if tool == "c++" else ""
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang {tool} {arguments} "$@"\n')
        script.chmod(0o755)
        tools[tool] = script
    run(
        "cmake", "-G", "Ninja", "-S", SOURCE, "-B", build / "cmake", "-DCMAKE_BUILD_TYPE=Release",
        f"-DCMAKE_SYSTEM_NAME={target.system}", f"-DCMAKE_SYSTEM_PROCESSOR={target.processor}",
        f"-DCMAKE_CXX_COMPILER={tools['c++']}", f"-DCMAKE_AR={tools['ar']}", f"-DCMAKE_RANLIB={tools['ranlib']}",
        "-DCMAKE_TRY_COMPILE_TARGET_TYPE=STATIC_LIBRARY",
        stdout=subprocess.DEVNULL,
    )  # fmt: skip
    run("cmake", "--build", build / "cmake", "--parallel", str(os.cpu_count()), stdout=subprocess.DEVNULL)
    return build / "cmake" / target.library


def assemble(pure: Path, library: Path, target: Target, out: Path) -> Path:
    """The package with its library, under the platform's tag; the same bytes for the same contents."""
    name, version = pure.name.split("-")[:2]
    info, tag = f"{name}-{version}.dist-info", f"py3-none-{target.tag}"
    with zipfile.ZipFile(pure) as archive:
        files = {entry: archive.read(entry) for entry in archive.namelist() if not entry.endswith("/")}
    files[f"circle_train/backends/native/{target.library}"] = library.read_bytes()
    said = re.sub(r"(?m)^Tag: .*\n", "", files[f"{info}/WHEEL"].decode()).replace(
        "Purelib: true", "Purelib: false"
    )
    files[f"{info}/WHEEL"] = f"{said.rstrip()}\nTag: {tag}\n".encode()
    del files[f"{info}/RECORD"]
    rows = [f"{entry},sha256={_digest(raw)},{len(raw)}\n" for entry, raw in sorted(files.items())]
    files[f"{info}/RECORD"] = "".join([*rows, f"{info}/RECORD,,\n"]).encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"{name}-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, raw in sorted(files.items()):
            place = zipfile.ZipInfo(entry, (1980, 1, 1, 0, 0, 0))
            place.external_attr = 0o644 << 16
            archive.writestr(place, raw, zipfile.ZIP_DEFLATED)
    return wheel


def _digest(raw: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(raw).digest()).rstrip(b"=").decode()


def audit(library: Path) -> str:
    """What a Linux library asks of the system: no newer libc, no library that is not everywhere, nothing of Python."""
    told = run(
        "readelf", "--wide", "--dynamic", "--version-info", "--dyn-syms", library, capture_output=True
    ).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*)\]", told)
    if strangers := [name for name in needed if not ALLOWED.fullmatch(name)]:
        sys.exit(f"{library}: needs {', '.join(strangers)}, which not every Linux has")
    versions = {tuple(map(int, found.split("."))) for found in re.findall(r"GLIBC_([\d.]+)", told)}
    newest = max(versions, default=(0,))
    if newest > GLIBC:
        sys.exit(f"{library}: asks for glibc {'.'.join(map(str, newest))}, at most {GNU} is allowed")
    if re.search(r"UND _?Py[A-Z_]", told):
        sys.exit(f"{library}: has symbols of Python, a wheel for all of them must not")
    return f"glibc {'.'.join(map(str, newest))} or later, {', '.join(needed)}"


def get_python(folder: Path, machine: str) -> tuple[Path, Path]:
    """A Python with numpy for another machine, out of Debian's packages taken apart in a folder: its root and itself."""
    root, state = folder / f"root-{machine}", folder / f"apt-{machine}"
    if not root.exists():
        for name in ("lists/partial", "archives/partial"):
            (state / name).mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        settings = {
            "APT::Architecture": machine, "APT::Architectures": machine, "APT::Sandbox::User": "",
            "APT::Install-Recommends": "false", "Debug::NoLocking": "true", "Dir::State": state,
            "Dir::State::status": state / "status", "Dir::Cache": state,
        }  # fmt: skip
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        subprocess.run(
            ["apt-get", *options, "-qq", "update"], check=False
        )  # a list of several may be amiss, not all
        run("apt-get", *options, "-qq", "--yes", "--download-only", "install", "python3-numpy")
        parts = folder / f"parts-{machine}"
        for package in sorted((state / "archives").glob("*.deb")):
            run("dpkg-deb", "--extract", package, parts)
        _link_alternatives(parts)
        parts.rename(root)
    return root, next((root / "usr/bin").glob("python3.*[0-9]"))


def _link_alternatives(root: Path) -> None:
    """The libraries that Debian's alternatives would choose: BLAS and LAPACK lie in folders of their own."""
    for place in (root / "usr" / "lib").glob("*-linux-*"):
        for name in ("blas/libblas.so.3", "lapack/liblapack.so.3"):
            if (place / name).exists():
                shutil.copy(place / name, place / Path(name).name)


def try_wheel(wheel: Path, target: Target, folder: Path) -> str:
    """Install it beside numpy and run the demo, under qemu where the machine is another."""
    with tempfile.TemporaryDirectory() as scratch:
        site = Path(scratch) / "site"
        options = [
            "--no-deps",
            "--only-binary=:all:",
            "--target",
            site,
            f"--platform={target.tag}",
            "--python-version=3.11",
        ]
        run(sys.executable, "-m", "pip", "install", "-q", *options, wheel)
        run(
            sys.executable, "-m", "pip", "install", "-q", "--target", site, "--no-deps", "flatbuffers", "tqdm"
        )
        command, environment = [sys.executable], {**os.environ, "PYTHONPATH": str(site)}
        if target.debian:
            root, python = get_python(folder, target.debian)
            command = [target.qemu, "-L", str(root), str(python)]
            environment["PYTHONPATH"] = f"{site}:{root}/usr/lib/python3/dist-packages"
        run(*command, "-m", "circle_train", "doctor", cwd=scratch, env=environment)
        done = run(*command, "-m", "circle_train", "demo", cwd=scratch, env=environment, capture_output=True)
        engine = run(
            *command, "-c", "from circle_train.backends.choice import choose; print(type(choose('native', 1)).__name__)",
            cwd=scratch, env=environment, capture_output=True,
        ).stdout.strip()  # fmt: skip
    return f"{engine}: " + next(line for line in done.stdout.splitlines() if line.startswith("accuracy on"))


def try_library(library: Path, target: Target, folder: Path) -> str:
    """What a library for Windows does in wine."""
    wine = shutil.which("wine64") or shutil.which("wine64", path="/usr/lib/wine")
    if target.system != "Windows" or wine is None:
        return "untried: nothing here runs it"
    program, zig = folder / "loads.exe", (sys.executable, "-m", "ziglang", "c++", "-target", target.triple)
    source = Path(__file__).with_name("loads.cpp")
    run(*zig, "-std=c++17", "-O2", "-I", SOURCE / "kernels", source, "-o", program)
    environment = {**os.environ, "WINEPREFIX": str(folder / "wine"), "WINEDEBUG": "-all"}
    return run(wine, program, library, env=environment, capture_output=True).stdout.strip() + ", in wine"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(TARGETS))
    parser.add_argument("--out", type=Path, default=Path("dist"))
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "circle_train_wheels")
    options = parser.parse_args()
    folder = options.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    pure = pure_wheel(folder)
    for name in options.targets or TARGETS:
        target, before = TARGETS[name], _child_seconds()
        library = compile_library(name, folder)
        wheel = assemble(pure, library, target, options.out)
        print(
            f"{wheel.name}: {wheel.stat().st_size / 1e6:.2f} MB, compiled in {_child_seconds() - before:.0f} s of a core",
            flush=True,
        )
        if target.is_linux:
            print(f"  {audit(library)}\n  {try_wheel(wheel, target, folder)}", flush=True)
        else:
            print(f"  {try_library(library, target, folder)}", flush=True)
    return 0


def _child_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    sys.exit(main())
