"""What fit and evaluate report of a weighted loss is the data's mean, however cut; metrics leave out what it ignores."""

from __future__ import annotations

import networks
import numpy as np
import pytest

import circle_train as ct

torch = pytest.importorskip("torch")
functional = torch.nn.functional

RNG = np.random.default_rng(3)
X = RNG.normal(size=(11, 6)).astype(np.float32)
LABELS = np.array([1, 1, 1, 1, 0, 2, 3, 1, 0, 3, 2])
WEIGHTS = [0.5, 1.0, 2.0, 4.0]
SPARSE = ct.losses.SparseCategoricalCrossentropy
DENSE = ct.losses.CategoricalCrossentropy
ONE_HOT = np.eye(4, dtype=np.float32)[LABELS]


def logits() -> torch.Tensor:
    return torch.tensor(ct.InferenceSession(networks.mlp(softmax=False))(X)).double()


CASES = [
    (SPARSE(from_logits=True, ignore_index=1), LABELS, {"ignore_index": 1}),
    (SPARSE(from_logits=True, class_weights=WEIGHTS), LABELS, {"weight": WEIGHTS}),
    (
        SPARSE(from_logits=True, class_weights=WEIGHTS, ignore_index=1),
        LABELS,
        {"weight": WEIGHTS, "ignore_index": 1},
    ),
    (
        0.5 * SPARSE(from_logits=True, ignore_index=1) + 0.5 * SPARSE(from_logits=True, ignore_index=1),
        LABELS,
        {"ignore_index": 1},
    ),
    (DENSE(from_logits=True, class_weights=WEIGHTS), ONE_HOT, {"weight": WEIGHTS}),
]


@pytest.mark.parametrize(("loss", "labels", "settings"), CASES, ids=range(len(CASES)))
def test_a_weighted_loss_over_data_is_that_of_one_batch(
    loss: ct.losses.Loss, labels: np.ndarray, settings: dict
) -> None:
    """Torch's cross-entropy over all samples as the truth."""
    weight = torch.tensor(settings.get("weight", [1.0] * 4)).double()
    expected = float(
        functional.cross_entropy(
            logits(), torch.tensor(LABELS), weight=weight, ignore_index=settings.get("ignore_index", -100)
        )
    )
    config = ct.TrainConfig(loss=loss, optimizer=ct.optimizers.SGD(1e-12), batch_size=4)
    session = ct.TrainSession(networks.mlp(softmax=False), config)
    for size in (1, 3, 4, 11):
        assert session.evaluate(X, labels, batch_size=size)["loss"] == pytest.approx(expected, rel=1e-5)
    history = session.fit(X, labels, validation_data=(X, labels), verbose=0).history
    assert history["loss"] == pytest.approx([expected], rel=1e-5)
    assert history["val_loss"] == pytest.approx([expected], rel=1e-5)


def test_outputs_are_weighted_each_by_its_own_labels() -> None:
    model = networks.two_headed()
    config = ct.TrainConfig(
        loss=[SPARSE(from_logits=True, ignore_index=1), "mse"], loss_weights=[2.0, 0.5], batch_size=4
    )
    session = ct.TrainSession(model, config)
    labels, targets = np.where(LABELS == 3, 2, LABELS), RNG.normal(size=(11, 2)).astype(np.float32)
    whole = session.eval_step(X, [labels, targets]).loss
    assert session.evaluate(X, [labels, targets], batch_size=4)["loss"] == pytest.approx(whole, rel=1e-5)


def test_metrics_leave_out_what_the_loss_ignores() -> None:
    names = ["accuracy", "sparse_categorical_accuracy", "sparse_top_k_categorical_accuracy", "f1"]
    config = ct.TrainConfig(loss=SPARSE(from_logits=True, ignore_index=1), batch_size=4, metrics=names)
    session = ct.TrainSession(networks.mlp(softmax=False), config)
    found = session.evaluate(X, LABELS)
    kept = LABELS != 1
    best = logits().numpy().argmax(-1)
    assert found["accuracy"] == found["sparse_categorical_accuracy"] == np.mean(best[kept] == LABELS[kept])
    alone = session.evaluate(X[kept], LABELS[kept])
    assert alone == pytest.approx(found, rel=1e-5)
