"""Integers that depend on the batch, as scale * samples + offset."""

import dataclasses

import sympy
import torch
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ..errors import ExportError
from ..proto import pb


@dataclasses.dataclass(frozen=True)
class Batch:
    """The one symbol of a captured graph: the number of samples."""

    symbol: sympy.Symbol | None
    shape_env: object = None
    # How many samples the graph takes at once.
    least: int = 1
    most: int | None = None
    # By expression, as the tracer wrote it: a large graph has few different sizes.
    _known: dict[sympy.Expr, tuple[int, int] | None] = dataclasses.field(default_factory=dict, compare=False)

    def affine(self, value: int | torch.SymInt, where: str) -> tuple[int, int]:
        """(scale, offset) of `value`; ExportError naming `where` and the expression if it has none."""
        found = self.affine_or_none(value)
        if found is not None:
            return found
        expression = self._expression(value)
        if any(symbol_is_type(symbol, SymT.UNBACKED_INT) for symbol in expression.free_symbols):
            raise ExportError(
                f"{where}: how many entries there are depends on the values of a tensor; keep all of them, and choose with "
                "torch.where(mask, a, b) or multiply by the mask"
            )
        readable = expression.subs(self.symbol, sympy.Symbol("batch")) if self.symbol is not None else expression
        raise ExportError(
            f"{where}: the size {readable} is not of the form scale * batch + offset; "
            "only sizes that are constant or proportional to the number of samples can be run in micro-batches"
        )

    def affine_or_none(self, value: int | torch.SymInt) -> tuple[int, int] | None:
        """(scale, offset) of `value` if it has them."""
        if isinstance(value, int):
            return 0, int(value)
        written = value.node.expr
        if written not in self._known:
            self._known[written] = self._decomposed(self._expression(value))
        return self._known[written]

    def _decomposed(self, expression: sympy.Expr) -> tuple[int, int] | None:
        if expression.is_Integer:
            return 0, int(expression)
        if self.symbol is None or expression.free_symbols != {self.symbol}:
            return None
        try:
            polynomial = sympy.Poly(expression, self.symbol)
        except sympy.PolynomialError:
            return None
        if polynomial.degree() > 1:
            return None
        scale, offset = polynomial.coeff_monomial(self.symbol), polynomial.coeff_monomial(1)
        return (int(scale), int(offset)) if scale.is_Integer and offset.is_Integer else None

    def _expression(self, value: torch.SymInt) -> sympy.Expr:
        expression = value.node.expr
        return self.shape_env.simplify(expression) if self.shape_env is not None else expression

    def to_proto(self, value: int | torch.SymInt, where: str) -> "pb.SymInt":
        scale, offset = self.affine(value, where)
        return pb.SymInt(scale=scale, offset=offset)
