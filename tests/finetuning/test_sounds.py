"""From a folder of recordings to a file that names them."""

from __future__ import annotations

import json
import os
import subprocess
import wave
from pathlib import Path

import numpy as np
import pytest
from sound_net import SAMPLES, sound_net

import circle_train as ct
from circle_train.cli.main import main

CLIENT = """
import json, sys, wave
import numpy as np
from mediapipe.tasks.python import BaseOptions, audio
from mediapipe.tasks.python.components import containers
client = audio.AudioClassifier.create_from_options(
    audio.AudioClassifierOptions(base_options=BaseOptions(model_asset_path=sys.argv[1])))
for path in sys.argv[2:]:
    with wave.open(path) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2").astype(np.float32) / 32768
        heard = containers.AudioData.create_from_array(samples, file.getframerate())
    (found,) = client.classify(heard)[0].classifications
    print(json.dumps([[category.category_name, category.score] for category in found.categories]))
client.close()
"""


@pytest.fixture(scope="module")
def recordings(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Tones of two ranges, with noise."""
    folder, rng = tmp_path_factory.mktemp("tones"), np.random.default_rng(0)
    for name, hertz in (("high", 2000), ("low", 300)):
        (folder / name).mkdir()
        for number in range(8):
            moments = np.arange(SAMPLES) / SAMPLES
            sound = 0.5 * np.sin(2 * np.pi * (hertz + 20 * number) * moments) + 0.01 * rng.normal(
                size=SAMPLES
            )
            with wave.open(str(folder / name / f"{number}.wav"), "wb") as file:
                file.setnchannels(1)
                file.setsampwidth(2)
                file.setframerate(SAMPLES)
                file.writeframes((sound * 32767).astype("<i2").tobytes())
    return folder


@pytest.fixture(scope="module")
def model(recordings: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = ct.data.sounds(recordings, validation=0.25)
    result = ct.finetune(sound_net(), data, epochs=15, learning_rate=0.05, verbose=0, trainable="none")
    assert result.metrics["accuracy"] == 1
    path = tmp_path_factory.mktemp("model") / "tones.tflite"
    result.export(path)
    return path


def test_recordings_are_named_and_judged_class_by_class(
    model: Path, recordings: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["predict", str(model), str(recordings / "low" / "3.wav")]) == 0
    assert capsys.readouterr().out.startswith("low ")
    assert main(["eval", str(model), str(recordings)]) == 0
    said = capsys.readouterr().out
    assert "on 16 samples: accuracy 1.000" in said and "  high  precision 1.00  recall 1.00" in said
    assert main(["eval", str(model), str(recordings), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["classes"]["low"] == {"precision": 1.0, "recall": 1.0}


@pytest.mark.slow
def test_recordings_are_named_by_media_pipe(model: Path, recordings: Path) -> None:
    python = os.environ.get("MEDIAPIPE_PYTHON")
    if not python:
        pytest.skip("MEDIAPIPE_PYTHON names no interpreter with mediapipe")
    paths = [str(recordings / name / "2.wav") for name in ("high", "low")]
    done = subprocess.run(
        [python, "-c", CLIENT, str(model), *paths], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    answers = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert [max(answer, key=lambda one: one[1])[0] for answer in answers] == ["high", "low"]
    session = ct.InferenceSession(model)
    for answer, path in zip(answers, paths, strict=True):
        with wave.open(path) as file:
            samples = np.frombuffer(file.readframes(SAMPLES), "<i2").astype(np.float32) / 32768
        ours = dict(zip(("high", "low"), session(samples[None])[0].tolist(), strict=True))
        assert dict(answer) == pytest.approx(ours, abs=1e-4)
