"""What a candidate would take: parameters, bytes, work; known before it is trained."""

from __future__ import annotations

import time

from circle_train.compile.thrift.work import step_work, total_work
from circle_train.errors import ConfigError
from circle_train.finetuning.choosing.candidates import Candidate
from circle_train.finetuning.choosing.task import Task
from circle_train.record import record

SECONDS = 1e-10
"""Of processor time for a unit of work (see compile.thrift.work): two cores, 20 GB/s."""


@record
class Facts:
    """Of a candidate whose step has been compiled."""

    parameters: int = 0
    nbytes: int = 0
    first: float = 0.0
    """Seconds that a sample should take in the first epoch."""
    later: float = 0.0
    """In an epoch after it, where results of what is frozen at the beginning have been kept."""
    making: float = 0.0
    """Seconds that compiling took; measured, and decided by nothing."""
    refused: str = ""

    def seconds(self, samples: int, epochs: int) -> float:
        return samples * (self.first + (epochs - 1) * self.later)


def facts_of(task: Task, candidate: Candidate) -> Facts:
    """Its step is compiled within the budget, and not run."""
    began = time.process_time()
    try:
        session = task.session(list(candidate.names), 1e-3, {})
        session.programs.reserve("best weights")  # which finetune gives back at the end
        nbytes = session.plan.total_bytes
    except ConfigError as error:
        return Facts(refused=str(error))
    program, batch = session.program, task.config.batch_size
    parameters = sum(p.learned.size for p in program.trained)
    parts = session.programs.whole.parts
    first, later = step_work(program), total_work(program.graph.nodes)
    return Facts(
        parameters,
        nbytes,
        SECONDS * parts * first / batch,
        SECONDS * parts * later / batch,
        time.process_time() - began,
    )
