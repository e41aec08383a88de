"""Random ONNX networks, each built together with its float64 twin in PyTorch: every node is computed as it is added."""

from __future__ import annotations

import numpy as np
import torch
from comparing.torch_layers import (
    BATCH,
    Net,
    Value,
    activated,
    convolution,
    normalised_channels,
    pooled,
    reshaped,
    transposed_convolution,
)
from onnx import ModelProto
from torch.nn import functional


def branched(net: Net, x: Value) -> Value:
    """Two ways on, joined along the channels or added."""
    one, other = activated(net, x), activated(net, x)
    if net.pick(True, False):
        return net.add("Concat", [one, other], torch.cat([one.twin, other.twin], 1), axis=1)
    op, twin = net.pick(("Add", torch.add), ("Mul", torch.mul), ("Sub", torch.sub), ("Max", torch.maximum))
    return net.add(op, [one, other], twin(one.twin, other.twin))


def broadcast(net: Net, x: Value) -> Value:
    """Arithmetic with a weight whose axes are 1 where it pleases."""
    shape = tuple(net.pick(1, size) for size in x.shape[1:])
    while len(shape) > 1 and net.pick(False, True):
        shape = shape[1:]
    w = net.weight(*shape, scale=0.2, shift=1.0)
    op, twin = net.pick(("Add", torch.add), ("Mul", torch.mul), ("Sub", torch.sub), ("Div", torch.div))
    if op != "Div" and net.pick(True, False):
        return net.add(op, [w, x], twin(w.twin, x.twin))
    return net.add(op, [x, w], twin(x.twin, w.twin))


def headed(net: Net, x: Value) -> Value:
    """Down to a few numbers a sample."""
    width = int(np.prod(x.shape[1:]))
    flat = net.add("Flatten", [x], x.twin.flatten(1))
    w, b = net.weight(3, width), net.weight(3, scale=0.3)
    return net.add("Gemm", [flat, w, b], flat.twin @ w.twin.T + b.twin, transB=1)


def convolutional(net: Net) -> Value:
    dims = net.integer(1, 3)
    x = net.input(net.pick(2, 3, 4), *(net.integer(4, 9 if dims < 3 else 6) for _ in range(dims)))
    steps = [
        convolution,
        convolution,
        transposed_convolution,
        pooled,
        normalised_channels,
        branched,
        broadcast,
        activated,
    ]
    x = convolution(net, x)
    for _ in range(net.integer(2, 6)):
        x = net.pick(*steps)(net, x)
    return headed(net, x)


def dense(net: Net) -> Value:
    """Products from both sides, reductions, slices, softmax: ranks 2 to 4."""
    x = net.input(*(net.integer(2, 5) for _ in range(net.integer(1, 3))))
    for _ in range(net.integer(2, 6)):
        x = net.pick(
            product, left_product, branched, broadcast, activated, reduced, sliced, softened, transposed
        )(net, x)
    return headed(net, x)


def product(net: Net, x: Value) -> Value:
    w = net.weight(x.shape[-1], net.integer(2, 6), scale=0.5)
    return net.add("MatMul", [x, w], x.twin @ w.twin)


def left_product(net: Net, x: Value) -> Value:
    """A weight before a batch of matrices."""
    if len(x.shape) < 3:
        return product(net, x)
    w = net.weight(net.integer(2, 5), x.shape[-2], scale=0.5)
    return net.add("MatMul", [w, x], w.twin @ x.twin)


def reduced(net: Net, x: Value) -> Value:
    axis = net.integer(1, len(x.shape) - 1)
    op, run = net.pick(
        ("ReduceMean", torch.mean),
        ("ReduceSum", torch.sum),
        ("ReduceMax", torch.amax),
        ("ReduceLogSumExp", torch.logsumexp),
    )
    return net.add(op, [x, net.numbers([axis])], run(x.twin, axis, keepdim=True), keepdims=1)


def sliced(net: Net, x: Value) -> Value:
    axis = net.integer(1, len(x.shape) - 1)
    size = x.shape[axis]
    start = net.integer(0, size - 1)
    end = net.integer(start + 1, size)
    twin = x.twin.narrow(axis, start, end - start)
    return net.add("Slice", [x, *(net.numbers([n]) for n in (start, end, axis))], twin)


def softened(net: Net, x: Value) -> Value:
    axis = net.integer(1, len(x.shape) - 1)
    op, run = net.pick(("Softmax", torch.softmax), ("LogSoftmax", torch.log_softmax))
    return net.add(op, [x], run(x.twin, axis), axis=axis)


def transposed(net: Net, x: Value) -> Value:
    order = [0, *(1 + net.rng.permutation(len(x.shape) - 1))]
    return net.add("Transpose", [x], x.twin.permute(*order), perm=[int(i) for i in order])


def attention(net: Net) -> Value:
    """Layers of several heads, masked or not, with LayerNormalization and a feed-forward part."""
    length, heads, size = net.integer(2, 6), net.pick(1, 2, 3), net.integer(2, 4)
    width = heads * size
    x = product_to(net, net.input(length, net.integer(2, 5)), width)
    for _ in range(net.integer(1, 2)):
        x = layer_norm(net, added(net, x, attended(net, x, heads, size)))
        hidden = activated(net, product_to(net, x, net.integer(3, 9)))
        x = layer_norm(net, added(net, x, product_to(net, hidden, width)))
    return headed(net, x)


