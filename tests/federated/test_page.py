"""The report of a run of rounds."""

from __future__ import annotations

import re

import pytest

pytest.importorskip("flwr")

from fleets import CONFIG, MODEL

import circle_train as ct
from circle_train.federated.server.page import write_page
from circle_train.federated.server.replies import Refused
from circle_train.federated.server.run import Round, Run

PLAN = ct.TrainSession(MODEL, CONFIG).plan


def test_the_page_shows_rounds_clients_bytes_and_who_was_left_out() -> None:
    rounds = [
        Round(n, 5, 3_000_000, 2_000_000, 1.5, {"loss": 2.0 / n}, 6, {"accuracy": n / 10}, {"loss": 1.0 / n})
        for n in (1, 2, 3)
    ]
    run = Run(
        {}, "loss", rounds, [Refused(2, 4, "its <loss> is nan")], dict.fromkeys(range(300), 0.5), best_round=3
    )
    page = write_page(run, PLAN)
    assert "3 rounds" in page and "the weights of round 3" in page
    assert "on the wire" in page
    assert "its &lt;loss&gt; is nan" in page and "<loss>" not in page
    assert "300 clients" in page
    assert len(re.findall("<rect", page)) <= 120
    assert not re.findall(r"(?:src|href)=", page)


def test_a_run_of_one_client_without_metrics_has_a_page() -> None:
    assert "1 rounds" in write_page(Run({}, "loss", [Round(1, 1)], scores={0: 0.0}, best_round=1), PLAN)
