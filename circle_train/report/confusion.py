"""What was taken for what: a table of classes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from circle_train.ir.tensor_type import Array
from circle_train.printable import as_html

CLASSES = 25
"""More do not fit a page."""
SAMPLES = 5000
"""More are not worth the wait."""


def confusion(found: Array, truth: Array, classes: int) -> Array:
    """How many samples of each class (row) were taken for each (column); of labels that are no class none."""
    counts = np.zeros((classes, classes), np.int64)
    known = (truth >= 0) & (truth < classes)
    np.add.at(counts, (truth[known], found[known]), 1)
    return counts


def classes_of(target: Any, samples: int) -> Array:
    """Class numbers of one-hot rows, or those that the labels are."""
    array = np.asarray(target)
    return (
        array.reshape(samples, -1).argmax(axis=1)
        if array.size != samples
        else array.reshape(-1).astype(np.int64)
    )


def table(counts: Array, classes: Sequence[str] = ()) -> str:
    """As HTML: the diagonal green, errors red, both by their share of the row."""
    names = [as_html(name) for name in classes] or [str(number) for number in range(len(counts))]
    share = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    head = "".join(f"<th><span>{name}</span></th>" for name in names)
    rows = []
    for row in range(len(counts)):
        cells = "".join(
            _cell(int(counts[row, c]), float(share[row, c]), row == c) for c in range(len(counts))
        )
        rows.append(f"<tr><th>{names[row]}</th>{cells}</tr>")
    return f'<table class="confusion"><tr><th></th>{head}</tr>{"".join(rows)}</table>'


def _cell(count: int, share: float, right: bool) -> str:
    colour = "var(--good)" if right else "var(--bad)"
    strength = 15 + 75 * share if count else 0
    return (
        f'<td style="background:color-mix(in srgb,{colour} {strength:.0f}%,transparent)">{count or ""}</td>'
    )
