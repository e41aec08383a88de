"""What thousands of clients cost in one process: processor time of each round, and the process's largest size.

    python tools/dev/fleet.py fashion --clients 1000                     # two convolutions
    python tools/dev/fleet.py fashion --clients 1000 --network dense     # two dense layers
    python tools/dev/fleet.py mobilenet --clients 1000

`fashion`: 60 pictures of Fashion-MNIST (Debian's dataset-fashion-mnist) each, classes by Dirichlet's distribution (0.3), batch
10, one epoch a round. `mobilenet`: a new head on MobileNetV1 (../shared/data), 20 pictures of CIFAR-10 each; what the frozen
layers make of them is kept from the first round on. Needs the [federated] extra.
"""

from __future__ import annotations

import argparse
import gzip
import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import circle_train as ct
from circle_train import federated
from circle_train.ir import DType, Graph, Module, Tensor, TensorType
from circle_train.ir.graph import constant
from circle_train.ops import REGISTRY
from circle_train.ops.attributes import Activation

ROOT = Path(__file__).resolve().parents[2]
FASHION = Path("/usr/share/datasets/fashion-mnist")
Data = Callable[[Any], Any]


def idx(name: str, head: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(gzip.open(FASHION / name).read(), np.uint8, offset=head)


def dirichlet(labels: np.ndarray[Any, Any], clients: int, each: int, alpha: float) -> np.ndarray[Any, Any]:
    """Places of `each` samples for each client, whose classes have Dirichlet's shares."""
    random = np.random.default_rng(0)
    pools = [random.permutation(np.flatnonzero(labels == one)) for one in range(labels.max() + 1)]
    shares = random.dirichlet([alpha] * len(pools), clients)
    places = np.empty((clients, each), np.int32)
    for client, share in enumerate(shares):
        chosen = random.choice(len(pools), each, p=share)
        places[client] = [random.choice(pools[one]) for one in chosen]
    return places


def dense(hidden: int = 64) -> ct.Model:
    """784 pixels, so many hidden units, ten classes."""
    random = np.random.default_rng(0)

    def layer(name: str, inputs: int, outputs: int) -> list[Tensor]:
        weights = random.standard_normal((outputs, inputs)) * np.sqrt(2 / inputs)
        return [
            constant(weights.astype(np.float32), f"{name}/w"),
            constant(np.zeros(outputs, np.float32), f"{name}/b"),
        ]

    graph = Graph("main", [Tensor("image", TensorType(DType.FLOAT32, (1, 28, 28, 1)))])
    flat = constant(np.array([1, 784], np.int32), "flat/shape")
    x = graph.emit(REGISTRY["RESHAPE"](new_shape=(1, 784)), graph.inputs[0], flat, name="flat")
    relu = REGISTRY["FULLY_CONNECTED"](fused_activation_function=Activation.RELU)
    x = graph.emit(relu, x, *layer("hidden", 784, hidden), name="hidden")
    x = graph.emit(REGISTRY["FULLY_CONNECTED"](), x, *layer("dense", hidden, 10), name="dense")
    graph.outputs = [graph.emit(REGISTRY["SOFTMAX"](beta=1.0), x, name="probabilities")]
    return ct.Model(Module([graph]))


def fashion(clients: int, network: str) -> tuple[Any, ct.TrainConfig, Data, Any]:
    pictures = idx("train-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)
    labels = idx("train-labels-idx1-ubyte.gz", 8)
    places = dirichlet(labels, clients, 60, 0.3)
    tested = idx("t10k-images-idx3-ubyte.gz", 16).reshape(-1, 28, 28, 1)[:1000].astype(np.float32) / 255
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=ct.optimizers.SGD(learning_rate=0.05),
        batch_size=10,
        metrics=["sparse_categorical_accuracy"],
    )

    def data(context: Any) -> Any:
        mine = places[context.node_config["partition-id"]]
        return pictures[mine].astype(np.float32) / 255, labels[mine].astype(np.int32)

    known = {"cnn": lambda: ROOT / "tests/data/mnist.circle", "dense": dense}
    model = known[network]() if network in known else Path(network)
    return model, config, data, (tested, idx("t10k-labels-idx1-ubyte.gz", 8)[:1000].astype(np.int32))


class Enlarged:
    """Small pictures as the network takes them, made when they are asked for."""

    is_lasting = True

    def __init__(self, pictures: np.ndarray[Any, Any]) -> None:
        self.pictures = pictures
        self.shape = (len(pictures), 224, 224, 3)
        self.ndim, self.dtype = 4, np.dtype(np.float32)

    def __len__(self) -> int:
        return len(self.pictures)

    def __getitem__(self, places: Any) -> np.ndarray[Any, Any]:
        large = self.pictures[places].repeat(7, axis=1).repeat(7, axis=2)
        return large.astype(np.float32) / 127.5 - 1


def mobilenet(clients: int, network: str) -> tuple[Any, ct.TrainConfig, Data, Any]:
    shared = ROOT.parent / "shared/data"
    model = ct.load(shared / "models/mobilenet_v1_1.0_224_f32.tflite").with_head(10)
    with np.load(shared / "cifar10_small.npz") as found:
        pictures, labels = found["x_train"], found["y_train"].astype(np.int32)
        tested = Enlarged(found["x_test"][::10]), found["y_test"][::10].astype(np.int32)
    random = np.random.default_rng(0)
    places = np.stack([random.choice(len(pictures), 20, replace=False) for _ in range(clients)])
    config = ct.TrainConfig(
        loss="sparse_categorical_crossentropy",
        optimizer=ct.optimizers.SGD(learning_rate=0.1),
        batch_size=20,
        trainable=("last", 3),
        metrics=["sparse_categorical_accuracy"],
    )

    def data(context: Any) -> Any:
        mine = places[context.node_config["partition-id"]]
        return Enlarged(pictures[mine]), labels[mine]

    return model, config, data, (tested[0][:], tested[1])


def peak() -> float:
    """The process's largest size so far, in MB."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("fashion", "mobilenet"))
    parser.add_argument("--clients", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument(
        "--network", default="cnn", help="cnn (tests/data/mnist.circle), dense, or a model file"
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    model, config, data, tested = globals()[options.what](options.clients, options.network)
    print(f"before: {peak():.0f} MB")
    app = federated.client_app(model, config, data, threads=options.threads)
    logging.getLogger("flwr").setLevel(logging.WARNING)

    class Timed(federated.StreamingFedAvg):  # type: ignore[misc, name-defined]
        """Says what each round took, as its replies have been added up."""

        def aggregate_train(self, number: int, replies: Any) -> Any:
            begun = time.process_time()
            made = super().aggregate_train(number, replies)
            print(
                f"round {number}: {time.process_time() - begun:.2f} s of CPU for training, peak {peak():.0f} MB",
                flush=True,
            )
            return made

    run = federated.simulate(
        app, Timed(fraction_evaluate=0.0), options.clients, rounds=options.rounds, evaluate=tested
    )
    print("accuracy by round:", [round(a, 4) for a in run.history["sparse_categorical_accuracy"]])
    print(f"peak {peak():.0f} MB")


if __name__ == "__main__":
    main()
