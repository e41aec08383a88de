"""What a fine-tuning tells about itself on a page: how good, by class, where it errs, and what made it."""

from __future__ import annotations

import base64
import hashlib
import io
import os
import platform
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from circle_train.data.pictures import Images, pillow, read_image
from circle_train.data.recordings import Piece
from circle_train.finetuning.result import Judgement, Outcome
from circle_train.format.atomic import write_text
from circle_train.record import record
from circle_train.release import VERSION
from circle_train.report.by_class import Became, ClassRow, Mistake
from circle_train.report.page import Run, page
from circle_train.session import InferenceSession
from circle_train.session.account import settings_of
from circle_train.session.shipping.ship import Shipped

BATCH = 16
MISTAKES = 12
"""More nobody looks at."""
THUMBNAIL = 160
"""Pixels of a side, at the most."""


@record
class Result(Outcome):
    """A trained model; `print` shows what it is and how good, `report` writes it as a page.

    Example:
        >>> import circle_train as ct
        >>> data = ct.data.images("tests/data/shapes", validation=0.25)
        >>> result = ct.finetune("tests/data/mnist.circle", data, epochs=1, verbose=0)
        >>> sorted(result.metrics)
        ['accuracy', 'f1', 'precision', 'recall']
    """

    def report(
        self,
        path: str | os.PathLike[str],
        command: str = "",
        files: Sequence[str | os.PathLike[str]] = (),
        shipped: Shipped | None = None,
    ) -> None:
        """Write one HTML file: how good, by class, before and after, the worst mistakes, and what made it.

        `command` and `files`, with their sizes and hashes, are named in it; `shipped` is what `export(quantize=…)` returned,
        whose accuracy then stands beside.
        """
        write_text(path, account(self, command, files, shipped=shipped))


def account(
    result: Outcome,
    command: str = "",
    files: Sequence[str | os.PathLike[str]] = (),
    shipped: Shipped | None = None,
) -> str:
    """The page as HTML; `files` are named with their sizes and hashes."""
    session, curves = result.session, joined(result)
    before = untrained(result).metrics
    classes = result.data.classes
    return page(
        Run(
            title=f"{', '.join(classes[:4])}{', …' * (len(classes) > 4)}" if classes else result.data.name,
            summary=f"{result.how}; {result.seconds:.1f} s of processor time, {time.strftime('%d %B %Y, %H:%M')}",
            curves=curves,
            plan=session.plan,
            settings=settings_of(session, sum(len(history.epoch) for history in result.histories)),
            data=_data(result),
            confusion=result.judgement.confusion if result.judgement.is_single and classes else None,
            examined=f"{len(result.examined):,} {'held out' if result.held_out else 'trained'} samples",
            classes=classes,
            by_class=class_rows(result),
            before_after={
                name.replace("_", " "): (before[name], after) for name, after in result.metrics.items()
            },
            best=best_epochs(result),
            stays=sum(len(history.epoch) for history in result.histories[:-1]) + result.best_epochs[-1],
            shipped=_became(shipped),
            mistakes=mistakes(result),
            choice="" if result.choice is None else str(result.choice),
            made=_made(result, command, files),
        )
    )  # fmt: skip


def _became(shipped: Shipped | None) -> Became | None:
    """What the shipped model was judged; None where it was not."""
    if shipped is None or shipped.judged is None:
        return None
    judged = shipped.judged
    metrics = {name.replace("_", " "): (judged.before[name], value) for name, value in judged.after.items()}
    return Became(f"{shipped.scheme}, judged by {judged.runtime}", metrics)


def untrained(result: Outcome) -> Judgement:
    """What the model with its new head said of the same samples before it was trained."""
    model, samples = result.session.model, result.examined
    infer, array = InferenceSession(model), samples.open(model.module.main.inputs[0], result.how)
    parts = [infer(array[at : at + BATCH]) for at in range(0, len(array), BATCH)]
    firsts = [np.asarray(part[0] if isinstance(part, list) else part, np.float32) for part in parts]
    return Judgement(
        np.concatenate([first.reshape(len(first), -1) for first in firsts]),
        samples.targets(),
        samples.classes,
    )


