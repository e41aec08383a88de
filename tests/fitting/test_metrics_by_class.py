"""Precision, recall, F1, AUC and confusion matrices: scikit-learn's numbers, whole and batch by batch."""

from __future__ import annotations

import numpy as np
import pytest

import circle_train as ct

sklearn = pytest.importorskip("sklearn.metrics")
RNG = np.random.default_rng(0)
SCORES = RNG.dirichlet(np.ones(4), 200)
LABELS = np.where(RNG.random(200) < 0.6, SCORES.argmax(1), RNG.integers(0, 4, 200))
FOUND = SCORES.argmax(1)


def measured(metric: ct.metrics.Metric, outputs: np.ndarray, targets: np.ndarray) -> float:
    """In batches, with a checkpoint between two of them."""
    for start in range(0, len(outputs), 64):
        metric.update(outputs[start : start + 64], targets[start : start + 64])
        again = type(metric)()
        snapshot = metric.snapshot()
        metric.reset()
        metric.restore(snapshot)
        assert again.snapshot() != snapshot
    return metric.result()


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
@pytest.mark.parametrize("labels", [LABELS, np.eye(4)[LABELS]], ids=["numbers", "one-hot"])
def test_counts_by_class_are_those_of_scikit_learn(average: str, labels: np.ndarray) -> None:
    precision, recall, f1, _ = sklearn.precision_recall_fscore_support(LABELS, FOUND, average=average)
    for metric, expected in (
        (ct.metrics.Precision(average=average), precision),
        (ct.metrics.Recall(average=average), recall),
        (ct.metrics.F1(average=average), f1),
    ):
        assert measured(metric, SCORES, labels) == pytest.approx(expected, abs=1e-12)


def test_one_output_is_one_class() -> None:
    scores, truth = RNG.random((100, 1)), RNG.integers(0, 2, (100, 1))
    expected = sklearn.f1_score(truth[:, 0], scores[:, 0] > 0.5)
    assert measured(ct.metrics.F1(), scores, truth) == pytest.approx(expected)


def test_several_classes_may_hold_at_once() -> None:
    scores, truth = RNG.random((100, 3)), RNG.integers(0, 2, (100, 3))
    expected = sklearn.recall_score(truth, scores > 0.5, average="macro")
    assert measured(ct.metrics.Recall(), scores, truth) == pytest.approx(expected)


def test_the_area_is_that_of_scikit_learn() -> None:
    expected = sklearn.roc_auc_score(LABELS, SCORES, multi_class="ovr", average="macro")
    assert measured(ct.metrics.AUC(), SCORES, LABELS) == pytest.approx(expected, abs=2e-3)
    with pytest.raises(ct.DataError, match="expected probabilities"):
        ct.metrics.AUC().update(SCORES * 3, LABELS)


def test_confusions_are_those_of_scikit_learn() -> None:
    expected = sklearn.confusion_matrix(LABELS, FOUND)
    np.testing.assert_array_equal(ct.metrics.confusion_matrix(SCORES, LABELS), expected)
    with pytest.raises(ct.DataError, match="expected class numbers 0 … 3"):
        ct.metrics.confusion_matrix(SCORES, LABELS + 1)


def test_a_session_takes_them_by_name() -> None:
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy", metrics=["f1", "precision", "recall", "auc"]
    )
    session = ct.TrainSession("tests/data/mlp.circle", config)
    x, y = RNG.normal(size=(40, 6)).astype(np.float32), RNG.integers(0, 5, 40)
    found = session.evaluate(x, y)
    assert found["f1"] == pytest.approx(sklearn.f1_score(y, session.predict(x).argmax(1), average="macro"))
    assert set(session.fit(x, y, verbose=0).history) == {"loss", "f1", "precision", "recall", "auc"}
