"""Every option of every command in use (see test_options.py)."""

from __future__ import annotations

from typing import NamedTuple

TRAIN = "train net.circle --input x.npy --expected y.npy --loss categorical_crossentropy"
TUNE = "finetune shapes --model picture.tflite -o out.tflite --epochs 1 --trainable none"
TABLE = "finetune t.csv --model table.circle -o out.tflite --epochs 1 --columns a,b,c,d,e,f --label label"
WALK = (
    "finetune walk.csv --kind windows --model table.circle -o out.tflite --epochs 1 --length 6 --group user"
)
TEXT = "finetune said.csv --model words.circle -o out.tflite --epochs 1 --tokenizer vocab.txt --length 8"
SOUND = "finetune tones --model sound.tflite -o out.tflite --epochs 1 --seconds 1"
CHECK = "check shapes --model picture.tflite --budget 40MB,"
TRY_TABLE = "check t.csv --model table.circle --columns a,b,c,d,e,f --label label --budget 40MB,1s"
TRY_WALK = "check walk.csv --kind windows --model table.circle --length 6 --group user --budget 40MB,1s"
EVAL = "eval net.circle --input x.npy --expected y.npy --loss categorical_crossentropy"
NAME = "predict named.tflite shapes"
ARTIFACTS = "artifacts net.circle --out package --loss categorical_crossentropy"
SHIP = "quantize net.tflite out.tflite"
INTEGERS = f"{SHIP} --calibration x.npy"
JUDGED = f"{INTEGERS} --validation x.npy y.npy"
COARSE = f"{SHIP} --calibration small.npy --validation x.npy told.npy"
GAIN = "--fix gain=2"
SHAPE = "--shape x=Nx4x6"


class Use(NamedTuple):
    """An option in use: what is said, beside which words, and why it is refused where nothing else can be seen of it."""

    words: str
    beside: str = ""
    refused: str = ""


def engine(beside: str) -> dict[str, Use]:
    """The bits are the same by any number of threads and any engine, by design; that the words are heard can be refused."""
    return {
        "--threads": Use("--threads 0", beside, "threads is 0"),
        "--backend": Use("--backend reference --threads 0", beside, "threads is 0"),
    }


def training(beside: str) -> dict[str, Use]:
    return {
        "--loss-reduction": Use("--loss-reduction sum", beside),
        "--optimizer": Use("--optimizer adagrad", beside),
        "--learning-rate": Use("--learning-rate 0.5", beside),
        "--batch-size": Use("--batch-size 2", beside),
        "--memory-budget": Use("--memory-budget 1KB", beside, "but a step needs"),
        "--activations": Use("--activations bfloat16", beside),
        "--trainable": Use("--trainable last:2", beside),
        "--metric": Use("--metric categorical_accuracy", beside),
    }


def look(beside: str, open_size: str = "") -> dict[str, Use]:
    return {
        "--scale": Use("--scale 90", beside),
        "--offset": Use("--offset 9", beside),
        "--size": Use("--size 24x24", open_size)
        if open_size
        else Use("--size 24x24", beside, "takes 32×32 pictures"),
        "--crop": Use("--crop squash", beside),
    }


