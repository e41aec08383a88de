#!/usr/bin/env python3
"""Write docs/onnx-operators.md: what conversion makes of every ONNX operator, measured on onnx's own cases.

python tools/dev/onnx_table.py            write it
python tools/dev/onnx_table.py --check    only say whether it is up to date, if the page's onnx is installed
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests/nets")]

import onnx  # noqa: E402
from onnx_cases import Case, Outcome, node_cases, outcome, stored_cases, with_constants  # noqa: E402

import circle_train.convert.direct  # noqa: E402, F401  (registers the handlers)
from circle_train.convert.building.registry import HANDLERS  # noqa: E402
from circle_train.ops.foreign.operator import FUNCTIONS  # noqa: E402

PAGE = ROOT / "docs" / "onnx-operators.md"
SETS = ("pytorch-converted", "pytorch-operator", "simple")


def page() -> str:
    results: dict[str, list[tuple[Case, Outcome]]] = defaultdict(list)
    for case in node_cases():
        results[case.operator].append((case, outcome(case)))
    fixed: dict[str, list[Outcome]] = defaultdict(list)
    for case in with_constants(node_cases()):
        fixed[case.operator].append(outcome(case))
    sets = {kind: [outcome(case) for case in stored_cases(kind)] for kind in SETS}
    total = Counter(found.verdict for rows in results.values() for _, found in rows)
    known = {name for domain, name in HANDLERS if not domain}
    rows = [
        _row(name, results[name], fixed[name], name in known)
        for name in sorted(results, key=lambda n: (n[0] == "(", n))
    ]
    untested = sorted(known - set(results))
    return "\n".join(
        [
            "# ONNX operators",
            "",
            f"Written by `tools/dev/onnx_table.py` with onnx {onnx.__version__}, whose numeric cases are converted, computed",
            "by our reference operators and compared with the results that the standard asks for. What does not convert is",
            "refused before anything runs, or, where the reason is a value computed while running, then; nothing is",
            "computed wrongly.",
            "",
            f"Of {total.total()} single-operator cases {total['match']} match ({100 * total['match'] / total.total():.0f} %), "
            f"{total['refused']} are refused, {total['wrong']} are wrong. "
            + " ".join(f"Of `{kind}`, {_counts(found)}." for kind, found in sets.items()),
            "",
            "*How*: by an operator of Circle or several (`direct`), by the function of simpler operators that ONNX itself",
            "gives (`function`), by an operator of our own that only circle_train computes, in `.circle` files (`own`), or",
            "not at all (`–`). In onnx's cases all shapes, axes, counts and weights are inputs of the",
            "model; in models that people export they are constants. *With constants* are the same cases in that form:",
            f"{_counts([one for found in fixed.values() for one in found])}, the others are refused.",
            "",
            "| operator | how | match | refused | with constants | a reason of refusal |",
            "|---|---|---|---|---|---|",
            *rows,
            "",
            f"Converted too, but without numeric cases: {', '.join(untested)}.",
            "",
        ]
    )


def measured_with() -> str:
    """The onnx whose cases the page counts."""
    found = re.search(r"with onnx ([\w.+-]+),", PAGE.read_text(encoding="utf-8"))
    return found[1] if found else "of an unknown version"


def _counts(found: list[Outcome]) -> str:
    return f"{sum(one.verdict == 'match' for one in found)} of {len(found)} match"


def _row(name: str, rows: list[tuple[Case, Outcome]], fixed: list[Outcome], has_handler: bool) -> str:
    verdicts = Counter(found.verdict for _, found in rows)
    matched = sum(found.verdict == "match" for found in fixed)
    how = (
        ""
        if name[0] == "("
        else "direct"
        if has_handler
        else "own"
        if name in FUNCTIONS
        else "function"
        if verdicts["match"] + matched
        else "–"
    )
    reasons = Counter(_shortened(found.reason) for _, found in rows if found.verdict == "refused")
    reason = reasons.most_common(1)[0][0] if reasons and name[0] != "(" else ""
    share = f"{matched} of {len(fixed)}" if fixed else ""
    return (
        f"| {name} | {how} | {verdicts['match'] or ''} | {verdicts['refused'] or ''} | {share} | {reason} |"
    )


def _shortened(reason: str) -> str:
    """The reason itself, without the node's name and place."""
    return reason.split("): ", 1)[-1].split("; ", maxsplit=1)[0].replace("|", "/")[:120]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    if options.check and (measured := measured_with()) != onnx.__version__:
        print(f"not compared: {PAGE.name} was measured with onnx {measured}, installed is {onnx.__version__}")
        return 0
    text = page()
    if options.check:
        if PAGE.read_text(encoding="utf-8") != text:
            print(f"{PAGE} is out of date: run python tools/dev/onnx_table.py", file=sys.stderr)
            return 1
        return 0
    PAGE.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
