"""The frozen part of a forward pass: run a few samples at a time, so that its large tensors need little memory, or
cut off where its results are to be kept.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from circle_train.backends.base import Backend
from circle_train.compile.separable import is_fixed, is_of_one, is_separable
from circle_train.ir import Graph, Node, Tensor
from circle_train.ir.lifetimes import live_bytes
from circle_train.ops.internal.integers.on_grid import OnGrid
from circle_train.ops.movement import Movement
from circle_train.passes.dead import drop_dead_nodes
from circle_train.passes.integers.on_grid import in_bytes
from circle_train.record import mutable, record

CACHE_BYTES = 6 << 20
"""What the part that runs sample by sample may take: its tensors then stay in the cache."""
WORTHWHILE = 0.8
"""Cut only where this share of the memory, or less, is left."""
EFFORT = 20
"""Operations for each number of the results; below that, computing them again costs no more than reading them."""


@mutable
class Cut:
    """The first nodes of a graph, to be run for `batch` samples at a time, and the tensors that the others read of them."""

    nodes: list[Node]
    whole: int
    """How many samples the graph takes."""
    batch: int
    frontier: list[Tensor]
    fixed: set[Tensor]
    """What depends on constants and frozen weights alone; both sides compute of it what they read."""

    @property
    def sample_bytes(self) -> int:
        """What the results of one sample take."""
        return sum(t.type.nbytes // self.whole for t in self.frontier)


@record
class Keep:
    """What may be kept of a frozen beginning's results."""

    nbytes: int
    """For a sample."""
    largest: int
    """Of the batches that are to come."""
    engine: Backend | None
    """That the results are to be kept to the bit of; None: up to its rounding."""

    def is_steady(self, node: Node, batch: int) -> bool:
        """Whether a node, of so many samples, gives each the same bits in whatever batch it comes."""
        return self.engine is None or self.engine.is_steady(node, batch, self.largest)


def find_cut(graph: Graph, influenced: set[Tensor], batch: int) -> Cut | None:
    """Where cutting saves most memory; None where that is not worth while."""
    nodes, fixed = _separable_head(graph, influenced, batch)
    if not nodes or batch < 2:
        return None
    live = live_bytes(graph)
    whole = max(live)
    best: tuple[float, int, int] | None = None
    before = 0
    after = _suffix_maxima(live)
    for count in range(1, len(nodes) + 1):
        before = max(before, live[count - 1])
        few = _few(before, batch)
        total = after[count] + before * few / batch
        if few < batch and total <= WORTHWHILE * whole and (best is None or total < best[0]):
            best = (total, count, few)
    if best is None:
        return None
    _, count, few = best
    return Cut(nodes[:count], batch, few, _frontier(graph, nodes[:count], fixed), fixed)


def find_last_cut(graph: Graph, influenced: set[Tensor], batch: int, keep: Keep) -> Cut | None:
    """The latest place whose results may be kept, and are worth it; or before what makes next to no effort of fewer bytes.

    So integers are kept as they are: what they stand for is made of them anew.
    """
    nodes, fixed = _separable_head(graph, influenced, batch)
    steady = next((i for i, node in enumerate(nodes) if not keep.is_steady(node, batch)), len(nodes))
    live = live_bytes(graph)
    best: Cut | None = None
    for count in range(steady, 0, -1):
        few = _few(max(live[:count]), batch)
        cut = Cut(nodes[:count], batch, few, _frontier(graph, nodes[:count], fixed), fixed)
        if best is not None and _effort(nodes[count : len(best.nodes)]) > _numbers(best):
            return best
        worth = _effort(cut.nodes) >= EFFORT * _numbers(cut)
        if cut.frontier and cut.sample_bytes <= keep.nbytes and worth:
            best = cut if best is None or cut.sample_bytes < best.sample_bytes else best
    return best


