"""The model in memory: objects that reference objects, never indices."""

from typing import TYPE_CHECKING

from circle_train.brought import brought

if TYPE_CHECKING:
    from circle_train.ir.graph import Graph as Graph, Metadata as Metadata, Module as Module
    from circle_train.ir.node import (
        Buffer as Buffer,
        Node as Node,
        Operation as Operation,
        Parts as Parts,
        Role as Role,
        StateKey as StateKey,
        Tensor as Tensor,
        Variable as Variable,
        Weight as Weight,
    )
    from circle_train.ir.tensor_type import (
        DType as DType,
        Quantization as Quantization,
        TensorType as TensorType,
    )

HOMES = {
    "graph": ("Graph", "Metadata", "Module"),
    "node": ("Buffer", "Node", "Operation", "Parts", "Role", "StateKey", "Tensor", "Variable", "Weight"),
    "tensor_type": ("DType", "Quantization", "TensorType"),
}
__getattr__ = brought(__name__, HOMES)
