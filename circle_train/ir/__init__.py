"""The model in memory: objects that reference objects, never indices."""

from circle_train.ir.graph import Buffer, Graph, Metadata, Module, Node, Operation, StateKey, Tensor
from circle_train.ir.tensor_type import DType, Quantization, TensorType

__all__ = [
    "Buffer",
    "DType",
    "Graph",
    "Metadata",
    "Module",
    "Node",
    "Operation",
    "Quantization",
    "StateKey",
    "Tensor",
    "TensorType",
]
