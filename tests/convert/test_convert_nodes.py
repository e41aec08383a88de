"""onnx's backend cases: a match or a refusal, never a wrong number nor another exception."""

from __future__ import annotations

from collections import Counter

import pytest

pytest.importorskip("onnx")

from onnx_cases import node_cases, outcome, stored_cases, with_constants, with_one_computed

LEAST = 0.75


def shares(cases: object) -> tuple[Counter[str], list[str]]:
    counts: Counter[str] = Counter()
    wrong = []
    for case in cases:  # type: ignore[attr-defined]
        found = outcome(case)
        counts[found.verdict] += 1
        if found.verdict == "wrong":
            wrong.append(f"{case.name}: {found.reason}")
    return counts, wrong


def test_node_cases() -> None:
    counts, wrong = shares(node_cases())
    assert not wrong
    assert counts.total() > 1000
    assert counts["match"] >= LEAST * counts.total(), counts


def test_node_cases_with_constants() -> None:
    counts, wrong = shares(with_constants(node_cases()))
    assert not wrong
    assert counts.total() > 600
    assert counts["match"] >= 0.9 * counts.total(), counts


def test_node_cases_with_all_constants_but_one() -> None:
    counts, wrong = shares(with_one_computed(with_constants(node_cases())))
    assert not wrong
    assert counts.total() > 300
    assert counts["match"] >= 0.7 * counts.total(), counts


@pytest.mark.parametrize("kind", ["pytorch-converted", "pytorch-operator", "simple"])
def test_stored_cases(kind: str) -> None:
    counts, wrong = shares(stored_cases(kind))
    assert not wrong
    assert counts["match"] >= LEAST * counts.total() > 0, counts
