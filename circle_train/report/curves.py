"""Curves: as SVG without any package, as PNG where matplotlib is installed, as text in a terminal."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from html import escape
from math import isfinite
from os import PathLike

BLOCKS = "▁▂▃▄▅▆▇█"
COLOURS = ("#3366cc", "#dc3912", "#109618", "#990099")
WIDTH, HEIGHT, MARGIN = 560, 240, 44

Curves = Mapping[str, Sequence[float]]


def sparkline(values: Sequence[float]) -> str:
    """One character a value."""
    finite = [v for v in values if isfinite(v)]
    if not finite:
        return ""
    low, high = min(finite), max(finite)
    scale = (len(BLOCKS) - 1) / (high - low) if high > low else 0.0
    return "".join(BLOCKS[round((v - low) * scale)] if isfinite(v) else " " for v in values)


def families(curves: Curves) -> dict[str, dict[str, Sequence[float]]]:
    """Each quantity with its validation twin."""
    names = [name for name in curves if not name.startswith("val_") and curves[name]]
    return {name: {n: curves[n] for n in (name, f"val_{name}") if n in curves} for name in names}


def svg(title: str, curves: Curves) -> str:
    """A line chart of curves over epochs."""
    points = [v for values in curves.values() for v in values if isfinite(v)]
    if not points:
        return ""
    low, high = min(points), max(points)
    span = (high - low) or 1.0
    length = max(len(values) for values in curves.values())

    def place(i: int, v: float) -> str:
        x = MARGIN + i * (WIDTH - 2 * MARGIN) / max(length - 1, 1)
        return f"{x:.1f},{HEIGHT - MARGIN - (v - low) / span * (HEIGHT - 2 * MARGIN):.1f}"

    lines = []
    for number, (name, values) in enumerate(curves.items()):
        path = " ".join(place(i, v) for i, v in enumerate(values) if isfinite(v))
        colour = COLOURS[number % len(COLOURS)]
        lines.append(f'<polyline fill="none" stroke="{colour}" stroke-width="2" points="{path}"/>')
        if length == 1:
            x, y = path.split(",")
            lines.append(f'<circle cx="{x}" cy="{y}" r="3" fill="{colour}"/>')
        lines.append(
            f'<text x="{MARGIN + 150 * number}" y="{HEIGHT - 8}" fill="{colour}">{escape(name)}</text>'
        )
    axes = (
        f'<path d="M{MARGIN},{MARGIN} V{HEIGHT - MARGIN} H{WIDTH - MARGIN}" fill="none" stroke="#999"/>'
        f'<text x="4" y="{MARGIN + 4}">{high:.4g}</text><text x="4" y="{HEIGHT - MARGIN + 4}">{low:.4g}</text>'
        f'<text x="{WIDTH - MARGIN}" y="{HEIGHT - MARGIN + 16}" text-anchor="end">epoch {length}</text>'
    )
    heading = f'<text x="{MARGIN}" y="24" font-weight="bold">{escape(title)}</text>'
    return f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" font-size="12">{heading}{axes}{"".join(lines)}</svg>'


def draw_png(curves: Curves, path: str | PathLike[str]) -> bool:
    """The curves as a picture; whether matplotlib is there to draw it."""
    if importlib.util.find_spec("matplotlib") is None:
        return False
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    groups = families(curves)
    figure = Figure(figsize=(6, 3 * max(len(groups), 1)), layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (title, group) in zip(
        figure.subplots(max(len(groups), 1), squeeze=False)[:, 0], groups.items(), strict=False
    ):
        for name, values in group.items():
            axes.plot(range(1, len(values) + 1), values, marker="." if len(values) < 20 else "", label=name)
        axes.set(title=title, xlabel="epoch")
        axes.grid(alpha=0.3)
        axes.legend()
    figure.savefig(path, dpi=120)
    return True


def text_chart(values: Sequence[float], height: int = 8, label: str = "") -> list[str]:
    """A small chart for a terminal."""
    low, high = min(values), max(values)
    span = (high - low) or 1.0
    rows = []
    for level in range(height - 1, -1, -1):
        cells = "".join("██" if (v - low) / span * (height - 1) >= level - 0.25 else "  " for v in values)
        edge = f"{high:8.3f}" if level == height - 1 else f"{low:8.3f}" if level == 0 else " " * 8
        rows.append(f"{edge} ┤{cells}")
    return [f"{label:>8}", *rows, f"{'':8} └{'──' * len(values)} epochs"]
