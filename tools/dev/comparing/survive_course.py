"""The course of tools/dev/survive.py for one model: prints a line of JSON after each stage."""

from __future__ import annotations

import json
import os
import pickle
import re
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from runtimes import KNOWN, LENGTHS, Feeds, LiteRt, Onnx, own_runtime

EXACT, ROUNDED = 2e-3, 5e-2
"""Of the output's range: the difference that is allowed, and where integers are computed."""
MOST = 0.2
"""Of the range: what is allowed where the model's own runtime is as unsure of itself."""
NO_SUCH_SIZES = "there are no more sizes to try"
NOTHING = 1e-4
"""The least range: probabilities below it are roundings of 0."""
HEAD = 5
"""Operators that compute in float where an integer model is trained."""


def say(stage: str, result: Any) -> None:
    print("STAGE " + json.dumps({stage: result}), flush=True)


def reason(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def attempt(stage: str, work: Callable[[], Any]) -> Any:
    """Do it and say so; what it gives, or None where it failed."""
    try:
        result = work()
    except Exception as error:
        say(stage, reason(error))
        return None
    say(stage, result if isinstance(result, str) else True)
    return result


def recorded(path: str) -> list[tuple[Feeds, Feeds]]:
    """Inputs and outputs that lie beside the model."""
    pairs = []
    for file in sorted(Path(path).parent.glob(Path(path).name + ".?.npz")):
        with np.load(file) as held:
            entries = {key: held[key] for key in held.files}
        pairs.append((_marked(entries, "in:"), _marked(entries, "out:")))
    return pairs


def _marked(entries: Feeds, mark: str) -> Feeds:
    return {name.removeprefix(mark): value for name, value in entries.items() if name.startswith(mark)}


def expected(path: str) -> list[tuple[Feeds, Feeds]]:
    """Two sizes: what lies beside the model, else what its own runtime takes and gives."""
    if pairs := recorded(path):
        return pairs
    found: list[tuple[Feeds, Feeds]] = []
    reasons = []
    for batch in (1, 3):
        for number in range(2 * len(LENGTHS)):
            made = apart(lambda n=number, many=batch: referred(path, many, n))
            if isinstance(made, tuple):
                found.append(made)
                break
            reasons.append(made)
            if made == NO_SUCH_SIZES:
                break
    if not found:
        raise ValueError(reasons[0])
    return found


def referred(path: str, batch: int, number: int) -> tuple[Feeds, Feeds]:
    """Inputs of the number-th choice of sizes, and what the model's own runtime makes of them."""
    runtime = own_runtime(path)(path)
    sizes: list[dict[Any, int]] = []
    for chosen in runtime.sizes():
        sizes += [chosen] if chosen not in sizes else []
    if number >= len(sizes):
        raise IndexError(NO_SUCH_SIZES)
    feeds = runtime.feeds(sizes[number if batch == 1 else (number + 1) % len(sizes)], batch, seed=batch)
    outputs = runtime.run(feeds)
    if any(np.asarray(v).dtype.kind == "f" and np.isnan(v).all() for v in outputs.values() if np.size(v)):
        raise ValueError("its own runtime gives nothing but NaN")
    return feeds, outputs


def unsureness(path: str, pairs: list[tuple[Feeds, Feeds]]) -> float:
    """How far the model's own runtime is from itself when roundings differ, as a part of the range: in other ways of its own,
    and where inputs differ in their last bit."""
    ways = [(other, 0.0, times) for other, times in own_runtime(path).others.items()] + [("", 2.0**-23, 2)]
    found = [apart(lambda way=way: times_off(path, pairs, *way)) for way in ways]
    return max((each for each in found if isinstance(each, float)), default=0.0)


def times_off(
    path: str, pairs: list[tuple[Feeds, Feeds]], other: str, last_bit: float, times: float
) -> float:
    worst, random = 0.0, np.random.default_rng(0)
    for feeds, wanted in pairs:
        runtime = own_runtime(path)(path, other)
        names = [one[0] if isinstance(one, tuple) else one["name"] for one in runtime.inputs]
        given = {
            name: value * (1 + last_bit * random.choice([-1, 1], value.shape)).astype(value.dtype)
            if np.asarray(value).dtype.kind == "f"
            else value
            for name, value in _called(feeds, names).items()
        }
        again = runtime.run(given)
        values = zip(again.values(), _called(wanted, list(again)).values(), strict=True)
        worst = max(worst, *(difference(*pair) for pair in values))
    return times * worst


def apart(work: Callable[[], Any]) -> Any:
    """What comes of it in a process of its own, or why nothing does: foreign runtimes may crash."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        os.close(reading)
        try:
            made = work()
        except Exception as error:
            made = NO_SUCH_SIZES if str(error) == NO_SUCH_SIZES else reason(error)
        with os.fdopen(writing, "wb") as pipe:
            pickle.dump(made, pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        data = pipe.read()
    _, status = os.waitpid(child, 0)
    return pickle.loads(data) if data else f"its own runtime died with status {status}"


def difference(ours: Any, theirs: Any) -> float:
    """The largest distance, as a part of the range; equal infinities and NaNs are no distance."""
    one, two = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    if one.shape != two.shape:
        raise ValueError(f"the shape is {one.shape}, expected {two.shape}")
    same = (one == two) | (np.isnan(one) & np.isnan(two))
    gap = float(np.max(np.where(same, 0, np.abs(one - two)), initial=0))
    return gap / max(float(np.max(np.abs(two[np.isfinite(two)]), initial=0)), NOTHING)


def compare(ours: Feeds, theirs: Feeds, allowed: float) -> str | bool:
    """True where every output that both have agrees."""
    shared = [name for name in theirs if name in ours]
    pairs = [(ours[n], theirs[n]) for n in shared] or list(zip(ours.values(), theirs.values(), strict=True))
    worst = max((difference(*pair) for pair in pairs), default=0.0)
    return True if worst <= allowed else f"off by {worst:.1e} of the range"


def main() -> None:
    path, limit = sys.argv[1], float(sys.argv[2])
    resource.setrlimit(resource.RLIMIT_AS, (int(limit * 2**30),) * 2)
    warnings.simplefilter("ignore")
    import circle_train as ct

    model = attempt("load", lambda: loaded(ct, path))
    if model is None:
        return
    Onnx.learnt = {info.name: info.shape for info in model.inputs}
    try:
        pairs = expected(path)
    except Exception as error:
        print(f"its own runtime refuses it: {reason(error)}")
        return
    names = [[tensor.name for tensor in group] for group in (model.inputs, model.outputs)]
    pairs = [(_called(feeds, names[0]), _called(wanted, names[1])) for feeds, wanted in pairs]
    rounded = any(
        operator.name in ("QUANTIZE", "DEQUANTIZE", "ROUND") for operator in model.operators
    ) or any(np.asarray(v).dtype.itemsize == 1 for _, outputs in pairs for v in outputs.values())
    allowed = ROUNDED if rounded else EXACT
    allowed = max(allowed, min(unsureness(path, pairs), MOST))
    attempt("match", lambda: match(ct, model, pairs, allowed))
    for stage, trainable in (("train last 5", ("last", 5)), ("train all", "all")):
        attempt(stage, lambda what=trainable: train(ct, model, pairs, what))
    folder = tempfile.mkdtemp()
    attempt("export .tflite", lambda: exported_tflite(ct, model, pairs, allowed, folder))
    if path.lower().endswith(".onnx"):
        attempt("export .onnx", lambda: exported_onnx(ct, model, pairs, allowed, folder))


def loaded(ct: Any, path: str) -> Any:
    """The model; where it asks for the value of an input that has one meaning only, with that value."""
    try:
        return ct.load(path)
    except ct.ConversionError as error:
        known = {name: value for name, value in KNOWN.items() if f"inputs={{'{name}'" in str(error)}
        if not known:
            raise
        return ct.load(path, inputs=known)


def _called(values: Feeds, names: list[str]) -> Feeds:
    """By the model's names, where they are only numbered."""
    if set(values) == {str(number) for number in range(len(names))}:
        return {name: values[str(number)] for number, name in enumerate(names)}
    return values


def match(ct: Any, model: Any, pairs: list[tuple[Feeds, Feeds]], allowed: float) -> str | bool:
    infer = ct.InferenceSession(model)
    names = [info.name for info in model.outputs]
    for number, (feeds, wanted) in enumerate(pairs):
        infer.reset()
        try:
            given = {info.name: feeds[info.name] for info in model.inputs}
            found = compare(dict(zip(names, infer.run(None, given), strict=True)), wanted, allowed)
        except Exception as error:
            return f"size {number}: {reason(error)}"
        if found is not True:
            return f"size {number}: {found}"
    return True


def train(ct: Any, model: Any, pairs: list[tuple[Feeds, Feeds]], trainable: Any) -> str | bool:
    """Two steps; where outputs are whole numbers, as the refusal says: at the tensor that it names, or behind a float head."""
    feeds, wanted = pairs[0]
    values = [feeds[info.name] for info in model.inputs]
    targets = [
        np.zeros(np.shape(wanted[info.name]), np.float32) for info in model.outputs if info.name in wanted
    ]
    batch = next((len(v) for v in values if np.ndim(v)), 1)
    sgd = ct.optimizers.SGD(learning_rate=1e-7)
    config = ct.TrainConfig(loss="mse", optimizer=sgd, batch_size=batch, trainable=trainable)
    try:
        loss = steps(ct.TrainSession(model, config), values, targets)
    except ct.ConfigError as error:
        if "with_float_head" in str(error):
            targets = [t.astype(np.float32) for t in targets]
            loss = steps(
                ct.TrainSession(model.with_float_head(min(HEAD, len(model.operators))), config),
                values,
                targets,
            )
            return True if np.all(np.isfinite(loss)) else f"the loss is {loss}"
        named = re.search(r"outputs=\['(.*)'\]", str(error))
        if named is None:
            raise
        session = ct.TrainSession(model, config.replace(outputs=[named[1]]))
        x = values[0] if len(values) == 1 else values
        loss = steps(
            session, values, [np.zeros(np.shape(made), np.float32) for made in session.eval_step(x).outputs]
        )
    return True if np.all(np.isfinite(loss)) else f"the loss is {loss}"


def steps(session: Any, values: list[Any], targets: list[Any]) -> Any:
    """The loss of the second of two."""
    x, y = (group[0] if len(group) == 1 else group for group in (values, targets))
    session.train_step(x, y)
    return session.train_step(x, y).loss


def exported_tflite(
    ct: Any, model: Any, pairs: list[tuple[Feeds, Feeds]], allowed: float, folder: str
) -> str | bool:
    file = os.path.join(folder, "exported.tflite")
    model.save(file)
    for number, (feeds, wanted) in enumerate(pairs):
        runtime = LiteRt(file)
        names = {detail["name"]: detail for detail in runtime.inputs}
        given = {name: value for name, value in feeds.items() if name in names}
        if len(given) != len(names):
            return f"size {number}: the file's inputs are {sorted(names)}, expected {sorted(feeds)}"
        found = compare(runtime.run(given), wanted, allowed)
        if found is not True:
            return f"size {number}: {found}"
    return True


def exported_onnx(
    ct: Any, model: Any, pairs: list[tuple[Feeds, Feeds]], allowed: float, folder: str
) -> str | bool:
    file = os.path.join(folder, "exported.onnx")
    config = ct.TrainConfig(loss="mse", trainable="none", batch_size=1)
    try:
        ct.TrainSession(model, config).export(file)
    except ct.ConfigError as error:
        if (named := re.search(r"outputs=\['(.*)'\]", str(error))) is None:
            raise
        ct.TrainSession(model, config.replace(outputs=[named[1]])).export(file)
    feeds, wanted = pairs[0]
    return compare(Onnx(file).run(feeds), wanted, allowed)


if __name__ == "__main__":
    main()
