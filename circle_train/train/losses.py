"""Losses: each adds the nodes that compute one number per item, and reduces them."""

from __future__ import annotations

import enum
from dataclasses import dataclass

import numpy as np

from circle_train.ir import Graph, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops.arithmetic import Mul
from circle_train.ops.reduce import Mean, Sum
from circle_train.ops.shape import Reshape


class Reduction(enum.Enum):
    """How the losses of the items become one number."""

    MEAN = "mean"
    SUM = "sum"
    NONE = "none"
