"""The order in which ONERT writes constants into a checkpoint.

The file names nothing: slot i belongs to the i-th constant that a chain of C++ hash maps, keyed by tensor
index, yields. That order is a pure function of the graph, and this module computes it (see docs/format.md).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from circle_train.ir import Graph, Node, Tensor

PRIMES = (
    13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273, 20753, 42043, 85229, 172933, 351061, 712697, 1447153,
    2938679, 5967347,
)  # fmt: skip
"""Bucket counts of a libstdc++ unordered_map that grows by single insertions."""


class HashOrder:
    """Iteration order of libstdc++'s unordered_map with unsigned keys that hash to themselves.

    Nodes of a bucket stand together, the newest in front; a bucket's first node goes to the front of all.
    """

    def __init__(self, keys: Iterable[int] = ()) -> None:
        self._growth = iter(PRIMES)
        self._bucket_count = next(self._growth)
        self._runs: dict[int, list[int]] = {}
        self._size = 0
        for key in keys:
            self.insert(key)

    def insert(self, key: int) -> None:
        if self._size == self._bucket_count:
            self._rehash()
        self._runs.setdefault(key % self._bucket_count, []).append(key)
        self._size += 1

    def erase(self, key: int) -> None:
        bucket = key % self._bucket_count
        self._runs[bucket].remove(key)
        if not self._runs[bucket]:
            del self._runs[bucket]
        self._size -= 1

    def __iter__(self) -> Iterator[int]:
        for run in reversed(self._runs.values()):
            yield from reversed(run)

    def _rehash(self) -> None:
        keys = list(self)
        self._bucket_count = next(self._growth)
        self._runs = {}
        for key in keys:
            self._runs.setdefault(key % self._bucket_count, []).append(key)


def slot_readers(graph: Graph) -> list[tuple[Tensor, int]]:
    """The graph's constants in ONERT's order, each with its reader's place in the file; shared ones once for each reader."""
    return _Numbering(graph).slots()


class _Numbering:
    """Operand numbers as ONERT's training compiler gives them: the table's, then what each pass adds."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.nodes = sorted(graph.nodes, key=lambda node: node.index)
        self.tensors = list(graph.tensors) or list(graph.all_tensors())
        self.number = {tensor: number for number, tensor in enumerate(self.tensors)}
        self.expected = range(len(self.tensors), len(self.tensors) + len(graph.outputs))
        self.next = len(self.tensors) + 2 * len(graph.outputs)
        self.users: dict[Tensor, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for constant in _constants(node):
                self.users.setdefault(constant, []).append(index)

    def slots(self) -> list[tuple[Tensor, int]]:
        """(constant, place in the file's operator list of its reader) by slot."""
        operands = self._with_losses()
        readers = self._split_shared(operands)
        elsewhere = self._permute(operands)
        mine = HashOrder(HashOrder(number for number in operands if number not in elsewhere))
        return [readers[number] for number in HashOrder(number for number in mine if number in readers)]

    def _with_losses(self) -> HashOrder:
        """What the graph uses, then the expected value and the loss of every output."""
        operands = HashOrder(range(len(self.tensors)))
        for number in set(operands) - {self.number[tensor] for tensor in self.graph.all_tensors()}:
            operands.erase(number)
        operands = HashOrder(operands)
        for number in range(self.expected.start, self.next):
            operands.insert(number)
        return HashOrder(operands)

    def _split_shared(self, operands: HashOrder) -> dict[int, tuple[Tensor, int]]:
        """Give every reader of a constant one of its own: the first that ONERT meets keeps the number."""
        readers: dict[int, tuple[Tensor, int]] = {}
        for index in self._operator_order():
            for constant in _constants(self.nodes[index]):
                if self.number[constant] in readers:
                    continue
                readers[self.number[constant]] = constant, index
                for user in HashOrder(self.users[constant]):
                    if user != index:
                        operands.insert(self.next)
                        readers[self.next] = constant, user
                        self.next += 1
        return readers

    def _operator_order(self) -> list[int]:
        count = len(self.nodes)
        operators = HashOrder(HashOrder(range(count)))
        for loss in range(len(self.graph.outputs)):
            operators.insert(count + loss)
        return [index for index in HashOrder(operators) if index < count]

    def _permute(self, operands: HashOrder) -> set[int]:
        """Twins of what enters and leaves the graph; the numbers that then belong to another backend."""
        inputs = {self.number[tensor] for tensor in self.graph.inputs} | set(self.expected)
        outputs = {self.number[tensor] for tensor in self.graph.outputs}
        elsewhere = set(inputs)
        for number in list(operands):
            if number in inputs or number in outputs:
                operands.insert(self.next)
                if number in outputs:
                    elsewhere.add(self.next)
                self.next += 1
        return elsewhere


def _constants(node: Node) -> list[Tensor]:
    """The constants a node reads, each once."""
    return list(dict.fromkeys(t for t in node.inputs if t is not None and t.is_constant))
