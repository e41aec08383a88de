"""Losses of our own as graphs that a file can carry."""

from __future__ import annotations

from collections.abc import Callable

from circle_train import losses
from circle_train.errors import CircleTrainError, ConfigError
from circle_train.ir import Graph, TensorType
from circle_train.losses import Loss, loss_graph
from circle_train.settings.as_json import LOSSES as KNOWN_LOSSES
from circle_train.settings.config import TrainConfig


def with_traced_losses(config: TrainConfig, graph: Graph) -> TrainConfig:
    """A user's own losses as the graphs that they trace, which a file can hold."""
    loss = config.loss
    if isinstance(loss, losses.Joint) and not isinstance(loss, losses.TracedJoint):
        made = _trace_for_any_batch(
            loss.name, config.batch_size, lambda size: losses.trace_jointly(loss, _outputs(graph, size))
        )
        return config.replace(
            loss=losses.TracedJoint(reduction=loss.reduction, name=loss.name, sparse=loss.sparse, graph=made)
        )
    found = loss if isinstance(loss, tuple) else (loss,)
    if not any(_is_custom(loss) for loss in found):
        return config
    pairs = zip(config.losses_for(len(graph.outputs)), _outputs(graph, config.batch_size), strict=True)
    traced = tuple(_traced(loss, output, config.batch_size) for loss, output in pairs)
    return config.replace(loss=traced if len(traced) > 1 else traced[0])


def _outputs(graph: Graph, batch_size: int) -> list[TensorType]:
    return [tensor.type.with_shape((batch_size, *tensor.shape[1:])) for tensor in graph.outputs]


def _is_custom(loss: object) -> bool:
    if isinstance(loss, losses.Sum):
        return any(_is_custom(term) for _, term in loss.terms)
    return type(loss) not in KNOWN_LOSSES.values() and not isinstance(loss, losses.Joint)


def _traced(loss: Loss, output: TensorType, batch_size: int) -> Loss:
    """The loss as a graph; of a sum the terms that need it, so that the others go on checking labels."""
    if not _is_custom(loss):
        return loss
    if isinstance(loss, losses.Sum):
        terms = tuple((factor, _traced(term, output, batch_size)) for factor, term in loss.terms)
        return losses.Sum(terms=terms)
    name = getattr(loss, "name", type(loss).__name__)
    shape = output.shape[1:]
    made = _trace_for_any_batch(
        name, batch_size, lambda size: losses.trace(loss, output.with_shape((size, *shape)), name)
    )
    return losses.Traced(reduction=loss.reduction, graph=made, name=name)


def _trace_for_any_batch(name: str, batch_size: int, trace: Callable[[int], Graph]) -> Graph:
    """The graph for this batch size, if it is right for others too: a file's last batch may be smaller."""
    graph = trace(batch_size)
    try:
        others = loss_graph.describe(trace(batch_size + 1))
    except CircleTrainError:
        others = {"nodes": None}
    if loss_graph.describe(graph)["nodes"] != others["nodes"]:
        raise ConfigError(
            f"custom loss '{name}' computes with the batch size {batch_size}, expected a formula for any; "
            "a file holds one graph of it, so write mean() for a sum over shape[0], and -1 in reshape"
        )
    return graph