USES: dict[str, dict[str, Use]] = {
    "demo": {"--out": Use("--out elsewhere", "demo")},
    "finetune": {
        "--model": Use("--model picture.tflite", TUNE.replace(" --model picture.tflite", "")),
        "--output": Use("-o elsewhere.tflite", TUNE),
        "--quantize": Use("--quantize int8", TUNE),
        "--shape": Use("--shape picture=Nx32x32x3", TUNE.replace("picture.tflite", "anysize.tflite")),
        "--fix": Use(GAIN, "finetune plain.csv --model gained.circle -o out.tflite --epochs 1"),
        "--classes": Use("--classes 3", TUNE, "there are 2 folders"),
        "--kind": Use("--kind windows", WALK.replace(" --kind windows", "")),
        "--label": Use("--label other", TABLE),
        "--columns": Use("--columns f,e,d,c,b,a", TABLE),
        "--group": Use("--group who", TABLE),
        "--length": Use("--length 4", TEXT.replace(" --length 8", ""), "takes 8"),
        "--step": Use("--step 1", WALK),
        "--tokenizer": Use("--tokenizer turned.txt", TEXT),
        "--seconds": Use("--seconds 1", SOUND.replace(" --seconds 1", "")),
        "--sample-rate": Use("--sample-rate 8000", SOUND),
        **look(TUNE, "finetune shapes --model anysize.tflite -o out.tflite --epochs 1 --trainable none --size 32x32"),
        "--validation": Use("--validation 0.5", TUNE),
        "--epochs": Use("--epochs 2", TUNE),
        "--patience": Use("--patience 1", f"{TUNE} --epochs 9 --learning-rate 3"),
        "--augment": Use("--augment all", TUNE),
        "--variants": Use("--variants 2", f"{TUNE} --augment flip"),
        "--label-smoothing": Use("--label-smoothing 0.3", TUNE),
        "--trainable": Use("--trainable all", TUNE),
        "--budget": Use("--trainable auto --budget 40MB,2s", TUNE),
        "--learning-rate": Use("--learning-rate 0.1", TUNE),
        "--batch-size": Use("--batch-size 4", TUNE),
        "--balanced": Use("--balanced", f"{TUNE} --validation 0.3"),
        "--skip-damaged": Use("--skip-damaged", TUNE.replace("shapes", "damaged")),
        "--threads": Use("--threads 0", TUNE, "threads is 0"),
        "--seed": Use("--seed 1", TUNE),
        "--run-dir": Use("--run-dir run", TUNE),
        "--checkpoint-every": Use("--checkpoint-every 2", TUNE, "goes with --run-dir"),
        "--resume": Use("--resume nowhere", "finetune", "nowhere"),
        "--json": Use("--json", TUNE),
    },
    "info": {
        "--shape": Use("--shape x=3x6", "info net.circle"),
        "--fix": Use(GAIN, "info gained.circle"),
        "--operators": Use("--operators", "info net.circle"),
        "--json": Use("--json", "info net.circle"),
    },
    "check": {
        "--shape": Use("--shape x=Nx9x6", "check open.circle"),
        "--fix": Use(GAIN, "check gained.circle"),
        "--batch-size": Use("--batch-size 4", "check net.circle"),
        "--optimizer": Use("--optimizer sgd", "check net.circle"),
        "--activations": Use("--activations bfloat16", "check net.circle"),
        "--loss": Use("--loss categorical_crossentropy", "check net.circle"),
        "--json": Use("--json", "check net.circle"),
        "--model": Use("--model nowhere.tflite", "check shapes", "nowhere.tflite"),
        "--budget": Use("--budget 1MB,1s", "check shapes --model picture.tflite", "but a step needs"),
        "--seed": Use("--seed -1", f"{CHECK}1s", "seed is -1, expected"),
        "--threads": Use("--threads 0", f"{CHECK}1s", "threads is 0"),
        "--kind": Use("--kind sounds", f"{CHECK}1s", "no recordings"),
        "--label": Use("--label nobody", TRY_TABLE, "has no column 'nobody'"),
        "--columns": Use("--columns a,b", TRY_TABLE, "takes 6"),
        "--group": Use("--group nobody", TRY_TABLE, "nobody"),
        "--length": Use("--length 0", TRY_WALK, "length is 0"),
        "--step": Use("--step 0", TRY_WALK, "step 0"),
        "--tokenizer": Use("--tokenizer nowhere.txt", "check said.csv --model words.circle --kind text", "nowhere.txt"),
        "--seconds": Use("--seconds -1", "check tones --model sound.tflite --budget 40MB,1s", "seconds is -1"),
        "--sample-rate": Use("--sample-rate -1", "check tones --model sound.tflite --budget 40MB,1s", "sample_rate is -1"),
        "--scale": Use("--scale 0", f"{CHECK}1s", "scale is 0"),
        "--offset": Use("--offset inf", f"{CHECK}1s", "offset is inf"),
        "--size": Use("--size 24x24", f"{CHECK}1s", "takes 32×32 pictures"),
        "--crop": Use("--crop squash", TRY_TABLE, "--crop is for images"),
    },
    "convert": {
        "--shape": Use("--shape x=3x6", "convert net.tflite out.circle"),
        "--fix": Use(GAIN, "convert gained.circle out.circle"),
        "--engine": Use("--engine onnx2tf", "convert net.tflite out.circle", "goes with an .onnx file"),
        "--io": Use("--io nhwc", "convert net.tflite out.circle", "goes with an .onnx file"),
        "--fold-batchnorm": Use("--fold-batchnorm", "convert net.tflite out.circle", "goes with an .onnx file"),
        "--float-head": Use("--float-head 1", "convert integers.tflite out.circle"),
        "--no-verify": Use("--no-verify", "convert net.circle out.tflite"),
    },
    "plus": {
        "--remove": Use("--remove", "plus plus.circle"),
        "--onert": Use("--onert", "plus plus.circle"),
        "--json": Use("--json", "plus plus.circle sgd.json"),
    },
    "artifacts": {
        "--shape": Use("--shape x=Nx9x6", ARTIFACTS.replace("net", "open")),
        "--fix": Use(GAIN, ARTIFACTS.replace("net", "gained")),
        "--requires-grad": Use("--requires-grad fc1/*", ARTIFACTS),
        "--frozen": Use("--frozen fc0/*", ARTIFACTS),
        "--batch-norm": Use("--batch-norm train", ARTIFACTS),
        "--extra-output": Use("--extra-output fc0", ARTIFACTS),
        "--nominal": Use("--nominal", ARTIFACTS),
        "--checkpoint": Use("--checkpoint moved.safetensors", ARTIFACTS),
        "--loss": Use("--loss huber", ARTIFACTS),
        "--json": Use("--json", ARTIFACTS),
        **training(ARTIFACTS),
    },
    "data": {
        "--labels": Use("--labels labels.npy", "data x.npy"),
        "--label-column": Use("--label-column label", "data plain.csv"),
        "--prefix": Use("--prefix mine", "data x.npy"),
        "--out": Use("--out elsewhere", "data x.npy"),
        "--split": Use("--split train test:0.2", "data x.npy"),
        "--one-hot": Use("--one-hot", "data x.npy --labels labels.npy"),
        "--scale": Use("--scale 255", "data x.npy"),
        "--offset": Use("--offset 2", "data x.npy"),
        "--layout": Use("--layout nchw", "data images.npy"),
        "--channel": Use("--channel", "data grey.npy"),
        "--size": Use("--size 8x8", "data shapes --size 4x4"),
        "--seed": Use("--seed 1", "data x.npy"),
        "--json": Use("--json", "data x.npy"),
    },
    "train": {
        "--shape": Use(SHAPE, "train open.circle --input rows.npy --expected rows_y.npy --loss mse", "expected N×4×6"),
        "--fix": Use(GAIN, "train gained.circle --input x.npy --expected y.npy --loss mse"),
        "--input": Use("--input x.npy", "train net.circle --expected y.npy --loss mse"),
        "--expected": Use("--expected y.npy", "train net.circle --input x.npy --loss mse"),
        "--epochs": Use("--epochs 2", TRAIN),
        "--validation-split": Use("--validation-split 0.3", TRAIN),
        "--keep": Use("--keep last", f"{TRAIN} --validation-split 0.3 --optimizer adam --learning-rate 5"),
        "--no-shuffle": Use("--no-shuffle", f"{TRAIN} --batch-size 4"),
        "--seed": Use("--seed 1", f"{TRAIN} --batch-size 4"),
        "--loss": Use("--loss mse", TRAIN),
        "--checkpoint": Use("--checkpoint moved.safetensors", TRAIN),
        "--export": Use("--export elsewhere.tflite", TRAIN),
        "--export-circleplus": Use("--export-circleplus plus2.circle", TRAIN),
        "--export-checkpoint": Use("--export-checkpoint c.safetensors", TRAIN),
        "--run-dir": Use("--run-dir run", TRAIN),
        "--checkpoint-every": Use("--checkpoint-every 2", TRAIN, "--run-dir"),
        "--resume": Use("--resume nowhere", "train", "nowhere"),
        "--json": Use("--json", TRAIN),
        **training(TRAIN),
        **engine(TRAIN),
        **look("train named.tflite --input shapes --loss categorical_crossentropy --epochs 1"),
    },
    "eval": {
        "--shape": Use(SHAPE, "eval open.circle --input rows.npy --expected rows_y.npy --loss mse", "expected N×4×6"),
        "--fix": Use(GAIN, "eval gained.circle --input x.npy --expected y.npy --loss mse"),
        "--input": Use("--input x.npy", "eval net.circle --expected y.npy --loss mse"),
        "--expected": Use("--expected y.npy", "eval net.circle --input x.npy --loss mse"),
        "--tokenizer": Use("--tokenizer vocab.txt", EVAL, "--tokenizer"),
        "--checkpoint": Use("--checkpoint moved.safetensors", EVAL),
        "--loss": Use("--loss mse", EVAL),
        "--loss-reduction": Use("--loss-reduction sum", EVAL),
        "--batch-size": Use("--batch-size 7 --loss-reduction sum", f"{EVAL} --loss-reduction sum"),
        "--memory-budget": Use("--memory-budget 1KB", EVAL, "but a step needs"),
        "--metric": Use("--metric categorical_accuracy", EVAL),
        "--json": Use("--json", EVAL),
        **engine(EVAL),
        **look("eval named.tflite shapes"),
    },
    "predict": {
        "--shape": Use(SHAPE, "predict open.circle --input rows.npy", "expected N×4×6"),
        "--fix": Use(GAIN, "predict gained.circle --input x.npy"),
        "--input": Use("--input x.npy", "predict net.circle"),
        "--checkpoint": Use("--checkpoint moved.safetensors", "predict net.circle --input x.npy"),
        "--output": Use("--output out.npy", "predict net.circle --input x.npy"),
        "--batch-size": Use("--batch-size 0", NAME, "no whole number"),
        "--top": Use("--top 2", NAME),
        "--tokenizer": Use("--tokenizer vocab.txt", NAME, "is for texts"),
        "--json": Use("--json", NAME),
        **look(NAME),
        **engine(NAME),
    },
    "export": {
        "--shape": Use("--shape x=3x6", "export net.circle --checkpoint moved.safetensors out.tflite", "does not belong"),
        "--verify": Use("--verify", "export net.circle --checkpoint moved.safetensors out.tflite"),
        "--fix": Use("--fix gain=2", "export net.circle --checkpoint moved.safetensors out.tflite", "the model's inputs are x"),
    },
    "quantize": {
        "--shape": Use("--shape x=3x6", f"{SHIP} --scheme float16"),
        "--fix": Use(GAIN, f"{SHIP} --scheme float16".replace("net.tflite", "gained.circle")),
        "--calibration": Use("--calibration x.npy", SHIP),
        "--scheme": Use("--scheme int16x8", INTEGERS),
        "--io": Use("--io float32", INTEGERS),
        "--ranges": Use("--ranges minmax", INTEGERS),
        "--samples": Use("--samples 3", INTEGERS),
        "--validation": Use("--validation x.npy y.npy", INTEGERS),
        "--loss": Use("--loss sparse_categorical_crossentropy", f"{INTEGERS} --validation x.npy labels.npy"),
        "--metric": Use("--metric categorical_crossentropy", JUDGED, "metric"),
        "--tolerance": Use("--tolerance 0", COARSE, "where 0 is allowed"),
        "--on-loss": Use("--on-loss warn", JUDGED, "goes with --tolerance"),
    },
    **{f"federate {what}": {
        "--clients": Use("--clients 0", f"federate {what} nowhere", "no whole number"),
    } for what in ("run", "deploy")},
    "doctor": {"--json": Use("--json", "doctor")},
}  # fmt: skip
