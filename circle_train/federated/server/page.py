"""The report of a run of rounds: one HTML file, nothing fetched."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from importlib.resources import files

from circle_train.federated.server.run import Run
from circle_train.printable import as_html
from circle_train.report.curves import svg
from circle_train.report.page import HTML
from circle_train.report.plan import Plan, size

BARS, WIDTH, HEIGHT = 120, 460, 130
"""Clients that are drawn one by one (of more, groups of neighbours in the order of their scores), and the picture's size."""
NAMED = 100
"""Replies left out that are listed."""


def write_page(run: Run, plan: Plan) -> str:
    """What was reached, round by round; how clients differ; what travelled; who was left out."""
    style = (files("circle_train.report") / "page.css").read_text(encoding="utf-8")
    charts = "".join(_card(svg(name, group)) for name, group in _charts(run).items())
    body = (
        f"<h1>{len(run.rounds)} rounds</h1>"
        f'<p class="sub">the weights of round {run.best_round} are kept</p>'
        f'<div class="tiles">{_tiles(run, plan)}</div><div class="charts">{charts}</div>'
        f"{_card(_by_client(run.scores)) if run.scores else ''}"
        f"{_card(_refused(run)) if run.refused else ''}"
        f'<details class="card" open><summary>Every round</summary>{_rounds(run)}</details>'
        f'<details class="card"><summary>A client\'s step</summary><pre>{escape(str(plan))}</pre></details>'
    )
    return HTML.format(title=f"{len(run.rounds)} rounds", style=style, body=body)


def _card(content: str) -> str:
    return f'<section class="card">{content}</section>'


def _charts(run: Run) -> dict[str, dict[str, Sequence[float]]]:
    """Each quantity as server, clients and training clients saw it; clients and megabytes of each round."""
    groups: dict[str, dict[str, Sequence[float]]] = {}
    for name, series in run.history.items():
        quantity = name.removeprefix("clients_").removeprefix("training_")
        groups.setdefault(quantity, {})[name] = series
    groups["clients"] = {"trained": [one.clients for one in run.rounds]}
    down, up = (
        [n / 1e6 for n in column]
        for column in zip(*((r.bytes_down, r.bytes_up) for r in run.rounds), strict=True)
    )
    groups["MB on the wire"] = {"down": down, "up": up}
    return groups


def _tiles(run: Run, plan: Plan) -> str:
    best = next((one for one in run.rounds if one.number == run.best_round), None)
    tiles = []
    if best is not None:
        for metrics, whose in ((best.server, "server"), (best.evaluation, "clients")):
            tiles += [
                (f"{v:.1%}" if "accuracy" in n else f"{v:.4g}", f"{n}, {whose}") for n, v in metrics.items()
            ]
    travelled = sum(one.bytes_down + one.bytes_up for one in run.rounds)
    tiles.append((size(travelled), "on the wire"))
    tiles.append((f"{sum(plan.parameters.values()):,}", "parameters trained"))
    tiles.append((f"{sum(one.seconds for one in run.rounds):.1f} s", "all rounds"))
    tiles.append((f"{len(run.refused)}", "replies left out"))
    return "".join(
        f'<section class="card tile"><b>{as_html(a)}</b><span>{as_html(b)}</span></section>' for a, b in tiles
    )


def _by_client(scores: Mapping[int, float]) -> str:
    """A bar for each client, the lowest first."""
    order = sorted(scores.values())
    step = max(1, -(-len(order) // BARS))
    means = [sum(group) / len(group) for group in (order[i : i + step] for i in range(0, len(order), step))]
    top = max(means) or 1.0
    width = WIDTH / len(means)
    bars = "".join(
        f'<rect x="{i * width:.1f}" y="{HEIGHT - HEIGHT * max(v, 0) / top:.1f}" width="{width * 0.85:.1f}" '
        f'height="{HEIGHT * max(v, 0) / top:.1f}" fill="var(--c0,#2563eb)"><title>{v:.4g}</title></rect>'
        for i, v in enumerate(means)
    )
    lowest = sorted(scores, key=lambda client: scores[client])[:5]
    named = ", ".join(f"client {client}: {scores[client]:.4g}" for client in lowest)
    picture = f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="by client">{bars}</svg>'
    median = order[len(order) // 2]
    return (
        f"<h2>By client</h2>{picture}<p class='note'>{len(order)} clients from {order[0]:.4g} to {order[-1]:.4g}, "
        f"half of them above {median:.4g}. Lowest: {as_html(named)}.</p>"
    )


def _refused(run: Run) -> str:
    rows = "".join(
        f"<tr><td>{one.round}</td><td>{one.client}</td><td>{as_html(one.why)}</td></tr>"
        for one in run.refused[:NAMED]
    )
    more = len(run.refused) - NAMED
    note = f'<p class="note">and {more} more</p>' if more > 0 else ""
    return f"<h2>Left out</h2><table><tr><th>round</th><th>client</th><th>why</th></tr>{rows}</table>{note}"


def _rounds(run: Run) -> str:
    names = list(run.history)
    head = "".join(
        f"<th>{as_html(name)}</th>" for name in ("round", "clients", "down", "up", "seconds", *names)
    )
    rows = []
    for place, one in enumerate(run.rounds):
        facts = [
            str(one.number),
            str(one.clients),
            size(one.bytes_down),
            size(one.bytes_up),
            f"{one.seconds:.2f}",
        ]
        series = [run.history[name] for name in names]
        facts += [f"{values[place]:.5g}" if place < len(values) else "" for values in series]
        rows.append("<tr>" + "".join(f"<td>{as_html(fact)}</td>" for fact in facts) + "</tr>")
    return f"<table><tr>{head}</tr>{''.join(rows)}</table>"
