"""Whether a fit keeps what the frozen beginning of a model makes of its data, and how much of it."""

from __future__ import annotations

from contextlib import suppress
from typing import TypeGuard

import numpy as np

from circle_train.compile.divided import compile_batch
from circle_train.compile.prefix import Keep
from circle_train.compile.program import Mode
from circle_train.compile.thrift.budget import parse_bytes
from circle_train.data.dataset import Dataset, Stream
from circle_train.errors import ConfigError
from circle_train.report.besides import besides_bytes
from circle_train.report.plan import Plan, make_plan
from circle_train.runtime.executor import Executor
from circle_train.runtime.kept import KEPT_BYTES, KeptDataset, Store
from circle_train.session.learned import Learned

UNBOUNDED = 1 << 62
Data = Dataset | Stream


def keep_results(
    session: Learned, data: Data, validation: Data | None, wish: bool | int | str
) -> tuple[Data, Data | None]:
    """The data sets of a fit, with a memory for results where that is allowed and worth it."""
    if session.programs.has_lengths:
        return data, validation
    limit = allowed_bytes(session, wish)
    samples = sum(len(part) for part in (data, validation) if can_be_kept(part))
    if not samples or limit < samples:
        return data, validation
    engine = None if wish is True else session.backend
    keep = Keep(limit // samples, session.config.batch_size, engine)
    trained = with_store(session, data, Mode.TRAIN, keep, limit)
    limit -= kept_bytes(trained)
    held_out = validation and with_store(session, validation, Mode.EVALUATE, keep, limit)
    return trained, held_out


def with_results(session: Learned, data: Dataset) -> KeptDataset | None:
    """The data with a memory for results that several fits and evaluations share; None where nothing is kept.

    A model that is trained on its grids is judged in integers: the two have no results in common.
    """
    is_apart = session.programs.has_lengths or session.programs.is_judged_in_integers
    limit = 0 if is_apart else allowed_bytes(session, "auto")
    if limit < len(data):
        return None
    keep = Keep(limit // len(data), session.config.batch_size, session.backend)
    found = with_store(session, data, Mode.TRAIN, keep, limit)
    is_judged = isinstance(found, KeptDataset) and _keeping(session, data, Mode.EVALUATE, keep, limit)
    return found if isinstance(found, KeptDataset) and is_judged else None


def kept_bytes(*parts: Data | None) -> int:
    """What the results of these data sets take once they are all there."""
    return sum(part.store.nbytes for part in parts if isinstance(part, KeptDataset))


def plan_of(session: Learned) -> Plan:
    """What will run."""
    programs = session.programs
    return make_plan(programs.whole, session.model, foreseen(session), programs.reserved)


def foreseen(session: Learned) -> int:
    """What a fit keeps of each sample if it may; the part of the model that could give it is compiled, not run."""
    if session.programs.has_lengths or all(p.trained for p in session.program.parameters):
        return 0
    keep = Keep(KEPT_BYTES, session.config.batch_size, session.backend)
    program = compile_batch(
        session.model.module.main, session.config, Mode.TRAIN, keep.largest, session.backend, keep=keep
    )
    return 0 if program.prefix is None else sum(t.type.nbytes // keep.largest for t in program.prefix.results)


def allowed_bytes(session: Learned, wish: bool | int | str) -> int:
    """What the results may take in all."""
    if isinstance(wish, bool):
        return UNBOUNDED if wish else 0
    if wish != "auto":
        return parse_bytes(wish, "keep_frozen")
    if session.config.memory_budget is None:
        return KEPT_BYTES
    executor = session.programs.whole
    step = executor.program.step_bytes
    besides = executor.engine_bytes + sum(
        besides_bytes(executor.program, session.model, session.programs.reserved).values()
    )
    return parse_bytes(session.config.memory_budget) - step - besides


def can_be_kept(data: Data | None) -> TypeGuard[Dataset]:
    """Streams may give other numbers at every pass, and so may whatever is no plain array nor says that it lasts."""
    return isinstance(data, Dataset) and all(
        type(a) in (np.ndarray, np.memmap) or getattr(a, "is_lasting", False) is True for a in data.inputs
    )


def with_store(session: Learned, data: Data, mode: Mode, keep: Keep, limit: int) -> Data:
    """The data with a memory for results, where the program has a frozen beginning whose results may be kept."""
    if not can_be_kept(data):
        return data
    executor = _keeping(session, data, mode, keep, limit)
    if executor is None or (prefix := executor.program.prefix) is None or (part := executor.prefix) is None:
        return data
    if keep.engine is not None and any(name != session.backend.name for name in part.engines.values()):
        return data
    return KeptDataset(
        data.inputs, data.targets, Store(keep, list(prefix.results), executor.program.batch_size, data)
    )


def _keeping(session: Learned, data: Dataset, mode: Mode, keep: Keep, limit: int) -> Executor | None:
    """What makes the results; None where a budget has no room for what it needs besides the step's memory."""
    programs, samples = session.programs, min(keep.largest, len(data))
    if session.config.memory_budget is None:
        return programs.executor(mode, samples, keep)
    programs.executor(Mode.TRAIN, session.config.batch_size)  # its memory comes first
    before = programs.arena_bytes
    with suppress(ConfigError):
        executor = programs.executor(mode, samples, keep)
        prefix = executor.program.prefix
        results = len(data) * sum(t.type.nbytes // samples for t in prefix.results) if prefix else 0
        beside = programs.arena_bytes - before
        if not beside or beside + results <= limit:
            return executor
        programs.forget(mode, samples, keep)
    return None
