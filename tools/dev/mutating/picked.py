"""Mistakes picked by hand, each with the tests of the families that it could hurt (see mutants.py)."""

from __future__ import annotations

from dataclasses import dataclass

OPS = (
    "tests/ops/test_attributes.py",
    "tests/ops/test_ops.py",
    "tests/ops/test_ops_gradient.py",
    "tests/ops/test_ops_windows.py",
)
TRAIN = (
    "tests/passes/test_passes.py",
    "tests/session/test_session.py",
    "tests/losses/test_losses.py",
    "tests/optimizers/test_optimizers.py",
    "tests/compile/test_memory.py",
)
MEMORY = (
    "tests/compile/test_memory.py",
    "tests/compile/test_memory_recompute.py",
    "tests/compile/test_memory_masks.py",
)
KEPT = ("tests/runtime/test_kept.py", "tests/compile/test_separable.py")
RESUMED = ("tests/checkpoints/test_resume.py",)
CONVERT = (
    "tests/convert/test_convert_nodes.py",
    "tests/convert/test_convert_shapes.py",
    "tests/convert/test_convert_patterns.py",
    "tests/convert/test_convert_writeback.py",
    "tests/convert/test_convert.py",
)
KERNELS = ("tests/backends/kernels", "tests/backends/test_backends.py")


@dataclass(frozen=True)
class Mutant:
    """`old` becomes `new` in `path`; `tests` should notice."""

    what: str
    path: str
    old: str
    new: str
    tests: tuple[str, ...]


