"""Whatever goes wrong while a node is inferred, bound or run is said of that node."""

from __future__ import annotations

from types import TracebackType

from circle_train.errors import FOREIGN, CircleTrainError, ModelError, shown
from circle_train.ir.node import Node
from circle_train.printable import printable


class Blame:
    """Within this block our own errors are given the node's name, and those of Python and numpy become ModelErrors."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def __enter__(self) -> None:
        """Nothing is to be done before."""

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is None:
            return
        place = printable(str(self.node))
        if isinstance(error, CircleTrainError) and not str(error).startswith(place):
            said = str(error).removeprefix(self.node.op.name).lstrip(" :")
            raise type(error)(f"{place}: {said}") from error
        if isinstance(error, FOREIGN):
            inputs = ", ".join("none" if t is None else str(t.type) for t in self.node.inputs)
            raise ModelError(
                f"{place}: its inputs ({inputs}) cannot be computed ({shown(error)}); export the model again"
            ) from error