def product_to(net: Net, x: Value, width: int) -> Value:
    w, b = net.weight(x.shape[-1], width, scale=0.4), net.weight(width, scale=0.2)
    return added(net, net.add("MatMul", [x, w], x.twin @ w.twin), b)


def added(net: Net, x: Value, y: Value) -> Value:
    return net.add("Add", [x, y], x.twin + y.twin)


def attended(net: Net, x: Value, heads: int, size: int) -> Value:
    length = x.shape[1]

    def split(value: Value) -> Value:
        apart = reshaped(net, value, (-1, length, heads, size))
        return net.add("Transpose", [apart], apart.twin.permute(0, 2, 1, 3), perm=[0, 2, 1, 3])

    q, k, v = (split(product_to(net, x, heads * size)) for _ in range(3))
    turned = net.add("Transpose", [k], k.twin.transpose(2, 3), perm=[0, 1, 3, 2])
    scores = net.add("MatMul", [q, turned], q.twin @ turned.twin)
    scores = net.add(
        "Mul", [scores, net.numbers(size**-0.5, np.float32)], scores.twin * float(np.float32(size**-0.5))
    )
    if net.pick(True, False):
        mask = np.triu(np.full((length, length), -1e9, np.float32), 1)
        scores = net.add(
            "Add", [scores, net.numbers(mask, np.float32)], scores.twin + torch.tensor(mask).double()
        )
    shares = net.add("Softmax", [scores], torch.softmax(scores.twin, -1), axis=-1)
    mixed = net.add("MatMul", [shares, v], shares.twin @ v.twin)
    together = net.add("Transpose", [mixed], mixed.twin.permute(0, 2, 1, 3), perm=[0, 2, 1, 3])
    return reshaped(net, together, (-1, length, heads * size))


def layer_norm(net: Net, x: Value) -> Value:
    width = x.shape[-1]
    gamma, beta = net.weight(width, scale=0.2, shift=1.0), net.weight(width, scale=0.2)
    twin = functional.layer_norm(x.twin, (width,), gamma.twin, beta.twin, 1e-4)
    return net.add("LayerNormalization", [x, gamma, beta], twin, axis=-1, epsilon=1e-4)


def recurrent(net: Net) -> Value:
    """LSTM or GRU over time, in one or both directions, and a head on its last states."""
    length, inputs, hidden = net.integer(1, 5), net.integer(2, 4), net.integer(2, 5)
    x = net.input(length, inputs)
    kind, gates, cell = net.pick(("LSTM", 4, torch.nn.LSTM), ("GRU", 3, torch.nn.GRU))
    directions = net.pick(1, 2)
    w, r, b = (
        net.weight(directions, gates * hidden, inputs, scale=0.5),
        net.weight(directions, gates * hidden, hidden, scale=0.5),
        net.weight(directions, 2 * gates * hidden, scale=0.2),
    )
    twin_cell = cell(inputs, hidden, bidirectional=directions == 2).double()
    order = (0, 2, 3, 1) if kind == "LSTM" else (1, 0, 2)
    """Of ONNX's gates (i o f c, z r h) those that PyTorch has first, second … (i f g o, r z n)."""
    values = {}
    for d in range(directions):
        end = "_reverse" * d
        rows = [slice(gate * hidden, (gate + 1) * hidden) for gate in order]
        values[f"weight_ih_l0{end}"] = torch.cat([w.twin[d][each] for each in rows])
        values[f"weight_hh_l0{end}"] = torch.cat([r.twin[d][each] for each in rows])
        first, second = b.twin[d].chunk(2)
        values[f"bias_ih_l0{end}"] = torch.cat([first[each] for each in rows])
        values[f"bias_hh_l0{end}"] = torch.cat([second[each] for each in rows])
    time_first = net.add("Transpose", [x], x.twin.transpose(0, 1), perm=[1, 0, 2])
    sequence, _ = torch.func.functional_call(twin_cell, values, (time_first.twin,))
    attributes = {"hidden_size": hidden, "direction": "bidirectional" if directions == 2 else "forward"}
    if kind == "GRU":
        attributes["linear_before_reset"] = 1
    apart = sequence.reshape(length, BATCH, directions, hidden).transpose(1, 2)
    y = net.add(kind, [time_first, w, r, b], apart, **attributes)
    turned = net.add("Transpose", [y], y.twin.permute(2, 0, 1, 3), perm=[2, 0, 1, 3])
    return headed(net, turned)


KINDS = {"convolutional": convolutional, "dense": dense, "attention": attention, "recurrent": recurrent}


def network(case: int) -> tuple[Net, Value, ModelProto]:
    """The network of a number, its last value and its file."""
    net = Net(np.random.default_rng([case, 18]))
    torch.manual_seed(case)
    output = list(KINDS.values())[case % len(KINDS)](net)
    return net, output, net.model([output])
