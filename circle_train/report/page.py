"""The HTML page of a run: one file, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from html import escape
from importlib.resources import files

from circle_train.ir.tensor_type import Array
from circle_train.printable import as_html
from circle_train.record import record
from circle_train.report import confusion
from circle_train.report.by_class import Became, ClassRow, Mistake, before_after, class_table, gallery
from circle_train.report.curves import COLOURS, Curves, families, svg
from circle_train.report.plan import Plan, count, size

HTML = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<style>
{style}</style>
</head>
<body><main>{body}</main></body>
</html>
"""


@record
class Run:
    """What there is to say about one training."""

    title: str
    summary: str
    curves: Curves
    plan: Plan
    settings: Mapping[str, str]
    data: Mapping[str, str]
    confusion: Array | None = None
    examined: str = ""
    """What the confusion table counts."""
    classes: Sequence[str] = ()
    """Names of the confusion table's rows; none: numbers."""
    by_class: Sequence[ClassRow] = ()
    before_after: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    best: str = ""
    stays: int = -1
    """The place in the curves of the epoch whose weights stay."""
    shipped: Became | None = None
    mistakes: Sequence[Mistake] = ()
    choice: str = ""
    """The table of what could have been trained."""
    made: Mapping[str, str] = field(default_factory=dict)
    """What repeats the run: command, versions, files with their hashes."""


def page(run: Run) -> str:
    """Last numbers, curves, what was trained on what, errors, every epoch, and the plan."""
    style = (files("circle_train.report") / "page.css").read_text(encoding="utf-8")
    charts = "".join(_card(svg(name, group)) for name, group in families(run.curves).items())
    errors = "" if run.confusion is None else _card(_errors(run))
    body = (
        f'<h1>{as_html(run.title)}</h1><p class="sub">{as_html(run.summary)}</p>'
        f'<div class="tiles">{_tiles(run)}</div><div class="charts">{charts}</div>'
        f"{_judged(run)}"
        f"{_card(_chosen(run.choice)) if run.choice else ''}"
        f'<div class="pair">{_card("<h2>Settings</h2>" + _facts(run.settings))}'
        f"{_card('<h2>Data</h2>' + _facts(run.data) + '<h2 style=margin-top:18px>Memory</h2>' + _memory(run.plan))}</div>"
        f"{errors}{_card('<h2>Trained</h2>' + _trained(run.plan))}"
        f"{_card('<h2>Made by</h2>' + _facts(run.made)) if run.made else ''}"
        f'<details class="card"><summary>Every epoch</summary>{_epochs(run.curves)}</details>'
        f'<details class="card"><summary>The whole plan</summary><pre>{escape(str(run.plan))}</pre></details>'
    )
    title = as_html(run.title)
    return HTML.format(title=title, style=style, body=body)


def _card(content: str) -> str:
    return f'<section class="card">{content}</section>'


def _tiles(run: Run) -> str:
    """Every quantity as it was with the weights that stay, of the validation where there is one; then size and work."""
    tiles = []
    for name, group in families(run.curves).items():
        chosen, values = list(group.items())[-1]
        value = values[run.stays]
        shown = f"{value:.1%}" if "accuracy" in name else f"{value:.4g}"
        label = name.replace("_", " ").replace("sparse categorical ", "").replace("categorical ", "")
        tiles.append((shown, f"{label}, {'validation' if chosen.startswith('val_') else 'training'}"))
    trained = sum(run.plan.parameters.values())
    tiles.append((f"{trained:,}", f"of {trained + run.plan.frozen_elements:,} parameters trained"))
    tiles.append((size(run.plan.total_bytes), "memory of a step"))
    tiles.append((f"{count(run.plan.flops)}FLOP", f"work of a step of {run.plan.batch_size}"))
    return "".join(
        f'<section class="card tile"><b>{as_html(a)}</b><span>{as_html(b)}</span></section>' for a, b in tiles
    )


def _facts(rows: Mapping[str, str]) -> str:
    cells = "".join(
        f"<tr><th>{as_html(name)}</th><td>{as_html(value)}</td></tr>" for name, value in rows.items()
    )
    return f'<table class="facts">{cells}</table>'


def _memory(plan: Plan) -> str:
    """A bar of the classes, each as long as it is large."""
    found = [(*item, colour) for item, colour in zip(plan.memory.items(), COLOURS, strict=False) if item[1]]
    bar = "".join(
        f'<div style="flex:{n};background:{c}" title="{name} {size(n)}"></div>' for name, n, c in found
    )
    keys = "".join(
        f'<span><i class="key" style="background:{c}"></i>{name} {size(n)}</span>' for name, n, c in found
    )
    return f'<div class="bar">{bar}</div><div class="keys">{keys}</div>'


def _trained(plan: Plan) -> str:
    """The operators with parameters that training changes."""
    rows = ["<tr><th>op</th><th>operator</th><th>output</th><th>parameters</th><th>backward</th></tr>"]
    for op in plan.operators:
        if op.trained:
            elements = sum(plan.parameters[name] for name in op.trained)
            shape = "×".join(map(str, op.shape))
            cells = (str(op.index), op.name, shape, f"{elements:,}", count(op.backward_flops))
            row = "".join(f"<td>{as_html(cell)}</td>" for cell in cells)
            rows.append(f'<tr title="{as_html(", ".join(op.trained))}">{row}</tr>')
    backward = sum(op.backward_flops > 0 for op in plan.operators)
    note = f"{len(plan.operators)} operators in all, {backward} of them with a backward pass."
    return f'<table>{"".join(rows)}</table><p class="note">{note}</p>'


def _chosen(choice: str) -> str:
    """What was tried, and what of it was taken."""
    return f"<h2>What to train</h2><pre>{escape(choice)}</pre>"


def _judged(run: Run) -> str:
    """How good it is by class, what training gained, where it errs."""
    parts = [_card(class_table(run.by_class))] if run.by_class else []
    parts += [_card(before_after(run.before_after, run.best, run.shipped))] if run.before_after else []
    pair = f'<div class="pair">{"".join(parts)}</div>' if parts else ""
    return pair + (_card(gallery(run.mistakes)) if run.mistakes else "")


def _errors(run: Run) -> str:
    counts = run.confusion
    assert counts is not None
    if len(counts) > confusion.CLASSES:
        return (
            f'<h2>What was taken for what</h2><p class="note">{len(counts)} classes do not fit a table.</p>'
        )
    right = counts.trace() / max(counts.sum(), 1)
    note = f"{as_html(run.examined)}; {right:.1%} right. Rows: what it is; columns: what it was taken for."
    return f'<h2>What was taken for what</h2>{confusion.table(counts, run.classes)}<p class="note">{note}</p>'


def _epochs(curves: Curves) -> str:
    names = list(curves)
    length = max((len(values) for values in curves.values()), default=0)
    head = "".join(f"<th>{as_html(name)}</th>" for name in ("epoch", *names))
    rows = []
    for i in range(length):
        cells = "".join(
            f"<td>{curves[name][i]:.5g}</td>" if i < len(curves[name]) else "<td></td>" for name in names
        )
        rows.append(f"<tr><td>{i + 1}</td>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
