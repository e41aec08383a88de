"""Recordings in folders named by what is heard."""

from __future__ import annotations

import os
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from circle_train.data.augment import vary_sound
from circle_train.data.folders.by_class import files_by_class, intact
from circle_train.data.labelled import Labelled
from circle_train.data.pictures import chosen_augmentations
from circle_train.errors import ConfigError, DataError, shown
from circle_train.format.metadata.description import Description
from circle_train.ir import Tensor
from circle_train.ir.tensor_type import Array
from circle_train.record import record

SUFFIXES = (".wav",)
USUAL_RATE = 16_000
LONGEST = 4 * 3600
"""Seconds of a recording."""
WIDTHS = (1, 2, 3, 4)
"""Bytes of a sample."""


@record
class Piece:
    """A stretch of a recording, in seconds."""

    path: Path
    start: float = 0.0


@record
class Sounds(Labelled):
    """Windows of recordings; read, mixed to one channel and resampled when a batch asks for them."""

    kind: ClassVar[str] = "audio"

    augmentation: tuple[str, ...] = ()
    seconds: float | None = None

    def describe(self, tensor: Tensor, known: Description | None) -> Description:
        known = known if known is not None and known.kind == "audio" else Description(kind="audio")
        sizes = [size for size in (tensor.shape_signature or tensor.shape)[1:] if size != 1]
        if len(sizes) > 1 or not tensor.shape[1:]:
            shape = "×".join(map(str, tensor.shape))
            raise ConfigError(
                f"input '{tensor.name}' is {shape}, expected batch × samples; for a model that takes features "
                "compute them first and give them as ct.data.windows"
            )
        rate = self.asked.sample_rate or known.sample_rate or USUAL_RATE
        count = sizes[0] if sizes and sizes[0] > 0 else round((self.seconds or 1.0) * rate)
        details = dict(known.details) | {"samples": count}
        mean, std = self.asked.mean or known.mean or (0.0,), self.asked.std or known.std or (1.0,)
        return replace(
            known, sample_rate=rate, mean=mean, std=std, labels=self.classes, scores=self.scores, details=details
        )  # fmt: skip

    def decode(self, item: Any, how: Description, random: np.random.Generator | None) -> Array:
        assert how.sample_rate is not None
        count = int(how.details["samples"])
        samples = resampled(*read_wave(item.path, item.start, count / how.sample_rate), how.sample_rate)
        fitted = np.zeros(count, np.float32)
        fitted[: len(samples)] = samples[:count]
        return fitted if random is None else vary_sound(fitted, self.augmentation, random)

    def shape(self, how: Description) -> tuple[int, ...]:
        return (int(how.details["samples"]),)


def sounds(
    folder: str | os.PathLike[str],
    *,
    validation: float | None = None,
    seconds: float | None = None,
    sample_rate: int | None = None,
    augment: Any = (),
    skip_damaged: bool = False,
) -> Sounds:
    """Recordings (.wav) in a folder for each class: `words/yes/001.wav`, `words/no/…`.

    Args:
        folder: its sub-folders are the classes.
        validation: the fraction of each class that validates (default: a fifth, of 1,000 and more a tenth); windows of one
            recording stay together.
        seconds: cut recordings into windows of this length; unless given each gives one, cut or filled with silence.
        sample_rate: of the model's input; recordings are resampled (default: the model's, or 16,000).
        augment: some of "shift", "speed", "volume", "noise", or "all": training windows are varied at random;
            "mixup" lays another window over each, and its label.
        skip_damaged: leave recordings out that cannot be read, instead of refusing.
    """
    if seconds is not None and not seconds > 0:
        raise ConfigError(f"seconds is {seconds!r}, expected a number above 0")
    if sample_rate is not None and not sample_rate > 0:
        raise ConfigError(f"sample_rate is {sample_rate!r}, expected so many a second")
    path = Path(folder)
    files, kinds, classes = files_by_class(path, SUFFIXES, "recordings")
    places, lengths, skipped = intact(files, partial(duration, window=seconds), "recordings", skip_damaged)
    items, labels, groups = [], [], []
    for number, (place, length) in enumerate(zip(places, lengths, strict=True)):
        starts = np.arange(0, max(length - 0.5 * seconds, 1e-9), seconds) if seconds else [0.0]
        file = files[place]
        items += [Piece(file, float(start)) for start in starts]
        labels += [kinds[place]] * len(starts)
        groups += [number] * len(starts)
    asked = Description(kind="audio", sample_rate=sample_rate)
    varied = chosen_augmentations(augment, ("shift", "speed", "volume", "noise"))
    split = np.array(groups) if len(items) > len(lengths) else None
    return Sounds(
        items, np.array(labels, np.int32), classes, groups=split, validation=validation, name=str(path), asked=asked,
        augmentation=varied, seconds=seconds, skipped=skipped,
    )  # fmt: skip


