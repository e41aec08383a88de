"""How good a model is class by class, and where it errs most: as HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from circle_train.printable import as_html
from circle_train.record import record


@record
class ClassRow:
    """A class as it was judged."""

    name: str
    samples: int
    precision: float
    recall: float


@record
class Became:
    """What a model was worth when it had become one of integers."""

    how: str
    """In which numbers, and by whom it was judged."""
    metrics: Mapping[str, tuple[float, float]]
    """In floats, and as shipped."""


@record
class Mistake:
    """A sample that was taken for something else."""

    name: str
    truth: str
    taken: str
    score: float
    picture: str = ""
    """An address that holds the picture itself."""


def class_table(rows: Sequence[ClassRow]) -> str:
    """Precision and recall, each with a bar behind it."""
    head = "<tr><th>class</th><th>samples</th><th>precision</th><th>recall</th></tr>"
    body = "".join(
        f"<tr><td>{as_html(row.name)}</td><td>{row.samples:,}</td>{_share(row.precision)}{_share(row.recall)}</tr>"
        for row in rows
    )
    note = "Precision: of what was taken for the class, how much is of it. Recall: of the class, how much was found."
    return f'<h2>Class by class</h2><table class="classes">{head}{body}</table><p class="note">{note}</p>'


def _share(value: float) -> str:
    bar = f"linear-gradient(to right,var(--fill) {100 * value:.0f}%,transparent 0)"
    return f'<td style="background:{bar}">{value:.1%}</td>'


def before_after(numbers: Mapping[str, tuple[float, float]], best: str, shipped: Became | None = None) -> str:
    """What the samples held out were judged before training, after it, and as shipped in integers."""
    became = {} if shipped is None else shipped.metrics
    rows: dict[str, list[float | None]] = {name: list(pair) for name, pair in numbers.items()}
    for name, (in_floats, value) in became.items():
        rows[name] = [*rows.get(name, (None, in_floats)), value]
    width = 3 if became else 2
    body = "".join(
        f"<tr><td>{as_html(name)}</td>{''.join(map(_cell, [*row, None][:width]))}</tr>"
        for name, row in rows.items()
    )
    head = f"<tr><th></th><th>before</th><th>after</th>{'<th>as shipped</th>' if became else ''}</tr>"
    return (
        f'<h2>Before and after</h2><table class="classes">{head}{body}</table>'
        f'<p class="note">Before: the model with its new, untrained head. Best epochs: {as_html(best)}.'
        + (f" As shipped: {as_html(shipped.how)}." if shipped else "")
        + "</p>"
    )


def _cell(value: float | None) -> str:
    return "<td></td>" if value is None else f"<td>{value:.3f}</td>"


def gallery(mistakes: Sequence[Mistake]) -> str:
    """The worst mistakes, each with its picture."""
    figures = "".join(
        "<figure>"
        + (f'<img src="{mistake.picture}" alt="{as_html(mistake.name)}"/>' if mistake.picture else "")
        + f"<figcaption><b>{as_html(mistake.truth)}</b>, taken for {as_html(mistake.taken)} ({mistake.score:.0%})"
        + f"<br/><span>{as_html(mistake.name)}</span></figcaption></figure>"
        for mistake in mistakes
    )
    return f'<h2>Worst mistakes</h2><div class="gallery">{figures}</div>'
