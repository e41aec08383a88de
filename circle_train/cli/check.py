"""`circle-train check`: can it be trained, and what does each choice cost?"""

from __future__ import annotations

import argparse

from circle_train.cli.runs.look import LOOK, add_look
from circle_train.cli.runs.samples import BELONGS, add_kind, samples_of
from circle_train.cli.settings import (
    ACTIVATIONS_HELP,
    add_json,
    add_shapes,
    load_model,
    print_json,
    refuse_idle,
    told,
)
from circle_train.errors import ConfigError
from circle_train.finetuning.choosing.budget import Budget, parse_budget
from circle_train.finetuning.choosing.choice import as_data
from circle_train.finetuning.choosing.choose import choose
from circle_train.finetuning.choosing.contest import LOG
from circle_train.printable import brief, printable
from circle_train.report.plan import count, size, table
from circle_train.session.foresight import (
    Choice,
    ConstantCheck,
    OperatorCheck,
    choices,
    constant_checks,
    nothing_to_train,
    operator_checks,
)
from circle_train.settings.config import Activations

SHOWN = 24
"""Names of parameters; --json has all, and whole."""
BATCH, OPTIMIZER, LOSS = 32, "adam", "mean_squared_error"
ALONE = ("batch_size", "optimizer", "activations", "loss")
"""What is said of a model without samples; with them trials find it out."""
WITH_SAMPLES = ("seed", "threads", "kind", *BELONGS, *LOOK)
HEADINGS = (
    *("trainable", "from operator", "parameters", "arena", "kept", "gradients"),
    *("weights", "optimizer", "FLOP", ""),
)
KEPT = "of the arena: kept for the backward part, and gradients of weights (0: each moves its weight as it arises)"
EPILOG = """\
with samples it tries out what is worth training, within a budget:
  circle-train check photos/ --model mobilenet.tflite --budget 150MB,60s
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = "Shows which operators can be trained, and what every last-n choice costs."
    parser.epilog, parser.formatter_class = EPILOG, argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "folder",
        metavar="model",
        help="a .circle, .tflite or .onnx file; with --model, labelled samples as of finetune",
    )
    add_shapes(parser)
    parser.add_argument("--batch-size", type=int, metavar="B", help=f"samples a step (default: {BATCH})")
    parser.add_argument("--optimizer", metavar="O", help=f"whose memory to count (default: {OPTIMIZER})")
    parser.add_argument("--activations", choices=[kind.value for kind in Activations], help=ACTIVATIONS_HELP)
    parser.add_argument("--loss", metavar="L", help=f"loss to differentiate (default: {LOSS})")
    choosing = parser.add_argument_group("with samples")
    choosing.add_argument("--model", metavar="NET", help="the model that is to learn from the samples")
    choosing.add_argument(
        "--budget",
        metavar="SIZE,TIME",
        help="memory of a step and processor time of trials and training, e.g. 150MB,60s (default: no limit)",
    )
    choosing.add_argument("--seed", type=int, metavar="N", help="of the trials' splits (default: 0)")
    choosing.add_argument(
        "--threads", type=int, metavar="N", help="threads to use (default: one for each core)"
    )
    add_kind(parser)
    add_look(parser)
    add_json(parser)
    parser.set_defaults(run=run, augment="auto", validation=None, skip_damaged=False)


def run(options: argparse.Namespace) -> int:
    if options.model is not None:
        return _try_out(options)
    if options.budget is not None:
        raise ConfigError("--budget wants samples: circle-train check FOLDER --model NET --budget 150MB,60s")
    refuse_idle(options, WITH_SAMPLES, "samples: circle-train check FOLDER --model NET")
    model = load_model(options, options.folder)
    operators = operator_checks(model)
    optimizer, batch = (
        options.optimizer or OPTIMIZER,
        BATCH if options.batch_size is None else options.batch_size,
    )
    activations = options.activations or "float32"
    found = choices(model, options.loss or LOSS, optimizer, batch, activations)
    constants = constant_checks(model)
    if options.json:
        print_json(
            {
                "operators": [vars(op) for op in operators],
                "choices": [vars(choice) for choice in found],
                "constants": [vars(constant) for constant in constants],
            }
        )
        return 0
    print("\n".join(operator_table(operators)))
    print("\n".join(constant_lists(constants)))
    rounding = "" if activations == "float32" else f", {activations} activations"
    print(f"\nevery choice of the last operators, batch {batch}, {optimizer}{rounding}:\n")
    print("\n".join(choice_table(found)) if found else f"none: {nothing_to_train(model)}")
    if samples := max((choice.made_for for choice in found), default=0):
        parts = batch // samples
        print(f"\neach batch is taken in {parts} parts of {samples}: the file was made for {samples}")
    return 0


def _try_out(options: argparse.Namespace) -> int:
    """What is worth training on these samples."""
    refuse_idle(options, ALONE, "a model alone, without --model: trials find it out")
    budget = Budget() if options.budget is None else parse_budget(options.budget)
    model, data = load_model(options, options.model), samples_of(options)
    with told(LOG, not options.json):
        choice = choose(
            model, data, memory=budget.memory, seconds=budget.seconds, seed=options.seed or 0, threads=options.threads
        )  # fmt: skip
    if options.json:
        print_json(as_data(choice))
    else:
        print(choice)
    return 0


def operator_table(operators: list[OperatorCheck]) -> list[str]:
    rows = [("op", "operator", "output", "gradients for", "parameters", "")]
    for op in operators:
        gradients = ", ".join(op.differentiable) or "-"
        parameters = ", ".join(map(brief, op.parameters)) or "-"
        rows.append((str(op.index), op.name, brief(op.output), gradients, parameters, op.obstacle))
    return table(rows)


def constant_lists(constants: list[ConstantCheck]) -> list[str]:
    """What trainable="all" trains, and what has to be named."""
    trained = [brief(printable(constant.name)) for constant in constants if constant.trained]
    others = [constant for constant in constants if not constant.trained]
    shown = ", ".join(trained[:SHOWN]) + (f" and {len(trained) - SHOWN} more" if len(trained) > SHOWN else "")
    found = ["", f"trained by 'all': {shown or '-'}"]
    if others:
        found += ["", "constants that are trained only if they are named:", ""]
        rows = [(c.name, "×".join(map(str, c.shape)) or "scalar", c.why_not) for c in others]
        found += table([("constant", "shape", "because it is"), *rows])
    return found


def choice_table(found: list[Choice]) -> list[str]:
    rows: list[tuple[str, ...]] = [HEADINGS]
    for choice in found:
        if choice.refused:
            rows.append((choice.trainable, choice.operator, *"-------", choice.refused))
            continue
        taken = choice.arena_bytes, choice.waiting_bytes, choice.gradient_bytes
        sizes = map(size, (*taken, choice.parameter_bytes, choice.optimizer_bytes))
        rows.append(
            (choice.trainable, choice.operator, f"{choice.parameters:,}", *sizes, count(choice.flops), "")
        )
    return [*table(rows), "", KEPT]