MUTANTS = (
    Mutant("gradient of MUL × 1.01", "ops/numeric/arithmetic.py", "return dy * x2\n", "return dy * x2 * 1.01\n", OPS),
    Mutant("sign of SUB's second gradient", "ops/numeric/arithmetic.py", "return -dy\n", "return dy\n", OPS),
    Mutant("DIV's second gradient", "ops/numeric/arithmetic.py", "(x2 * x2)", "x2", OPS),
    Mutant("RELU6's upper bound", "ops/attributes.py", "Activation.RELU6: (0.0, 6.0)", "Activation.RELU6: (0.0, 5.0)", OPS),
    Mutant("gradient of a fused TANH", "ops/attributes.py", "dy * (1 - y * y)", "dy * (1 - y)", OPS),
    Mutant("SAME puts the odd zero in front", "ops/attributes.py", "return total // 2, (total + 1) // 2",
           "return (total + 1) // 2, total // 2", (*OPS, "tests/peers/test_onert_golden.py")),
    Mutant("VALID counts one position more", "ops/attributes.py", "(size - window + 1)", "(size - window + 2)", OPS),
    Mutant("broadcast axes are not summed", "ops/internal/gradient.py", "array.sum(axis=axes, keepdims=True)",
           "array.mean(axis=axes, keepdims=True)", (*OPS, *TRAIN)),
    Mutant("softmax cross-entropy gradient × 1.01", "ops/internal/loss.py", "dy[..., None] * (", "dy[..., None] * 1.01 * (",
           (*OPS, *TRAIN)),
    Mutant("a lifetime ends one step early", "ir/lifetimes.py", "t: step for step, node", "t: step - 1 for step, node", TRAIN),
    Mutant("kept tensors are not kept", "ir/lifetimes.py", "(tensor, len(graph.nodes)) for tensor in keep",
           "(tensor, 0) for tensor in ()", TRAIN),
    Mutant("blocks that touch in time may overlap", "compile/memory.py", "(first[:count] <= block.last) & (last[:count] >= block.first)",
           "(first[:count] < block.last) & (last[:count] > block.first)", TRAIN),
    Mutant("a changed weight is read again", "compile/thrift/recompute.py", "since < s < self.step for s in", "False for s in", MEMORY),
    Mutant("what is made again reads what was dropped", "compile/thrift/recompute.py", "is self.block:\n            return False\n",
           "is self.block:\n            return True\n", MEMORY),
    Mutant("a budget forgets the sums of gradients", "compile/program.py", 'key.kind != "value"',
           'key.kind not in ("value", "gradient")', MEMORY),
    Mutant("bits take RELU6's bound for inside", "ops/internal/active_bits.py", "(y < self.high)", "(y <= self.high)", MEMORY),
    Mutant("bits of what lives anyway", "backends/native/fusion/masks.py", "== set(masks)", ">= set(masks)", MEMORY),
    Mutant("a second gradient replaces the first", "compile/autodiff.py",
           "gradient if so_far is None else graph.emit(Add(), so_far, gradient, name=f\"d({x.name})\")", "gradient", TRAIN),
    Mutant("the fused activation is not undone", "compile/autodiff.py", "    if node.op.activation:\n", "    if False:\n", TRAIN),
    Mutant("influence ignores where gradients stop", "ops/internal/gradient.py", "not node.op.stops_gradient and not influenced", "not influenced", TRAIN),
    Mutant("an update waits for nobody", "passes/schedule.py", "max([*makers, *others, guarded]", "max([*makers, guarded]", TRAIN),
    Mutant("last n counts one too many", "settings/parameters.py", "range(max(operators - count, 0), operators)",
           "range(max(operators - count - 1, 0), operators)", TRAIN),
    Mutant("tied weights are separate", "passes/shared.py", "if chosen is tensor:", "if True:", TRAIN),
    Mutant("Adam forgets its bias correction", "optimizers/rules.py", "sqrt(1 - beta_2**step)", "sqrt(1 - beta_2)", TRAIN),
    Mutant("the step count stands still", "runtime/state.py", "self.step += updates", "self.step += 0",
           (*TRAIN, "tests/peers/test_onert_golden.py")),
    Mutant("the partial batch counts as a full one", "fitting/average.py", "* count\n", "* 1\n", TRAIN),
    Mutant("the shuffle forgets the epoch", "data/dataset.py", "default_rng([seed, epoch])", "default_rng([seed])",
           (*TRAIN, "tests/datasets/test_data.py")),
    Mutant("validation takes the head", "data/dataset.py", "return Dataset(*self.take(slice(0, count)))",
           "return Dataset(*self.take(slice(count, None)))", (*TRAIN, "tests/datasets/test_data.py")),
    Mutant("the mean loss divides by one", "losses/symbol.py", "return self._reduce(Mean(keep_dims=keepdims), axis)", "return self._reduce(Sum(keep_dims=keepdims), axis)", TRAIN),
    Mutant("export forgets the new weights", "runtime/module.py", "fresh[root.buffer] =", "fresh[Buffer()] =", TRAIN),
    Mutant("results are kept that another batch would round otherwise", "compile/prefix.py",
           "if not keep.is_steady(node, batch)", "if False", KEPT),
    Mutant("kept results outlive frozen weights", "runtime/kept.py", "if weights != self.weights:", "if False:", KEPT),
    Mutant("kept results outlive the arrays", "runtime/kept.py", "(now != self.seen[places]).any(1)", "(now != now).any(1)", KEPT),
    Mutant("samples are joined", "compile/separable.py", "if first != ([0] if tensor in whole else []):", "if False:",
           (*KEPT, "tests/compile/test_separable.py")),
    Mutant("a resumed epoch begins its sums anew", "fitting/course.py", "self.average = average\n", "pass\n", RESUMED),
    Mutant("a resumed fit tells everybody again", "fitting/course.py", "list(telling[\"told\"])", "[]", RESUMED),
    Mutant("callbacks wake with nothing", "fitting/callback.py", "setattr(self, name, remembered[name])", "pass", RESUMED),
    Mutant("a resumed fit goes beyond its end", "session/fit.py", "epochs if is_over else state.epoch", "state.epoch", RESUMED),
    Mutant("a NaN loss passes", "ops/internal/gradient.py", "if not np.isfinite(value).all():", "if False:", TRAIN),
    Mutant("setting a parameter is lost", "runtime/weights.py", "np.copyto(here, inner)", "pass", TRAIN),
    Mutant("from_logits takes softmax twice", "losses/cross_entropy.py", "logits.apply(SoftmaxCrossEntropy(), target)", "logits.apply(CrossEntropy(), target)",
           (*TRAIN, "tests/peers/test_onert_golden.py")),
    Mutant("an offset beyond the file is believed", "format/flatbuffer/decode.py", "self.size = len(self.buffer)", "self.size = len(self.buffer) + 64", ("tests/format/test_format.py", "tests/format/test_contradictions.py")),
    Mutant("Gemm forgets beta", "convert/handlers/numeric/linear.py", "scaled(b, bias, beta))", "bias)", CONVERT),
    Mutant("batch normalisation by another epsilon", "convert/handlers/layers/norm.py",
           'BatchNorm(c.attr("epsilon", 1e-5)', 'BatchNorm(2 * c.attr("epsilon", 1e-5)', CONVERT),
    Mutant("the way back of a transpose is the way there", "convert/building/provenance.py",
           "np.argsort(self.permutation).tolist()", "self.permutation", CONVERT),
    Mutant("an average pool counts its padding", "convert/handlers/layers/pool.py",
           'bool(c.attr("count_include_pad", 0))', "True", CONVERT),
    Mutant("a norm's epsilon is left out", "backends/native/kernels/elementwise/norm.cpp",
           "std::sqrt(variance + t.eps)", "std::sqrt(variance)", KERNELS),
    Mutant("softmax forgets beta", "backends/native/kernels/elementwise/softmax.cpp", "- top) * beta)", "- top))", KERNELS),
    Mutant("an index from the end is one off", "backends/native/kernels/elementwise/gather.cpp",
           "index + t.rows : index", "index + t.rows - 1 : index", KERNELS),
    Mutant("an index behind the end is read", "backends/native/kernels/elementwise/gather.cpp", "*row < t.rows", "*row <= t.rows", KERNELS),
    Mutant("a fill leaves out its last piece's end", "backends/native/kernels/elementwise/copy.cpp",
           "std::min(end * kPiece, t.size), t.value_bits", "std::min(end * kPiece, t.size - 1), t.value_bits", KERNELS),
)  # fmt: skip
