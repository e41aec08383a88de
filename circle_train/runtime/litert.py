"""A module as the runtimes of .tflite files take it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from circle_train import format
from circle_train.errors import UnsupportedOpError
from circle_train.format.metadata import hints
from circle_train.format.model.carried import Signature
from circle_train.ir import Graph, Module, Tensor
from circle_train.ops.foreign.operator import Foreign
from circle_train.passes.litert.suit import is_refused, suit

SIGNATURE = "serving_default"
VERSION = 3
"""Of the schema: the only one that LiteRT reads; Circle files say 0, and mean no other."""


def save(module: Module, path: str | os.PathLike[str]) -> None:
    """Write a file; for a .tflite one the module is rewritten as far as LiteRT needs it."""
    if os.fspath(path).lower().endswith(".tflite"):
        refuse_foreign(module)
        module = for_litert(module)
    format.save(module, path)


def refuse_foreign(module: Module) -> None:
    """Refuse what no other runtime computes."""
    found = [str(node) for graph in module.graphs for node in graph.nodes if isinstance(node.op, Foreign)]
    if found:
        raise UnsupportedOpError(
            f"{len(found)} operator(s) are ONNX's own, which no runtime of .tflite files computes: {', '.join(found[:8])}; "
            "save as .circle, or cut the model before them (session.export(path, outputs=[…]))"
        )


def for_litert(module: Module) -> Module:
    """The module itself where it was loaded from a .tflite file, or LiteRT takes it as it is."""
    source = module.carried.get("source")
    if source is not None and source.identifier == "TFL3":
        return module
    if module.version != VERSION:
        module = replace(module, version=VERSION)
    if not any(is_refused(graph) for graph in module.graphs):
        return module if source is not None else _signed(module, module.main)
    graphs = [graph.copy() for graph in module.graphs]
    run = _relinked(graphs, dict(zip(module.graphs, graphs, strict=True)))
    for graph, old in zip(graphs, module.graphs, strict=True):
        graph.carried = dict(old.carried)
        suit(graph, is_inner=graph in run)
    constants = dict.fromkeys(
        t.buffer for graph in graphs for t in graph.all_tensors() if t.buffer is not None
    )
    known = set(module.buffers)
    fresh = [buffer for buffer in constants if buffer not in known]
    carried = {key: value for key, value in module.carried.items() if key != "source"}
    if "signatures" in carried:
        carried["signatures"] = [_moved(signature, module, graphs) for signature in carried["signatures"]]
    made = replace(module, graphs=graphs, buffers=[*module.buffers, *fresh], carried=carried)
    return _signed(hints.attach(made), graphs[0])


def _relinked(graphs: Sequence[Graph], twins: Mapping[Graph, Graph]) -> set[Graph]:
    """Let operators run the copies; those that are run."""
    run = set[Graph]()
    for node in [node for graph in graphs for node in graph.nodes if getattr(node.op, "graphs", ())]:
        node.op = replace(node.op, graphs=tuple(twins.get(inner, inner) for inner in node.op.graphs))
        run.update(node.op.graphs)
    return run


def _signed(module: Module, main: Graph) -> Module:
    """With one signature at least: the main graph's inputs and outputs by their names."""
    if module.carried.get("signatures"):
        return module
    inputs, outputs = ([(tensor.name, tensor) for tensor in group] for group in (main.inputs, main.outputs))
    return replace(
        module, carried=module.carried | {"signatures": [Signature(SIGNATURE, main, inputs, outputs)]}
    )


def _moved(signature: Signature, module: Module, graphs: list[Graph]) -> Signature:
    """The same signature of the copied graph."""
    index = next(i for i, graph in enumerate(module.graphs) if graph is signature.graph)
    twins = {tensor.origin: tensor for tensor in graphs[index].all_tensors()}

    def moved(entries: list[tuple[str, Tensor]]) -> list[tuple[str, Tensor]]:
        return [(name, twins.get(tensor, tensor)) for name, tensor in entries]

    return replace(
        signature, graph=graphs[index], inputs=moved(signature.inputs), outputs=moved(signature.outputs)
    )
