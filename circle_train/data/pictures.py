"""Photographs in folders named by what they show."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from circle_train.data.augment import vary_image
from circle_train.data.folders.by_class import files_by_class, intact
from circle_train.data.labelled import MIXUP, Labelled
from circle_train.errors import ConfigError, DataError
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record

SUFFIXES = (".jpg", ".jpeg", ".jfif", ".png", ".bmp", ".gif", ".ppm", ".webp", ".tif", ".tiff")
UNREAD = (".heic", ".heif", ".avif", ".jxl", ".dng", ".nef", ".cr2", ".arw", ".psd")
"""Of photographs in formats that are not read: named instead of left out in silence."""
FORMATS = ("JPEG", "PNG", "BMP", "DIB", "GIF", "PPM", "WEBP", "TIFF")
"""What a picture may be, whatever its name ends in: of others Pillow may start programs (Ghostscript for EPS)."""
MODES = {1: "L", 3: "RGB", 4: "RGBA"}
CROPS = ("center", "squash", "pad")
TRIED = ("flip", "crop")
"""Variations that most photographs bear; text and arrows do not bear the first."""
LARGEST = 100_000_000
"""Pixels of a picture; more would be a bomb rather than a photograph."""
JPEG_SCAN, JPEG_END = b"\xff\xda", b"\xff\xd9"
MOST_SCANS = 64
"""Of a JPEG; each goes over all pixels once more, and takes a few bytes of the file where nothing is in it."""


@record
class Images(Labelled):
    """Pictures by class; decoded, turned as their EXIF says, cut and resized when a batch asks for them."""

    kind: ClassVar[str] = "image"

    augmentation: tuple[str, ...] = ()
    tried: tuple[str, ...] = ()
    """Variations that a course may take if the samples held out bear them."""

    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        known = known if known is not None and known.kind == "image" else Description(kind="image")
        height, width, channels = image_shape(tensor)
        size = self.asked.size or ((height, width) if min(height, width) > 0 else known.size) or (224, 224)
        if -1 not in (height, width) and size != (height, width):
            raise ConfigError(
                f"size is {size[0]}×{size[1]}, but '{tensor.name}' takes {height}×{width} pictures"
            )
        mean, std = self.asked.mean or known.mean, self.asked.std or known.std
        if (mean is None or std is None) and tensor.quantization is not None and not tensor.dtype.is_float:
            mean, std = _of_integers(tensor)
        details = {"crop": "center"} | dict(known.details) | dict(self.asked.details)
        return replace(
            known, size=size, channels=channels, mean=mean, std=std, labels=self.classes, scores=self.scores, details=details
        )  # fmt: skip

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        pixels = read_image(item, how)
        return pixels if random is None else vary_image(pixels, self.augmentation, random)

    def shape(self, how: Description) -> tuple[int, ...]:
        assert how.size is not None
        return (*how.size, how.channels)


def images(  # noqa: PLR0913 -- what there is to say about pictures, each by name
    folder: str | os.PathLike[str],
    *,
    validation: float | str | os.PathLike[str] | None = None,
    size: tuple[int, int] | None = None,
    scale: float | Sequence[float] | None = None,
    offset: float | Sequence[float] | None = None,
    crop: str | None = None,
    augment: Sequence[str] | str = "auto",
    skip_damaged: bool = False,
) -> Images:
    """Photographs in a folder for each class: `photos/cat/001.jpg`, `photos/dog/…`.

    Args:
        folder: its sub-folders are the classes; hidden folders and files that are no pictures do not count.
        validation: the fraction of each class that validates, chosen at random (default: a fifth, of 1,000 pictures and
            more a tenth), or a folder of other pictures.
        size: height and width; the model says them unless it takes any.
        scale, offset: the model gets (pixel - offset) / scale, of 0 … 255; unless given its file says so.
        crop: "center" cuts the middle out, "squash" distorts, "pad" adds black; unless given the model's file says.
        augment: some of "flip", "crop", "colour", or "all": training pictures are varied at random; "mixup" lays another
            picture over each, and its label. "auto": mirrored and cut while all layers learn, where the pictures held out
            are named as well so; "none".
        skip_damaged: leave pictures out that cannot be read, instead of refusing.

    Example:
        >>> import circle_train as ct
        >>> data = ct.data.images("tests/data/shapes", validation=0.25)
        >>> data.classes, len(data)
        (('circle', 'square'), 16)
    """
    path = Path(folder)
    asked = asked_of(size, scale, offset, crop)
    found, skipped = _of_folder(path, skip_damaged)
    other = None
    if not isinstance(validation, (int, float, type(None))):
        held, _ = _of_folder(Path(validation), skip_damaged)
        (*_, classes), (*_, names) = found, held
        if names != classes:
            raise DataError(
                f"'{validation}' has the classes {', '.join(names)}, expected {', '.join(classes)} as '{path}' has"
            )
        other = Images(*held, validation=0.0, asked=asked)
    tried = TRIED if augment == "auto" else ()
    varied = () if tried else chosen_augmentations(augment, ("flip", "crop", "colour"))
    return Images(
        *found, validation=0.0 if other else validation, held_out=other,  # type: ignore[arg-type]
        skipped=skipped, name=str(path), asked=asked, augmentation=varied, tried=tried,
    )  # fmt: skip


def asked_of(
    size: tuple[int, int] | None = None,
    scale: float | Sequence[float] | None = None,
    offset: float | Sequence[float] | None = None,
    crop: str | None = None,
) -> Description:
    """What a caller says of pictures; what he leaves open the model says."""
    if crop is not None and crop not in CROPS:
        raise ConfigError(f"crop is {crop!r}, expected one of {', '.join(CROPS)}")
    mean, std = numbers(offset, "offset", 0.0, scale), numbers(scale, "scale", 1.0, offset)
    return Description(kind="image", size=size, mean=mean, std=std, details={"crop": crop} if crop else {})


def read_image(path: str | os.PathLike[str], how: Description) -> Array:
    """Pixels 0 … 255 as height × width × channels of uint8: turned, cut, resized."""
    image = pillow()
    assert how.size is not None
    height, width = how.size
    _refuse_unread(Path(path))
    try:
        with image.open(path, formats=FORMATS) as file:
            _refuse_odd(file, path)
            file.draft("RGB", (2 * width, 2 * height))
            picture = _of_bytes(image_ops().exif_transpose(file)).convert(MODES.get(how.channels, "RGB"))
    except DataError:
        raise
    except Exception as error:  # damaged pictures make Pillow's decoders raise what they like
        raise DataError(f"'{path}' cannot be read as a picture ({error}); repair or remove it") from None
    crop = how.details.get("crop", "center")
    is_enlarged = picture.width < width or picture.height < height
    filter_ = (
        image.Resampling.LANCZOS if is_enlarged else image.Resampling.BILINEAR
    )  # blurred ones are worse told apart
    if crop == "center":
        picture = image_ops().fit(picture, (width, height), filter_)
    elif crop == "pad":
        picture = image_ops().pad(picture, (width, height), filter_)
    else:
        picture = picture.resize((width, height), filter_)
    return np.asarray(picture, np.uint8).reshape(height, width, -1)


def image_shape(tensor: Tensor) -> tuple[int, int, int]:
    """Height, width and channels of an input for pictures; -1 for open sizes."""
    shape = tensor.shape_signature if tensor.shape_signature is not None else tensor.shape
    if len(shape) != 4:
        sizes = "×".join(map(str, shape))
        raise ConfigError(
            f"input '{tensor.name}' is {sizes}, expected one for pictures: batch × height × width × channels"
        )
    first = shape[1] in MODES and shape[3] not in MODES
    height, width, channels = (shape[2], shape[3], shape[1]) if first else (shape[1], shape[2], shape[3])
    return height, width, channels if channels in MODES else 3


def pillow() -> Any:
    """Pillow's module for pictures."""
    try:
        from PIL import Image
    except ImportError as error:
        raise DataError("reading pictures needs Pillow: pip install 'circle-train[images]'") from error
    return Image


