"""A training as the command line runs it: begun or gone on with, stopped, written, told of."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from circle_train.cli.runs.look import opened_input
from circle_train.cli.runs.places import MODELS, unused
from circle_train.cli.runs.record import checkpoint_in, write_record
from circle_train.cli.runs.run_folder import LAST, REPORT, WRITTEN, RunFolder
from circle_train.cli.settings import print_json, print_lines
from circle_train.data.opening import Folder
from circle_train.finetuning.result import examined
from circle_train.fitting.callbacks import EarlyStopping
from circle_train.fitting.history import History
from circle_train.printable import printable
from circle_train.session import TrainSession

NEVER = 1 << 30
"""Epochs without gain after which a fit ends that is only to remember its best weights."""


class Training:
    """One run of the command, from opened data to what is said at the end."""

    def __init__(self, options: argparse.Namespace, session: TrainSession) -> None:
        self.options, self.session = options, session
        self.x = opened_input(options, session)
        self.place = _run_place(options)
        self.folder = None
        if self.place:
            watched = "val_loss" if options.validation_split else "loss"
            self.folder = RunFolder(self.place, session, options.model, watched, options.checkpoint_every)
            write_record(self.place, options)
        wants_best = options.validation_split and options.keep != "last"
        self.best = EarlyStopping("val_loss", patience=NEVER, restore_best=True) if wants_best else None

    def run(self) -> int:
        self._begin()
        try:
            history = self._fit()
        except KeyboardInterrupt:
            return self._stop()
        written = self._write(history)
        if self.options.json:
            print_json({"history": history.history, "written": written})
        else:
            print_lines(self._said(history, written))
        return 0

    def _begin(self) -> None:
        """Weights of a checkpoint, or where the run left off."""
        options, last = self.options, self.place and checkpoint_in(self.place)
        if options.resume and last:
            self.session.load_checkpoint(last)
            state = self.session.state
            self._tell(
                f"{options.resume}: {state.epoch} of {options.epochs} epochs are done, step {state.step}"
            )
        elif options.checkpoint:
            self.session.load_checkpoint(options.checkpoint)

    def _fit(self) -> History:
        options = self.options
        return self.session.fit(
            self.x,
            options.expected,
            epochs=options.epochs,
            validation_split=options.validation_split,
            shuffle=not options.no_shuffle,
            callbacks=[*(self.folder.callbacks if self.folder else ()), *([self.best] if self.best else ())],
            verbose=0 if options.json else "auto",
        )

    def _write(self, history: History) -> list[str]:
        """All that was asked for; the model in any case."""
        options, session = self.options, self.session
        wishes = (options.export, options.export_circleplus, options.export_checkpoint)
        writers: tuple[Callable[[str], object], ...] = (
            session.export,
            session.export_circleplus,
            session.save_checkpoint,
        )
        written = [wish for wish in wishes if wish]
        for wish, write in zip(wishes, writers, strict=True):
            if wish:
                write(wish)
        if self.folder:
            self.folder.finish(history, (self.x, options.expected), options.validation_split)
            written += [str(self.folder.path / name) for name in (self.folder.model_name, REPORT)]
        if not written:
            written = [str(unused(trained_name(options.model)))]
            session.export(written[0])
        return written

    def _said(self, history: History, written: list[str]) -> list[str]:
        """How good it is, whose weights stay, what was written, and what may come next."""
        said = self._judged()
        if self.best:
            number = self.best.best_epoch + 1
            said.append(
                f"best epoch: {number} of {len(history.epoch)}, its weights are those written (--keep last for the last)"
            )
        model = next((name for name in written if name.endswith(MODELS)), None)
        following = f"; next: {shlex.join(self._next(model))}" if model else ""
        return [*said, f"wrote {' and '.join(written)}{following}"]

    def _judged(self) -> list[str]:
        if not isinstance(self.x, Folder):
            return []
        train, held_out = self.x.split(self.options.validation_split)
        judgement = examined(self.session, held_out or train)
        return (
            judgement.lines(f"{len(held_out)} held out" if held_out else "those trained on")
            if judgement
            else []
        )

    def _next(self, model: str) -> list[str]:
        data = [self.options.input, *([self.options.expected] if self.options.expected else [])]
        if isinstance(self.x, Folder) and self.session.model.labels:
            return ["circle-train", "predict", model, data[0]]
        return ["circle-train", "info", model]

    def _stop(self) -> int:
        """What was learned by Ctrl-C is kept, and it is said how to go on."""
        if self.place:
            path, go_on = self.place / LAST, ["circle-train", "train", "--resume", str(self.place)]
        else:
            path = unused(f"{Path(self.options.model).stem}-stopped.safetensors")
            go_on = ["circle-train", *sys.argv[1:], "--checkpoint", str(path)]
        self.session.save_checkpoint(path)
        state = self.session.state
        print(
            printable(f"stopped in epoch {state.epoch + 1} of {self.options.epochs}, at step {state.step}; wrote {path}; "
            f"to go on: {shlex.join(go_on)}"),
            file=sys.stderr,
        )  # fmt: skip
        return 130

    def _tell(self, line: str) -> None:
        if not self.options.json:
            print_lines([line])


def trained_name(model: str) -> str:
    """Of what is written where nothing was asked for: weights are never lost."""
    path = Path(model)
    return f"{path.stem}-trained{path.suffix if path.suffix.lower() in MODELS else '.circle'}"


def _run_place(options: argparse.Namespace) -> Path | None:
    """The run's folder; a new one gets a number where there is one of the name, unless a run in it goes on."""
    if not options.run_dir or options.resume:
        return Path(options.run_dir) if options.run_dir else None
    wish = Path(options.run_dir)
    goes_on = options.checkpoint and Path(options.checkpoint).resolve().parent == wish.resolve()
    is_taken = any((wish / name).exists() for name in WRITTEN)
    return unused(wish) if is_taken and not goes_on else wish