def duration(path: Path, window: float | None = None) -> float:
    """Seconds of a recording: as many as its file has bytes for, whatever its header says.

    A window holds a sample at least: there are no more windows than samples.
    """
    with _opened(path) as file:
        if window is not None and window * file.getframerate() < 1:
            raise DataError(
                f"'{path}' has {file.getframerate()} samples a second, of which {window:g} seconds hold none; "
                "give longer windows"
            )
        held = path.stat().st_size // (file.getsampwidth() * file.getnchannels())
        return min(file.getnframes(), held) / file.getframerate()


def read_wave(path: Path, start: float = 0.0, seconds: float = LONGEST) -> tuple[Array, int]:
    """Samples -1 … 1 of a stretch of a recording, all channels mixed, and their rate."""
    with _opened(path) as file:
        rate, width, channels = file.getframerate(), file.getsampwidth(), file.getnchannels()
        first = min(int(start * rate), file.getnframes())
        file.setpos(first)
        raw = file.readframes(min(int(np.ceil(seconds * rate)) + 1, file.getnframes() - first))
    raw = raw[: len(raw) // width * width]
    if width == 3:
        wide = np.zeros((len(raw) // 3, 4), np.uint8)
        wide[:, 1:] = np.frombuffer(raw, np.uint8)[: len(wide) * 3].reshape(-1, 3)
        values = wide.view("<i4")[:, 0] / 2.0**31
    elif width == 1:
        values = (np.frombuffer(raw, np.uint8) - 128.0) / 128
    else:
        values = np.frombuffer(raw, f"<i{width}") / 2.0 ** (8 * width - 1)
    whole = len(values) // channels * channels
    mixed: Array = values[:whole].reshape(-1, channels).mean(1).astype(np.float32)
    return mixed, rate


def resampled(samples: Array, rate: int, wanted: int) -> Array:
    """The same sound at another rate; what the new rate cannot hold is filtered out."""
    if rate == wanted or not len(samples):
        return samples
    count = max(round(len(samples) * wanted / rate), 1)
    padded = np.concatenate([samples, samples[::-1]])  # no click where the end meets the beginning
    spectrum = np.fft.rfft(padded)
    kept = np.zeros(count + 1, complex)
    common = min(len(spectrum), len(kept))
    kept[:common] = spectrum[:common]
    found: Array = np.fft.irfft(kept, 2 * count)[:count] * (count / len(samples))
    return found.astype(np.float32)


@contextmanager
def _opened(path: Path) -> Iterator[wave.Wave_read]:
    try:
        with wave.open(str(path), "rb") as file:
            _refuse_odd(file, path)
            yield file
    except DataError:
        raise
    except Exception as error:  # damaged files make the reader raise what it likes
        raise DataError(
            f"'{path}' cannot be read as a recording ({shown(error)}); give .wav files of plain samples"
        ) from None


def _refuse_odd(file: wave.Wave_read, path: Path) -> None:
    if (
        not file.getframerate()
        or not file.getnchannels()
        or file.getsampwidth() not in WIDTHS
        or file.getnframes() > LONGEST * file.getframerate()
    ):
        raise DataError(
            f"'{path}' has {file.getnframes()} samples of {file.getsampwidth()} bytes at {file.getframerate()} Hz; "
            "give an intact recording"
        )