def keep_in_bytes(graph: Graph, cut: Cut) -> Cut:
    """What lies on a grid is kept as the bytes that it stands for, and widened behind the cut."""
    grids = {t: grid for t in cut.frontier if t not in graph.outputs and (grid := _grid_of(t)) is not None}
    inside, last = set(cut.nodes), cut.nodes[-1]
    readers = [node for node in graph.nodes if node not in inside]
    narrow, wide = {}, {}
    for tensor, grid in grids.items():
        op, _ = in_bytes(grid)
        (made,) = op.infer_types([tensor.type])
        narrow[tensor] = Node(op, [tensor], [Tensor(f"narrow({tensor.name})", made)])
        graph.insert(narrow[tensor], after=last)
        last = narrow[tensor]
    for tensor, grid in grids.items():
        wide[tensor] = Tensor(tensor.name, tensor.type)
        node = Node(in_bytes(grid)[1], [narrow[tensor].outputs[0]], [wide[tensor]])
        graph.insert(node, after=last)
        last = node
    for node in readers:
        if any(t in wide for t in node.inputs):
            graph.reconnect(node, [t if t is None else wide.get(t, t) for t in node.inputs])
    frontier = [narrow[t].outputs[0] if t in narrow else t for t in cut.frontier]
    return replace(cut, nodes=[*cut.nodes, *narrow.values()], frontier=frontier)


def _grid_of(tensor: Tensor) -> OnGrid | None:
    """On which a tensor lies, in whatever order."""
    node = tensor.producer
    while (
        node is not None
        and isinstance(node.op, Movement)
        and not node.op.invents
        and node.inputs[0] is not None
    ):
        node = node.inputs[0].producer
    return node.op if node is not None and isinstance(node.op, OnGrid) else None


def _effort(nodes: Sequence[Node]) -> int:
    return sum(node.flops for node in nodes)


def _numbers(cut: Cut) -> int:
    return sum(t.type.size for t in cut.frontier)


def separate(graph: Graph, cut: Cut) -> Graph:
    """Take the cut's nodes out of the graph; a graph of their own for the smaller batch. The frontier becomes inputs."""
    inside = set(cut.nodes)
    part = Graph(f"{graph.name}:prefix")
    twins: dict[Tensor, Tensor] = {}

    def twin(tensor: Tensor | None) -> Tensor | None:
        if tensor is None or tensor.is_constant or tensor.state is not None:
            return tensor
        if tensor not in twins:
            shape = tensor.shape
            if tensor not in cut.fixed:
                shape = (shape[0] // cut.whole * cut.batch, *shape[1:])
            twins[tensor] = Tensor(tensor.name, tensor.type.with_shape(shape), origin=tensor)
        return twins[tensor]

    for node in cut.nodes:
        made = Node(node.op, [twin(t) for t in node.inputs], [twin(t) for t in node.outputs], node.index)  # type: ignore[misc]
        made.members = [node]
        part.append(made)
    part.inputs = [twins[t] for t in graph.inputs if t in twins]
    part.outputs = [twins[t] for t in cut.frontier]
    graph.nodes = [node for node in graph.nodes if node not in inside or node.outputs[0] in cut.fixed]
    drop_dead_nodes(graph)
    read = {t for node in graph.nodes for t in node.inputs}
    graph.inputs = [t for t in graph.inputs if t in read or t not in twins] + cut.frontier
    return part


def _separable_head(graph: Graph, influenced: set[Tensor], batch: int) -> tuple[list[Node], set[Tensor]]:
    """The leading nodes that training does not touch and that treat every sample by itself; what is fixed."""
    head: list[Node] = []
    fixed: set[Tensor] = set()
    whole = {t for t in graph.inputs if t.shape and t.shape[0] == batch}
    for node in graph.nodes:
        if node.op.draws or any(t in influenced for t in (*node.inputs, *node.outputs)):
            break
        if is_fixed(node, fixed):
            fixed.update(node.outputs)
        elif is_separable(node, whole, batch, fixed, folded=True) or (
            batch == 1 and is_of_one(node, whole, fixed)
        ):
            whole.update(node.outputs)
        else:
            break
        head.append(node)
    return head, fixed


def _few(live: int, batch: int) -> int:
    """For how many samples tensors stay in the cache that take so many bytes for the whole batch."""
    return max((b for b in _divisors(batch) if live * b <= CACHE_BYTES * batch), default=1)


def _frontier(graph: Graph, nodes: Sequence[Node], fixed: set[Tensor]) -> list[Tensor]:
    made = {out for node in nodes for out in node.outputs} - fixed
    inside = set(nodes)
    read = dict.fromkeys(t for node in graph.nodes if node not in inside for t in node.inputs if t in made)
    read.update(dict.fromkeys(t for t in graph.outputs if t in made))
    return list(read)


def _suffix_maxima(values: Sequence[int]) -> list[int]:
    maxima = [0]
    for value in reversed(values):
        maxima.append(max(maxima[-1], value))
    return maxima[::-1]


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