def image_ops() -> Any:
    from PIL import ImageOps

    return ImageOps


def numbers(value: Any, what: str, usual: float, other: Any) -> tuple[float, ...] | None:
    """One number or one for each channel; the usual one where only the other of scale and offset is given."""
    if value is None:
        return None if other is None else (usual,) * (len(other) if isinstance(other, Sequence) else 1)
    given = tuple(value) if isinstance(value, Sequence) else (value,)
    good = all(isinstance(n, (int, float)) and np.isfinite(n) and (n or what == "offset") for n in given)
    if not good or not given:
        raise ConfigError(f"{what} is {value!r}, expected a number, or one for each channel")
    if isinstance(other, Sequence) and len(given) == 1:
        given *= len(other)
    return tuple(map(float, given))


def chosen_augmentations(wish: Sequence[str] | str, known: Sequence[str]) -> tuple[str, ...]:
    """Names of what varies samples."""
    if wish in ("none", ["none"]):
        return ()
    chosen = tuple(known) if wish == "all" else (wish,) if isinstance(wish, str) and wish else tuple(wish)
    if strangers := [name for name in chosen if name not in (*known, MIXUP)]:
        raise ConfigError(
            f"augment: '{strangers[0]}' is unknown, expected some of {', '.join(known)}, {MIXUP}, all (but {MIXUP}), or none"
        )
    return chosen


