"""ONNX's recurrent operators over sequences of any length, and the cells that they step."""

from circle_train.ops.internal.sequence.operators import (
    Direction,
    OverSequence,
    SequenceGru,
    SequenceLstm,
    SequenceRnn,
)

__all__ = ["Direction", "OverSequence", "SequenceGru", "SequenceLstm", "SequenceRnn"]
