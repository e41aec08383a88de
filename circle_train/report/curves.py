"""Curves: as SVG without any package, as PNG where matplotlib is installed, as text in a terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from itertools import islice
from math import floor, isfinite, log10
from os import PathLike

from circle_train.format.atomic import atomic_write
from circle_train.printable import as_html, printable

COLOURS = ("#2563eb", "#ea580c", "#16a34a", "#9333ea")
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 460, 250, 52, 14, 38, 44

TOP_LINE = 7
"""Of a chart for a terminal, the lowest being 0."""
MOST_DRAWN = 24
"""Quantities that a picture shows, one below the other; a page and a table have all of them."""
Curves = Mapping[str, Sequence[float]]


def families(curves: Curves) -> dict[str, dict[str, Sequence[float]]]:
    """Each quantity with its validation twin."""
    names = [name for name in curves if not name.startswith("val_") and curves[name]]
    return {name: {n: curves[n] for n in (name, f"val_{name}") if n in curves} for name in names}


def ticks(low: float, high: float) -> list[float]:
    """Some four round numbers that enclose low … high."""
    raw = (high - low) / 4 or abs(high) or 1.0
    power = 10.0 ** floor(log10(raw))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= raw * 0.999)
    first = floor(low / step + 1e-9)
    found = [first * step]
    while found[-1] < high - 1e-9 * step:
        found.append((first + len(found)) * step)
    return found if len(found) > 1 else [*found, found[0] + step]


def svg(title: str, curves: Curves) -> str:
    """A line chart of curves over epochs; colours may be set by the CSS variables --c0, --c1, --ink and --rule."""
    points = [v for values in curves.values() for v in values if isfinite(v)]
    if not points:
        return ""
    marks = ticks(min(points), max(points))
    length = max(len(values) for values in curves.values())
    parts = [
        f'<text x="{LEFT}" y="20" font-size="14" font-weight="600">{as_html(title.replace("_", " "))}</text>'
    ]
    for mark in marks:
        y = _y(mark, marks)
        parts.append(f'<path d="M{LEFT},{y:.1f}H{WIDTH - RIGHT}" stroke="var(--rule,#e2e8f0)"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:.4g}</text>')
    every = max(1, -(-length // 10))
    for epoch in range(1, length + 1, every):
        parts.append(
            f'<text x="{_x(epoch - 1, length):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{epoch}</text>'
        )
    for number, (name, values) in enumerate(curves.items()):
        parts.append(_line(number, name, values, marks, length))
    style = 'font-size="11" font-family="inherit" fill="var(--ink,#475569)"'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{as_html(title)}" {style}>{"".join(parts)}</svg>'


def _line(number: int, name: str, values: Sequence[float], marks: Sequence[float], length: int) -> str:
    """One curve, a dot for each epoch that says its value, and its entry in the legend."""
    colour = f"var(--c{number},{COLOURS[number % len(COLOURS)]})"
    placed = [(i, _x(i, length), _y(v, marks), v) for i, v in enumerate(values) if isfinite(v)]
    path = " ".join(f"{x:.1f},{y:.1f}" for _, x, y, _ in placed)
    radius = 3 if length <= 30 else 1.2
    dots = "".join(
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius}"><title>epoch {i + 1}: {v:.5g}</title></circle>'
        for i, x, y, v in placed
    )
    kind = "validation" if name.startswith("val_") else "training"
    x, y = LEFT + 90 * number, HEIGHT - 8
    legend = (
        f'<circle cx="{x + 4}" cy="{y - 4}" r="4" fill="{colour}"/><text x="{x + 13}" y="{y}">{kind}</text>'
    )
    line = (
        f'<polyline fill="none" stroke="{colour}" stroke-width="2" stroke-linejoin="round" points="{path}"/>'
    )
    return f'{line}<g fill="{colour}">{dots}</g>{legend}'


def _x(index: int, length: int) -> float:
    return LEFT + 6 + index * (WIDTH - LEFT - RIGHT - 12) / max(length - 1, 1)


def _y(value: float, marks: Sequence[float]) -> float:
    return HEIGHT - BOTTOM - (value - marks[0]) / (marks[-1] - marks[0]) * (HEIGHT - TOP - BOTTOM)


def draw_png(curves: Curves, path: str | PathLike[str]) -> bool:
    """The curves as a picture; whether matplotlib is there to draw it."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = dict(islice(families(curves).items(), MOST_DRAWN))
    figure = Figure(figsize=(6, 3 * max(len(groups), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, group) in zip(
        figure.subplots(max(len(groups), 1), squeeze=False)[:, 0], groups.items(), strict=False
    ):
        for number, (name, values) in enumerate(group.items()):
            marker = "." if len(values) < 20 else ""
            axes.plot(
                range(1, len(values) + 1), values, marker=marker, label=_plain(name), color=COLOURS[number]
            )
        axes.set(title=_plain(title), xlabel="epoch")
        axes.grid(alpha=0.3)
        axes.legend()
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=120)
    return True


def _plain(name: str) -> str:
    """A name as it is: matplotlib takes what stands between dollars for a formula."""
    return printable(name).replace("$", r"\$")


def text_chart(values: Sequence[float], label: str) -> list[str]:
    """A small chart for a terminal."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    rows = []
    for level in range(TOP_LINE, -1, -1):
        cells = "".join("██" if (v - low) / span * TOP_LINE >= level - 0.25 else "  " for v in values)
        edge = f"{high:8.3f}" if level == TOP_LINE else f"{low:8.3f}" if level == 0 else " " * 8
        rows.append(f"{edge} ┤{cells}")
    return [f"{label:>8}", *rows, f"{'':8} └{'──' * len(values)} epochs"]
