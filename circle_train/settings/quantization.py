"""Int8: how a model of floats becomes one of integers."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from circle_train.errors import ConfigError
from circle_train.kinds import is_number, refuse_misfits
from circle_train.record import record

SCHEMES = ("int8", "int16x8", "dynamic", "float16")
RANGES = ("mse", "percentile", "minmax")
IO = ("int8", "uint8", "float32")
ON_LOSS = ("refuse", "warn")


@record
class Int8:
    """How a model is shipped in integers: `session.export(path, quantize=ct.Int8(calibration=x))`.

    Example:
        >>> import circle_train as ct
        >>> ct.Int8(scheme="float16").io
        'float32'
    """

    calibration: Any = field(default=None, compare=False, repr=False)
    """Samples as the model takes them, without labels: a hundred or so, of every kind that it will meet."""
    io: str | None = None
    """What the model takes and gives: "int8", "uint8" as MediaPipe has it, or "float32" with conversions inside. None: int8
    where the scheme is int8."""
    scheme: str = "int8"
    """"int8": weights and activations in 8 bits. "int16x8": activations in 16. "dynamic": weights alone, activations as they
    come. "float16": weights as half floats."""
    ranges: str = "mse"
    """What of an activation's numbers its scale covers: "minmax" all, "percentile" all but the outermost, "mse" what gives
    the smallest mean squared error."""
    percentile: float = 99.99
    """For "percentile": how many of a hundred numbers stay below the largest that is covered, and above the smallest."""
    samples: int = 256
    """How many samples calibrate at most, taken evenly from all."""
    equalize: bool = False
    """Whether scales of channels move from layer to layer before rounding, where nothing or a RELU lies between: for nets whose
    channels differ by orders of magnitude."""
    correct_bias: bool = True
    """Whether biases make up for what rounded weights shift on average."""
    validation: Any = field(default=None, compare=False, repr=False)
    """(x, y): what the report measures the model on, in floats and as shipped."""
    tolerance: float | None = None
    """How much of the metric may be lost on `validation`; None: whatever it costs."""
    on_loss: str = "refuse"
    """What happens when more is lost: "refuse" to write the file, or "warn"."""
    epochs: int = 1
    """In `TrainConfig(quantize=…)`: how many of the last epochs round as the shipped model does."""

    def __post_init__(self) -> None:
        refuse_misfits(self)
        for name, known in (("scheme", SCHEMES), ("ranges", RANGES), ("on_loss", ON_LOSS)):
            if getattr(self, name) not in known:
                raise ConfigError(
                    f"Int8: {name} is {getattr(self, name)!r}, expected one of {', '.join(known)}"
                )
        if self.io is None:
            object.__setattr__(self, "io", "int8" if self.scheme == "int8" else "float32")
        if self.io not in IO or (self.io != "float32" and self.scheme != "int8"):
            fits = " or ".join(IO) if self.scheme == "int8" else f"float32 for the scheme {self.scheme}"
            raise ConfigError(f"Int8: io is {self.io!r}, expected {fits}")
        if not is_number(self.percentile) or not 50 < self.percentile <= 100:
            raise ConfigError(
                f"Int8: percentile is {self.percentile!r}, expected a number above 50, at most 100"
            )
        for name in ("samples", "epochs"):
            if getattr(self, name) < 1:
                raise ConfigError(f"Int8: {name} is {getattr(self, name)!r}, expected a whole number from 1")
        if self.tolerance is not None and (
            not is_number(self.tolerance) or not 0 <= self.tolerance < float("inf")
        ):
            raise ConfigError(f"Int8: tolerance is {self.tolerance!r}, expected a number from 0")
        if self.tolerance is not None and self.validation is None:
            raise ConfigError(
                "Int8: a tolerance is asked for, but nothing is measured; give validation=(x, y)"
            )

    @property
    def needs_samples(self) -> bool:
        """Whether activations are calibrated."""
        return self.scheme in ("int8", "int16x8")
