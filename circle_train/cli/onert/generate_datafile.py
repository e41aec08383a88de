"""ONERT's tf_dataset_converter: raw data files from idx files or folders of images, without TensorFlow.

Nothing is downloaded: idx files come from Debian's package `dataset-fashion-mnist` or from --data-dir.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import circle_train as ct
from circle_train.cli.runs.ending import ended
from circle_train.data.files import read_image_folder
from circle_train.data.prepare import Preparation, Source, open_source, prepare

CLOTHES = ("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker", "Bag")
FASHION = [*CLOTHES, "Ankle boot"]
DIGITS = [str(digit) for digit in range(10)]


@dataclass(frozen=True)
class Dataset:
    """Where a data set lies, and what its classes are called."""

    folder: str
    classes: list[str]


DATASETS = {
    "fashion_mnist": Dataset("/usr/share/datasets/fashion-mnist", FASHION),
    "mnist": Dataset("/usr/share/datasets/mnist", DIGITS),
    "image_folder": Dataset("", []),
}
SPLITS = {"train": "train", "test": "t10k"}


def main(arguments: list[str] | None = None) -> int:
    """Exit status: 0 done, 1 a user's error, 2 wrong usage."""
    return ended(lambda: _run(arguments))


def _run(arguments: list[str] | None) -> None:
    parser = make_parser()
    options = parser.parse_args(arguments)
    if options.show_datasets:
        print("Dataset list :\n[" + ",\n".join(DATASETS) + "]")
        return
    if len(options.split) != len(options.length):
        parser.error(
            f"--split names {len(options.split)} parts, --length {len(options.length)}; give each one length"
        )
    convert(options)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="generate_datafile", description="convert a data set to ONERT's raw format"
    )
    parser.add_argument("-s", "--show-datasets", action="store_true", help="show dataset list")
    parser.add_argument(
        "-d", "--dataset-name", default="fashion_mnist", metavar="Dataset",
        help='name of dataset to be converted (default: "fashion_mnist")',
    )  # fmt: skip
    parser.add_argument(
        "-o", "--out-dir", default="out", metavar="Dir", help='where the files are created (default: "out")'
    )
    parser.add_argument(
        "-p", "--prefix-name", default="", metavar="Prefix", help='prefix name of the files (default: "")'
    )
    parser.add_argument(
        "--split", nargs="*", default=["train", "test"], metavar="Split",
        help='which splits of the data to load (default: "train test")',
    )  # fmt: skip
    parser.add_argument(
        "--length", nargs="*", type=int, default=[1000, 100], metavar="N",
        help='data number for each item of split (default: "1000 100")',
    )  # fmt: skip
    parser.add_argument(
        "-m", "--model", default="mnist", choices=["mnist", "mobilenetv2"], metavar="Model",
        help="model that will use the data: mnist (28×28×1) or mobilenetv2 (224×224×3) (default: mnist)",
    )  # fmt: skip
    parser.add_argument(
        "--data-dir", metavar="Dir", help="where the idx files, or a folder per split, lie (ours)"
    )
    parser.add_argument(
        "--seed", type=int, metavar="N", help="shuffle with this seed (ours; default: file order)"
    )
    return parser


def convert(options: argparse.Namespace) -> None:
    """Write the input and output file of every split."""
    if options.dataset_name not in DATASETS:
        raise ct.DataError(
            f"dataset '{options.dataset_name}' is unknown, expected one of {', '.join(DATASETS)}"
        )
    dataset = DATASETS[options.dataset_name]
    folder = Path(options.data_dir or dataset.folder)
    is_images = options.dataset_name == "image_folder"
    if (options.model == "mobilenetv2") != is_images:
        raise ct.DataError(
            f"dataset '{options.dataset_name}' does not fit model {options.model}: mnist takes mnist and "
            "fashion_mnist, mobilenetv2 takes image_folder with --data-dir"
        )
    for split, length in zip(options.split, options.length, strict=True):
        source = image_split(folder / split) if is_images else idx_split(folder, split, dataset)
        if length > len(source.x):
            raise ct.DataError(
                f"split '{split}' has {len(source.x)} samples, {length} are asked for; ask for fewer"
            )
        print(f"class names       : {list(source.classes)}")
        print(f"{split} dataset len : {len(source.x)}")
        how = Preparation(classes=len(source.classes), scale=255.0, add_channel=True, seed=options.seed)
        for file in prepare(
            source, replace(how, parts=((file_name(split), length),)), options.out_dir, options.prefix_name
        ):
            print(f"{file.path}: {file.samples} × {file.shape} {file.dtype}")
    print("The data files are created!")


def idx_split(folder: Path, split: str, dataset: Dataset) -> Source:
    """Images and labels of one split of the MNIST family."""
    stem = SPLITS.get(split)
    if stem is None:
        raise ct.DataError(f"split '{split}' is unknown, expected {' or '.join(SPLITS)}")
    images, labels = (find(folder, f"{stem}-{kind}") for kind in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    return replace(open_source(images, labels), classes=tuple(dataset.classes))


def find(folder: Path, name: str) -> Path:
    for candidate in (folder / name, folder / f"{name}.gz"):
        if candidate.exists():
            return candidate
    raise ct.DataError(
        f"{folder / name}[.gz] is not there; install Debian's dataset-fashion-mnist or give --data-dir"
    )


def image_split(folder: Path) -> Source:
    """A folder with a folder of images for each class."""
    if not folder.is_dir():
        raise ct.DataError(f"'{folder}' is no folder; give --data-dir DIR with DIR/<split>/<class>/<image>")
    images, labels, names = read_image_folder(folder, (224, 224))
    return Source(images, np.asarray(labels), tuple(names))


def file_name(split: str) -> str:
    """Brackets, colons and blanks of a split's name do not belong into a file's."""
    return "".join("_" if character in "[ : ]" else character for character in split)
