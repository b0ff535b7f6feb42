"""Integers that depend on the batch, as scale * samples + offset."""

import dataclasses

import sympy
import torch

from .errors import ExportError
from .proto import pb


@dataclasses.dataclass(frozen=True)
class Batch:
    """The one symbol of a captured graph: the number of samples."""

    symbol: sympy.Symbol | None
    shape_env: object = None

    def affine(self, value: int | torch.SymInt, where: str) -> tuple[int, int]:
        """(scale, offset) of `value`; ExportError naming `where` and the expression if it has none."""
        if isinstance(value, int):
            return 0, int(value)
        expression = value.node.expr
        if self.shape_env is not None:
            expression = self.shape_env.simplify(expression)
        if expression.is_Integer:
            return 0, int(expression)
        if self.symbol is not None and expression.free_symbols == {self.symbol}:
            try:
                polynomial = sympy.Poly(expression, self.symbol)
            except sympy.PolynomialError:
                polynomial = None
            if polynomial is not None and polynomial.degree() <= 1:
                scale, offset = polynomial.coeff_monomial(self.symbol), polynomial.coeff_monomial(1)
                if scale.is_Integer and offset.is_Integer:
                    return int(scale), int(offset)
        readable = expression.subs(self.symbol, sympy.Symbol("batch")) if self.symbol is not None else expression
        raise ExportError(
            f"{where}: the size {readable} is not of the form scale * batch + offset; "
            "only sizes that are constant or proportional to the number of samples can be run in micro-batches"
        )

    def to_proto(self, value: int | torch.SymInt, where: str) -> "pb.SymInt":
        scale, offset = self.affine(value, where)
        return pb.SymInt(scale=scale, offset=offset)