def _of_folder(
    folder: Path, skip: bool
) -> tuple[tuple[Sequence[Path], Array, tuple[str, ...]], tuple[str, ...]]:
    """Pictures that are whole, their classes' numbers and names; and what was left out."""
    image = pillow()

    def look(file: Path) -> None:
        _refuse_unread(file)
        with image.open(file, formats=FORMATS) as picture:
            _refuse_odd(picture, file)
            _refuse_halves(picture, file)

    files, labels, classes = files_by_class(folder, SUFFIXES, "pictures", UNREAD)
    places, _, skipped = intact(files, look, "pictures", skip)
    return (files.take(places), labels[places], classes), skipped


def _of_bytes(picture: Any) -> Any:
    """The upper half of 16 bits a pixel, which Pillow would cut off at 255: white."""
    if not picture.mode.startswith("I"):
        return picture
    return pillow().fromarray((np.asarray(picture).astype(np.int64) >> 8).astype(np.uint8))


def _refuse_unread(path: Path) -> None:
    if path.suffix.lower() in UNREAD:
        raise DataError(f"'{path}' is {path.suffix}, which is not read; save it as .jpg or .png")


def _refuse_odd(picture: Any, path: Any) -> None:
    """Bombs, and numbers of which nobody can know what is white."""
    width, height = picture.size
    if picture.mode == "F" or (picture.mode == "I" and picture.format != "PNG"):
        raise DataError(f"'{path}' has 32 bits a pixel, expected 8 or 16; save it as an ordinary picture")
    if width * height > LARGEST:
        raise DataError(
            f"'{path}' has {width}×{height} pixels, expected at most {LARGEST:,}; make it smaller"
        )
    if picture.format == "JPEG" and (scans := _count(path, JPEG_SCAN)) > MOST_SCANS:
        raise DataError(f"'{path}' is made of {scans} scans, expected at most {MOST_SCANS}; save it anew")


def _refuse_halves(picture: Any, path: Path) -> None:
    """Raise where a part is missing, which the header does not tell; the pixels of whole JPEGs and PNGs are left undecoded."""
    if picture.format == "PNG":
        picture.verify()
    elif picture.format != "JPEG" or not _ends(path, JPEG_END):
        picture.load()


def _count(path: Any, mark: bytes) -> int:
    """How often the mark stands in the file, a piece of it after the other."""
    count, last = 0, b""
    with open(path, "rb") as file:
        while piece := file.read(1 << 20):
            count += (last + piece).count(mark)
            last = piece[-1:] if piece[-1:] == mark[:1] else b""
    return count


def _ends(path: Path, mark: bytes) -> bool:
    """Whether the mark stands near the file's end; cameras append what they like."""
    with open(path, "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(size - 4096, 0))
        return mark in file.read()


def _of_integers(tensor: Tensor) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Mean and deviation that make an integer input's numbers the pixels themselves, or the pixels less 128."""
    assert tensor.quantization is not None
    scale, zero = tensor.quantization.scale[0], tensor.quantization.zero_point[0]
    shift = 0 if tensor.dtype.name.upper() == "UINT8" else 128
    return (float(zero + shift),), (1.0 / scale,)
