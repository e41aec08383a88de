"""The model in memory: objects that reference objects, never indices."""

from circle_train.ir.graph import Graph, Metadata, Module
from circle_train.ir.node import Buffer, Node, Operation, Parts, Role, StateKey, Tensor, Variable, Weight
from circle_train.ir.tensor_type import DType, Quantization, TensorType

__all__ = [
    "Buffer",
    "DType",
    "Graph",
    "Metadata",
    "Module",
    "Node",
    "Operation",
    "Parts",
    "Quantization",
    "Role",
    "StateKey",
    "Tensor",
    "TensorType",
    "Variable",
    "Weight",
]
