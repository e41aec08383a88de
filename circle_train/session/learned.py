"""What a session has learned: weights by name, the learning rate, gradients, and the files that hold them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from numbers import Real

from circle_train import checkpoints, runtime, session
from circle_train.backends import choice
from circle_train.backends.base import Backend
from circle_train.compile.program import Program
from circle_train.errors import ConfigError
from circle_train.ir.mapped import require_unchanged
from circle_train.ir.tensor_type import Array
from circle_train.kinds import require_seed
from circle_train.model import Model
from circle_train.runtime.guard import require_numbers
from circle_train.runtime.properties import Properties
from circle_train.runtime.state import State
from circle_train.runtime.weights import Parameters
from circle_train.session import shipping
from circle_train.session.programs import Programs
from circle_train.session.turns import Turns, trains, waits
from circle_train.settings.config import TrainConfig
from circle_train.settings.quantization import Int8


class Learned:
    """A model with a config, and the state that programs of both change."""

    def __init__(
        self, model: Model, config: TrainConfig | None, seed: int, threads: int | None, backend: str
    ) -> None:
        require_seed(seed)
        self.model, self.seed = model, seed
        self.turns = Turns()
        self.programs = Programs(model, config or model.training, choice.choose(backend, threads))

    @property
    def config(self) -> TrainConfig:
        """What is trained, and how."""
        return self.programs.config

    @config.setter
    def config(self, value: TrainConfig) -> None:
        self.programs.given = value

    @property
    def backend(self) -> Backend:
        """The engine."""
        return self.programs.backend

    @property
    @waits
    def state(self) -> State:
        """Weights, optimizer slots, step count."""
        return self.programs.state

    @property
    @waits
    def program(self) -> Program:
        """The program of a full training step."""
        return self.programs.whole.program

    @property
    def parameters(self) -> Parameters:
        """Weights by name."""
        return self.model.parameters_of(self.state)

    @property
    def gradients(self) -> dict[str, Array]:
        """Sums of gradients by parameter name, as `train_step(accumulate=True)` makes them until a reset."""
        return self.parameters.gradients()

    @property
    def properties(self) -> Properties:
        """Numbers and strings by name that go with the checkpoint."""
        return Properties(self.state)

    @property
    def learning_rate(self) -> float:
        """Of the next update; a schedule goes on in proportion from what is set here."""
        return self.state.learning_rate * self.config.rule.factor(self.state.step)

    @learning_rate.setter
    def learning_rate(self, value: float) -> None:
        if not isinstance(value, Real) or not 0 <= value < float("inf"):
            raise ConfigError(f"learning_rate is {value!r}, expected a number from 0")
        self.state.learning_rate = float(value) / (self.config.rule.factor(self.state.step) or 1.0)

    @waits
    def save_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Write weights and optimizer state: .ckpt as ONERT does, .safetensors with everything needed to go on."""
        require_unchanged(self.model.files)
        require_numbers(self.state, os.fspath(path))
        checkpoints.by_suffix.save(path, self.model.module, self.state, self.config, self.seed)
        session.export.LOG.info("wrote %s, step %d", os.fspath(path), self.state.step)

    @trains
    def load_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Take over a checkpoint, whole or not at all."""
        found = checkpoints.by_suffix.load(
            path, self.model.module, self.state, self.config, self.parameters.inward
        )
        self.seed = self.seed if found is None else found
        if self.config.quantize is not None and self.state.rounding != self.programs.rounding:
            self.programs.round(self.state.rounding)

    @waits
    def export(
        self,
        path: str | os.PathLike[str],
        *,
        outputs: Sequence[str] | None = None,
        quantize: Int8 | str | None = None,
        rescale: bool = False,
    ) -> shipping.ship.Shipped | None:
        """Write the model with its present weights: .circle, .tflite, or .onnx if it came from ONNX.

        With `outputs`, names of any of its tensors, the file computes those and nothing else. `quantize` ships it in
        integers (`ct.Int8`), or names a scheme that needs no samples ("dynamic", "float16"); what it became is returned.
        `rescale` gives trained weights of a model of integers new scales: the largest of each channel takes 127 steps again.
        """
        self.state.require_values()
        require_numbers(self.state, os.fspath(path))
        if rescale:
            if outputs is not None or quantize is not None or os.fspath(path).lower().endswith(".onnx"):
                raise ConfigError(
                    "rescale goes with a .tflite or .circle file as it was loaded, without outputs and quantize"
                )
            runtime.litert.save(shipping.rescaled.rescaled(self.model.module, self.state), path)
            return None
        threads = self.backend.threads
        settings = None if quantize is None else shipping.ship.as_settings(quantize)
        if settings is not None and os.fspath(path).lower().endswith(".onnx"):
            session.export.require_onnx(self.model, path)
            write = partial(session.export.export, self.model, self.state, outputs=outputs)
            return shipping.into_onnx.ship_trained(write, path, settings, self.scored, threads)
        if settings is not None:
            model = session.export.trained(self.model, self.state, outputs)
            return shipping.ship.ship(model, path, settings, self.scored, threads, self.programs.rounding)
        session.export.export(self.model, self.state, path, outputs)
        session.export.LOG.info("wrote %s", os.fspath(path))
        return None

    @property
    def scored(self) -> shipping.judging.Scored | None:
        """What a shipped model is measured by."""
        return None

    @waits
    def export_circleplus(self, path: str | os.PathLike[str]) -> None:
        """The same with the training settings in it (Circle+)."""
        require_numbers(self.state, os.fspath(path))
        session.export.export(self.model.with_training(self.config), self.state, path)
