"""`circle-train doctor`: what of this installation works, and what would make it faster or able to do more."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
import sys

from circle_train import __version__
from circle_train.available import available_bytes
from circle_train.backends.native.engine import library
from circle_train.backends.native.engine.abi import Tier
from circle_train.cli.settings import add_json, print_json, print_lines

NEEDED = ("numpy", "flatbuffers", "tqdm")
EXTRAS = {
    "images": ("pillow", "photographs as data"),
    "text": ("tokenizers", "texts as data"),
    "onnx": ("onnx", "exporting what onnx files are made of"),
    "tensorboard": ("tensorboardX", "curves in TensorBoard"),
    "plot": ("matplotlib", "curves.png in run folders"),
    "federated": ("flwr", "federated training with Flower"),
}
"""Each extra's package, and what it is for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    found = findings()
    if options.json:
        print_json(found)
        return 0
    width = max(map(len, found))
    print_lines(f"{name:{width}}  {value}" for name, value in found.items())
    return 0


def findings() -> dict[str, str]:
    """What there is to say, in the order in which it matters."""
    free = available_bytes()
    return {
        "circle-train": __version__,
        "python": f"{platform.python_version()} ({sys.executable})",
        "system": f"{platform.system()} {platform.machine()}",
        "engine": engine(),
        "threads": f"{library.available_cores()}, one for each core that this process may use",
        "memory": "unknown" if free is None else f"{free / 1e9:.1f} GB to be had",
        **{name: version(name) or f"missing: pip install {name}" for name in NEEDED},
        **{f"[{extra}]": _extra(extra) for extra in EXTRAS},
    }


def engine() -> str:
    """The native library and the vector instructions that it uses here, or why numpy computes."""
    found, path = library.load(), library.path()
    if found is not None and path is not None:
        size = os.path.getsize(path) / 1e6
        return f"native, {Tier(found.ct_best_tier()).name} vectors, {size:.1f} MB"
    if path is None:
        why = "the native engine was not built for this release; install a C++ compiler and reinstall circle-train"
    else:
        why = f"{library.path()} is not of this version or machine; reinstall circle-train"
    return f"numpy, slower: {why}"


def version(package: str) -> str | None:
    """Of an installed distribution; nothing is imported for it."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _extra(name: str) -> str:
    package, purpose = EXTRAS[name]
    found = version(package)
    return f"{package} {found}" if found else f"missing ({purpose}): pip install 'circle-train[{name}]'"
