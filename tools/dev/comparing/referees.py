#!/usr/bin/env python3
"""Ten losses of a network of breadth.py as PyTorch itself computes them in other ways: how much of a difference is rounding's.

Run by breadth.py, in its folder and with PyTorch's interpreter, where the tenth losses part: `referees.py NAME` prints lists:
the losses in float64 first, then those in float32, planar on one thread, channels last on two, and with every weight
moved by a ten-millionth of itself.
"""

from __future__ import annotations

import json
import sys

STEPS = 10
MOVED = 1e-7


def losses(name: str, *, double: bool, last: bool, threads: int, moved: float = 0.0) -> list[float]:
    """What `peer.py` does with PyTorch, on other numbers or in another order."""
    import torch
    import torch.nn.functional as F
    import zoo  # the survey's, in the folder

    torch.set_num_threads(threads)
    model, xs, ys, kinds, optimizer = zoo.make(name)
    model.load_state_dict(torch.load(f"models/{name}.pt", weights_only=True))
    layout = torch.channels_last if last else torch.contiguous_format
    numbers = torch.float64 if double else torch.float32
    model = model.to(numbers, memory_format=layout)
    xs = [
        x.to(numbers, memory_format=layout if x.ndim == 4 else None) if x.is_floating_point() else x
        for x in xs
    ]
    if moved:
        generator = torch.Generator().manual_seed(1)
        with torch.no_grad():
            for weight in model.parameters():
                weight.mul_(1 + moved * torch.randn(weight.shape, generator=generator))
    one = {"ce": lambda y, t: F.cross_entropy(y.reshape(-1, y.shape[-1]), t.reshape(-1)), "mse": F.mse_loss,
           "bce": F.binary_cross_entropy_with_logits, "huber": F.huber_loss}  # fmt: skip
    rule = torch.optim.Adam(model.parameters(), lr=1e-3, eps=1e-8)
    if optimizer != "adam":
        rule = torch.optim.SGD(model.parameters(), lr=1e-2)
    found = []
    for _ in range(STEPS):
        rule.zero_grad()
        outputs = model(*xs)
        outputs = outputs if isinstance(outputs, tuple) else (outputs,)
        targets = [y.to(numbers) if y.is_floating_point() else y for y in ys]
        loss = sum(one[kind](y, t) for kind, y, t in zip(kinds, outputs, targets, strict=True))
        loss.backward()
        rule.step()
        found.append(loss.item())
    return found


def main() -> int:
    name = sys.argv[1]
    found = [losses(name, double=True, last=False, threads=2)]
    found += [
        losses(name, double=False, last=False, threads=1),
        losses(name, double=False, last=True, threads=2),
    ]
    found += [losses(name, double=False, last=False, threads=2, moved=MOVED)]
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
