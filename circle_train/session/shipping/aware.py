"""Quantisation-aware training: from one epoch on a session rounds as the shipped model does."""

from __future__ import annotations

from circle_train.data.dataset import Dataset, Stream
from circle_train.quantize.quantize import scales_of
from circle_train.session.export import trained
from circle_train.session.learned import Learned
from circle_train.session.shipping.ship import calibration, runner, samples_of


def begins_rounding(session: Learned, epoch: int, epochs: int) -> bool:
    """Whether from this epoch of a fit on everything is rounded, which it is not yet."""
    settings = session.config.quantize
    return settings is not None and session.programs.rounding is None and epoch >= epochs - settings.epochs


def begin_rounding(session: Learned, data: Dataset | Stream) -> None:
    """Calibrate by the weights as they are, and compile anew; what was learned stays, the optimizer goes on."""
    settings = session.config.quantize
    assert settings is not None
    model = trained(session.model, session.state, None)
    samples = calibration(model, settings) or samples_of(data, settings.samples)
    session.programs.round(scales_of(model.module, settings, samples, runner(session.backend.threads)))


def stop_rounding(session: Learned, epochs: int) -> None:
    """A fit that has more epochs than are rounded begins with floats again."""
    settings = session.config.quantize
    if session.programs.rounding is None or settings is None:
        return
    if session.state.epoch < epochs - settings.epochs:
        session.programs.round(None)
