"""Quantisation-aware training: from one epoch on its programs round as the shipped model does."""

from __future__ import annotations

from circle_train.data.dataset import Dataset, Stream
from circle_train.quantize.quantize import scales_of
from circle_train.session.export import trained
from circle_train.session.programs import Programs
from circle_train.session.shipping.ship import calibration, runner, samples_of


def begins_rounding(programs: Programs, epoch: int, epochs: int) -> bool:
    """Whether from this epoch of a fit on everything is rounded, which it is not yet."""
    settings = programs.config.quantize
    return settings is not None and programs.rounding is None and epoch >= epochs - settings.epochs


def begin_rounding(programs: Programs, data: Dataset | Stream) -> None:
    """Calibrate by the weights as they are, and compile anew; what was learned stays, the optimizer goes on."""
    settings = programs.config.quantize
    assert settings is not None
    model = trained(programs.model, programs.state, None)
    samples = calibration(model, settings) or samples_of(data, settings.samples)
    programs.round(scales_of(model.module, settings, samples, runner(programs.backend.threads)))


def stop_rounding(programs: Programs, epochs: int) -> None:
    """A fit that has more epochs than are rounded begins with floats again."""
    settings = programs.config.quantize
    if programs.rounding is None or settings is None:
        return
    if programs.state.epoch < epochs - settings.epochs:
        programs.round(None)