def joined(result: Outcome) -> dict[str, list[float]]:
    """The curves of all phases, one after the other."""
    found: dict[str, list[float]] = {}
    for history in result.histories:
        for name, values in history.history.items():
            found.setdefault(name, []).extend(values)
    return found


def best_epochs(result: Outcome) -> str:
    """Whose weights stayed, phase by phase."""
    parts, done = [], 0
    for phase, history, best in zip(result.phases, result.histories, result.best_epochs, strict=True):
        parts.append(f"{phase}: {done + best + 1} of {done + 1} to {done + len(history.epoch)}")
        done += len(history.epoch)
    return "; ".join(parts)


def class_rows(result: Outcome) -> list[ClassRow]:
    """Each class as it was judged."""
    if not result.data.classes:
        return []
    precision, recall = result.judgement.by_class
    counts = result.judgement.truth.sum(0)
    rows = zip(result.data.classes, counts, precision, recall, strict=True)
    return [ClassRow(name, int(count), float(p), float(r)) for name, count, p, r in rows]


def mistakes(result: Outcome) -> list[Mistake]:
    """The samples whose right answer was thought least likely, of those that were taken for something else."""
    found, truth = result.judgement.found, result.judgement.truth
    if not result.data.classes or not result.judgement.is_single:
        return []
    right, taken = truth.argmax(1), found.argmax(1)
    wrong = np.flatnonzero(right != taken)
    worst = wrong[np.argsort(found[wrong, right[wrong]], kind="stable")][:MISTAKES]
    names = result.data.classes
    return [
        Mistake(
            _name(result, i),
            names[right[i]],
            names[taken[i]],
            float(found[i, taken[i]]),
            _thumbnail(result, i),
        )
        for i in worst
    ]


def _name(result: Outcome, place: int) -> str:
    item = result.examined.items[place]
    if isinstance(item, Piece):
        return f"{item.path.name}, from {item.start:g} s"
    return item.name if isinstance(item, Path) else f"sample {place + 1}"


def _thumbnail(result: Outcome, place: int) -> str:
    """What the model saw, as an address that holds the picture; "" where there is none."""
    if not isinstance(result.examined, Images):
        return ""
    pixels = read_image(result.examined.items[place], result.how)
    picture = pillow().fromarray(pixels[..., 0] if pixels.shape[-1] == 1 else pixels[..., :3])
    picture.thumbnail((THUMBNAIL, THUMBNAIL))
    raw = io.BytesIO()
    picture.save(raw, "JPEG", quality=80)
    return f"data:image/jpeg;base64,{base64.b64encode(raw.getvalue()).decode()}"


def _data(result: Outcome) -> dict[str, str]:
    data = result.data
    found = {"samples": f"{len(data):,} from {data.name}" if data.name else f"{len(data):,}"}
    if data.classes:
        found["classes"] = ", ".join(
            f"{name} {count}" for name, count in zip(data.classes, data.counts(), strict=True)
        )
    found["held out"] = f"{result.held_out or 0:,}"
    found["input"] = f"{result.how}" + (f" ({result.why})" if result.why else "")
    if data.skipped:
        found["left out"] = ", ".join(data.skipped)
    return found


def _made(result: Outcome, command: str, files: Sequence[str | os.PathLike[str]]) -> dict[str, str]:
    """What repeats this run, and what it left."""
    session = result.session
    found = {"command": command} if command else {}
    found["circle-train"] = VERSION
    found["engine"] = f"{session.backend.name}, {platform.machine()}"
    found["python, numpy"] = f"{platform.python_version()}, {np.__version__}"
    for path in map(Path, files):
        raw = path.read_bytes()
        found[path.name] = f"{len(raw):,} bytes, sha256 {hashlib.sha256(raw).hexdigest()}"
    return found
