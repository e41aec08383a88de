#!/usr/bin/env python3
"""Random networks against other implementations: results against ONNX Runtime or LiteRT, gradients against float64 twins.

python tools/dev/differential.py                       200 ONNX networks, every way of training each
python tools/dev/differential.py --cases 5000          as many as one has time for
python tools/dev/differential.py --case 1234           one again, with all its figures
python tools/dev/differential.py keras --cases 200     random Keras models (needs TF_PYTHON, an interpreter with TensorFlow)

A case is a number and can be had again from it. Exit status 1 where a figure is beyond its bound.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct
from circle_train.errors import CircleTrainError

FORWARD, GRADIENT, HALVES = 2e-4, 1e-3, 0.08
"""Bounds: of results by the largest, of gradients by the largest of the parameter; by norm in bfloat16."""
CHOOSING = {"ReduceMax", "MaxPool", "Max", "Abs"}
"""What rounding to eight bits may let choose another element or the other sign, whose gradient is another one."""
Arrays = dict[str, np.ndarray]


class Case:
    """One network: what others say of it, and every way that we have to say the same."""

    def __init__(self, number: int) -> None:
        import torch
        from comparing.torch_nets import network

        net, output, model = network(number)
        self.number, self.file, self.inputs = number, model.SerializeToString(), list(net.inputs.values())
        self.output = output.twin.detach().numpy()
        self.target = np.random.default_rng(number).normal(size=self.output.shape).astype(np.float32)
        loss = ((output.twin - torch.tensor(self.target).double()) ** 2).mean()
        loss.backward()
        self.loss = loss.item()
        self.gradients = {n: w.grad.numpy() for n, w in net.weights.items() if w.grad is not None}
        self.kinds = [node.op_type for node in net.nodes]

    @cached_property
    def model(self) -> ct.Model:
        """Loaded once; each way of training it is a session of its own."""
        return ct.load(self.file)

    def findings(self) -> Iterator[str]:
        """What is beyond its bound, in words."""
        yield from self._forward()
        for way in ("native 1", "native 2", "native 3", "reference"):
            name, _, threads = way.partition(" ")
            session = self.session(backend=name, threads=int(threads or 1))
            yield from self._compare(way, *self._accumulated(session))
            yield from self._compare(f"{way} step", *self._stepped(session))
        if CHOOSING.isdisjoint(self.kinds):
            halves = self.session(activations="bfloat16")
            yield from self._compare("bfloat16", *self._accumulated(halves), HALVES)
        yield from self._compare("parts", *self._in_parts())
        if (found := self._budget()) is not None:
            yield from self._compare("budget", *found)
        yield from self._kept()

    def session(self, backend: str = "native", threads: int = 2, **changes: Any) -> ct.TrainSession:
        config = ct.TrainConfig(
            loss="mse",
            optimizer=ct.optimizers.SGD(1.0),
            batch_size=len(self.target),
            trainable=list(self.gradients),
        )
        return ct.TrainSession(self.model, config.replace(**changes), backend=backend, threads=threads)

    def _forward(self) -> Iterator[str]:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level, options.intra_op_num_threads = 4, 1
        peer = onnxruntime.InferenceSession(self.file, options, providers=["CPUExecutionProvider"])
        feeds = dict(zip([i.name for i in peer.get_inputs()], self.inputs, strict=True))
        expected = peer.run(None, feeds)[0]
        scale = max(np.abs(expected).max(), 1e-3)
        if (gap := np.abs(expected - self.output).max() / scale) > FORWARD:
            yield f"ONNX Runtime and the float64 twin differ by {gap:.1e}: the case is wrong"
        for backend in ("native", "reference"):
            found = ct.InferenceSession(self.model, backend=backend)(*self.inputs)
            if not (gap := np.abs(found - expected).max() / scale) < FORWARD:
                yield f"{backend}: result differs from ONNX Runtime by {gap:.1e}"

    def _compare(self, way: str, loss: float, gradients: Arrays, bound: float = GRADIENT) -> Iterator[str]:
        halves = bound == HALVES
        if not abs(loss - self.loss) <= (HALVES if halves else FORWARD) * max(self.loss, 1e-2):
            yield f"{way}: loss {loss:.7g}, expected {self.loss:.7g}"
        whole = np.sqrt(sum(np.square(g).sum() for g in self.gradients.values()))
        largest = max(np.abs(g).max() for g in self.gradients.values())
        for name, expected in self.gradients.items():
            found = gradients[name]
            if halves:
                gap = np.linalg.norm(found - expected) / max(whole, 1e-9)
            else:
                gap = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-3 * largest, 1e-6)
            if not gap <= bound:
                yield f"{way}: gradient of {name} differs by {gap:.1e}"

    def _accumulated(self, session: ct.TrainSession) -> tuple[float, Arrays]:
        loss = session.train_step(self.inputs, self.target, update=False, accumulate=True).loss
        return loss, {name: array.copy() for name, array in session.gradients.items()}

    def _stepped(self, session: ct.TrainSession) -> tuple[float, Arrays]:
        """A plain step, in which weights move where their gradients arise; what rounding the weights costs is forgiven."""
        session.reset_gradients()
        before = {name: session.parameters[name].copy() for name in self.gradients}
        loss = session.train_step(self.inputs, self.target).loss
        moved = {name: before[name] - session.parameters[name] for name in self.gradients}
        for name, expected in self.gradients.items():
            rounding = 2e-7 * (np.abs(before[name]) + np.abs(session.parameters[name]))
            moved[name] = np.where(np.abs(moved[name] - expected) <= rounding, expected, moved[name])
        return loss, moved

    def _in_parts(self) -> tuple[float, Arrays]:
        """Two halves of the batch, one after the other."""
        session, losses = self.session(threads=1), []
        half = len(self.target) // 2
        for part in (slice(half), slice(half, None)):
            inputs = [x[part] for x in self.inputs]
            losses.append(session.train_step(inputs, self.target[part], update=False, accumulate=True).loss)
        return float(np.mean(losses)), {name: array / 2 for name, array in session.gradients.items()}

    def _budget(self) -> tuple[float, Arrays] | None:
        """A step within the least memory that it can do with."""
        try:
            self.session(memory_budget=1).prepare()
        except ct.ConfigError as error:
            least = re.search(r"needs ([\d.]+) MB", str(error))
            if least is None:
                raise
            return self._stepped(self.session(memory_budget=f"{float(least[1]) + 0.01}MB"))
        return None

    def _kept(self) -> Iterator[str]:
        """What a frozen beginning gives, computed once, changes no bit."""
        names = list(self.gradients)
        last = names[len(names) // 2 :]
        histories = []
        for keep in (False, True):
            session = self.session(trainable=last, optimizer=ct.optimizers.SGD(1e-3), batch_size=2)
            history = session.fit(
                self.inputs if len(self.inputs) > 1 else self.inputs[0],
                self.target,
                epochs=2,
                verbose=0,
                keep_frozen=keep,
            )
            histories.append(history.history["loss"])
        if not np.allclose(*histories, rtol=1e-5):
            yield f"kept: losses {histories[1]}, expected {histories[0]}"


def examine(number: int) -> list[str]:
    """What is wrong with a case; an exception that is ours counts too, any other is not caught."""
    case = Case(number)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return list(case.findings())
    except CircleTrainError as error:
        return [f"{type(error).__name__}: {error} ({' '.join(case.kinds)})"]


def onnx_cases(options: argparse.Namespace) -> int:
    numbers = (
        [options.case] if options.case is not None else range(options.first, options.first + options.cases)
    )
    bad, start = 0, time.perf_counter()
    for number in numbers:
        found = examine(number)
        bad += bool(found)
        for line in found:
            print(f"case {number}: {line}", flush=True)
    print(f"{len(numbers)} networks, {bad} wrong, {time.perf_counter() - start:.0f} s")
    return int(bad > 0)


def keras_cases(options: argparse.Namespace) -> int:
    """TensorFlow makes models, losses and results in a process of its own; here they are made again."""
    peer = os.environ.get("TF_PYTHON")
    if peer is None:
        print("TF_PYTHON is not set, expected an interpreter with TensorFlow", file=sys.stderr)
        return 2
    first, count = (options.case, 1) if options.case is not None else (options.first, options.cases)
    maker = Path(__file__).parent / "comparing" / "keras_nets.py"
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run(
            [peer, str(maker), folder, str(first), str(count)], check=True, stdout=subprocess.DEVNULL
        )
        made = sorted(Path(folder).glob("*.tflite"))
        for path in made:
            found = list(keras_findings(path))
            bad += bool(found)
            for line in found:
                print(f"case {path.stem}: {line}", flush=True)
    print(f"{len(made)} Keras models, {bad} wrong")
    return int(bad > 0)


def keras_findings(path: Path) -> Iterator[str]:
    """Losses of a few steps and the results after them, against Keras; the exported file, against LiteRT."""
    known = np.load(path.with_suffix(".npz"))
    x, y, rate = known["x"], known["y"], float(known["rate"])
    for backend in ("native", "reference"):
        config = ct.TrainConfig(loss="mse", optimizer=ct.optimizers.SGD(rate), batch_size=len(x))
        variables = variables_of(ct.TrainSession(path, config).plan)
        session = ct.TrainSession(path, config.replace(trainable=variables), backend=backend)
        try:
            losses = [session.train_step(x, y).loss for _ in known["losses"]]
        except CircleTrainError as error:
            yield f"{backend}: {type(error).__name__}: {error}"
            continue
        if not np.allclose(losses, known["losses"], rtol=2e-3, atol=1e-5):
            yield f"{backend}: losses {np.round(losses, 5)}, Keras {np.round(known['losses'], 5)}"
        found = session.predict(x)
        if not np.allclose(
            found, known["final"], rtol=1e-2, atol=2e-3 * max(np.abs(known["final"]).max(), 1)
        ):
            yield f"{backend}: results differ by {np.abs(found - known['final']).max():.1e}"
        if backend == "native":
            exported = path.with_name(f"exported_{path.name}")
            session.export(exported)
            gap = np.abs(run_by_litert(exported, x) - found).max()
            exported.unlink()
            if not gap <= 1e-4 * max(np.abs(found).max(), 1):
                yield f"exported: LiteRT differs by {gap:.1e}"


def variables_of(plan: Any) -> list[str]:
    """What Keras trains too: to one half of a separable or dilated layer the converter gives zeros for a bias."""
    found, kinds = [], [operator.name for operator in plan.operators]
    for place, operator in enumerate(plan.operators):
        is_half = any("separable" in name and name.endswith("/depthwise") for name in operator.trained) or (
            kinds[place - 1] == "SPACE_TO_BATCH_ND" and kinds[place + 2] == "ADD"
        )
        found += operator.trained[:1] if is_half else operator.trained
    return found


def run_by_litert(path: Path, x: np.ndarray) -> np.ndarray:
    from ai_edge_litert.interpreter import Interpreter

    peer = Interpreter(str(path), num_threads=1)
    index = peer.get_input_details()[0]["index"]
    peer.resize_tensor_input(index, x.shape)
    peer.allocate_tensors()
    peer.set_tensor(index, x)
    peer.invoke()
    result: np.ndarray = peer.get_tensor(peer.get_output_details()[0]["index"])
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", nargs="?", choices=["onnx", "keras"], default="onnx")
    parser.add_argument("--cases", type=int, default=200, metavar="N")
    parser.add_argument("--first", type=int, default=0, metavar="N")
    parser.add_argument("--case", type=int, metavar="N")
    options = parser.parse_args()
    return onnx_cases(options) if options.what == "onnx" else keras_cases(options)


if __name__ == "__main__":
    sys.exit(main())
