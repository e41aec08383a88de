"""ScatterElements and ScatterND by indices that are known only while running."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from test_open_operators import FLOAT, INT64, helper, numbers, sessions


@pytest.mark.parametrize("reduction", ["none", "add", "mul", "max", "min"])
@pytest.mark.parametrize(("op", "updates"), [("ScatterElements", (6, 5)), ("ScatterND", (6, 2))])
def test_scattering_by_indices_that_repeat(
    op: str, updates: tuple[int, int], reduction: str, tmp_path: Path
) -> None:
    """The last wins where nothing is said, as in onnxruntime; the .tflite does the same in LiteRT."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    indices = (*updates, *([1] if op == "ScatterND" else []))
    info, rng = helper.make_tensor_value_info, np.random.default_rng(len(reduction))
    u_shape = (*updates, 5) if op == "ScatterND" else updates
    graph = helper.make_graph(
        [helper.make_node(op, ["x", "i", "u"], ["y"], reduction=reduction)], "net",
        [info("x", FLOAT, [4, 5]), info("i", INT64, indices), info("u", FLOAT, u_shape)], [info("y", FLOAT, [4, 5])],
    )  # fmt: skip
    ours, theirs = sessions(graph)
    feeds = {"x": numbers((4, 5)), "i": rng.integers(-4, 4, indices), "u": numbers(u_shape)}
    expected = theirs.run(None, feeds)[0]
    np.testing.assert_allclose(ours.run(None, feeds)[0], expected, rtol=1e-5)
    ours.model.save(tmp_path / "net.tflite")
    run = litert.Interpreter(str(tmp_path / "net.tflite"))
    run.allocate_tensors()
    for detail in run.get_input_details():
        run.set_tensor(detail["index"], feeds[detail["name"]])
    run.invoke()
    np.testing.assert_allclose(run.get_tensor(run.get_output_details()[0]["index"]), expected, rtol=1e-5)
