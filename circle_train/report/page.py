"""The HTML page of a run: one file, nothing fetched."""

from __future__ import annotations

from html import escape

from circle_train.report.curves import Curves, families, svg

STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:60em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}td,th{padding:.2em .8em;text-align:right}"
    "tr:nth-child(even){background:#f4f4f4}pre{overflow-x:auto;background:#f8f8f8;padding:1em;font-size:12px}"
)


def page(title: str, curves: Curves, plan: str) -> str:
    """Curves, the numbers of every epoch, and the plan."""
    charts = "".join(svg(name, group) for name, group in families(curves).items())
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{escape(title)}</title><style>{STYLE}</style>'
        f"<h1>{escape(title)}</h1>{charts}<h2>Epochs</h2>{_table(curves)}<h2>Plan</h2><pre>{escape(plan)}</pre></html>\n"
    )


def _table(curves: Curves) -> str:
    names = list(curves)
    length = max((len(values) for values in curves.values()), default=0)
    head = "".join(f"<th>{escape(name)}</th>" for name in ("epoch", *names))
    rows = []
    for i in range(length):
        cells = "".join(
            f"<td>{curves[name][i]:.5g}</td>" if i < len(curves[name]) else "<td></td>" for name in names
        )
        rows.append(f"<tr><td>{i + 1}</td>{cells}</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
