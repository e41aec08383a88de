"""Formulas that operators declare (`Op.formula`), as programs of the chain kernel.

`mul_imm(div(dy, y), imm=0.5)`: calls are opcodes; names are inputs of the operator or gradient, else its options; `*xs` is
any number of inputs, taken one after the other; `f if name else g` asks whether the option is set, or the input given.
"""

from __future__ import annotations

import ast
from collections.abc import Sequence
from functools import cache, reduce

from circle_train.backends.native.binders.chain import Builder
from circle_train.backends.native.engine.abi import ChainOp
from circle_train.ops.base import Op
from circle_train.record import record


@record
class Formula:
    """What emits an operator's formulas; `inputs` are the builder's values of its inputs."""

    builder: Builder
    op: Op
    inputs: dict[str, int | Sequence[int] | None]

    def emit(self, text: str) -> int:
        """The value of the formula."""
        return self._value(_parsed(text))

    def _value(self, term: ast.expr) -> int:
        if isinstance(term, ast.IfExp):
            return self._value(term.body if self._is_set(term.test) else term.orelse)
        if isinstance(term, ast.Call):
            return self._call(term)
        given = self.inputs.get(term.id) if isinstance(term, ast.Name) else None
        return given if isinstance(given, int) else self.builder.constant(self._number(term))

    def _call(self, term: ast.Call) -> int:
        code = ChainOp[ast.unparse(term.func).upper()]
        imm = next((self._number(keyword.value) for keyword in term.keywords), 0.0)
        if isinstance(term.args[0], ast.Starred):
            values = self.inputs[ast.unparse(term.args[0].value)]
            assert values is not None and not isinstance(values, int)
            if len(values) == 1:
                return self.builder.emit(ChainOp.COPY, values[0])
            return reduce(lambda total, value: self.builder.emit(code, total, value), values)
        return self.builder.emit(code, *[self._value(argument) for argument in term.args], imm=imm)

    def _is_set(self, term: ast.expr) -> bool:
        if isinstance(term, ast.Name) and term.id in self.inputs:
            return self.inputs[term.id] is not None
        return self._number(term) not in (None, False)

    def _number(self, term: ast.expr) -> float:
        number: float = getattr(self.op, term.id) if isinstance(term, ast.Name) else ast.literal_eval(term)
        return number


@cache
def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body
