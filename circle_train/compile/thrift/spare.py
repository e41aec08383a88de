"""Without being asked: what is as good as free to make again is not kept over the fullest moment of a large step."""

from __future__ import annotations

from circle_train.compile.memory import plan_memory
from circle_train.compile.program import Program
from circle_train.compile.thrift.recompute import Thrift, rebuilt
from circle_train.compile.thrift.work import total_work

LARGE = 32 << 20
"""Below so many bytes of arena nobody waits for memory, and a step has little time for anything else."""
MANY = 2000
"""Nodes beyond which a program is not looked through: each result that is dropped wants all of them seen again."""
DEAR = 2.5
"""Bytes of work for each byte saved that are still as good as free: an operand read and a result written, and a little."""
SHARE = 0.04
"""Of a step's work that may be done twice."""
WORTH = 0.92
"""The share of the arena that must be left at most, or nothing is changed."""


def spare(program: Program) -> Program:
    """The program with activations, normalisations and the like made again where that lowers its peak."""
    before, nodes = program.memory.nbytes, program.graph.nodes
    if before < LARGE or len(nodes) > MANY:
        return program
    thrift, most = Thrift(program.graph, DEAR), SHARE * total_work(nodes)
    order, again = thrift.order, set(thrift.originals)
    while thrift.drop_one(0) and thrift.added <= most:
        order, again = thrift.order, set(thrift.originals)
    if plan_memory(order, program.draft.keep).nbytes > WORTH * before:
        return program
    return rebuilt(program, order, again)
