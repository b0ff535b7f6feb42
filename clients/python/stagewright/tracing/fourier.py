"""Fourier transforms over dimensions of fixed sizes, as products with matrices that the graph holds.

A complex vector of n numbers is a real one of 2n; so every transform along one dimension is one product with a real
matrix: of 2n x 2m elements, n x 2m for a real vector, 2n x m for a real result. Several dimensions follow each other.
"""

import dataclasses
import math
from collections.abc import Callable

import torch
from torch import fx

from ..errors import ExportError
from .pairs import Pairs, real_type
from .places import describe

aten = torch.ops.aten

# A matrix of twice as many rows and columns, in single precision, takes 64 MiB.
_LONGEST = 2048


@dataclasses.dataclass(frozen=True)
class _Step:
    """The transform along one dimension: `entries` numbers are given, `length` are transformed."""

    entries: int
    length: int
    inverse: bool
    real_input: bool
    real_result: bool
    # Half the frequencies say all: a real vector is transformed, or is the result.
    half: bool
    scale: float

    def matrix(self, dtype: torch.dtype) -> torch.Tensor:
        """What a row of parts is multiplied by."""
        frequencies = self.length // 2 + 1 if self.half else self.length
        given, results = (frequencies, self.length) if self.real_result else (self.length, frequencies)
        places = torch.outer(torch.arange(given), torch.arange(results)) % self.length
        angles = places.to(torch.float64) * ((2 if self.inverse else -2) * math.pi / self.length)
        waves = torch.polar(torch.full_like(angles, self.scale), angles)
        if self.real_result:  # All but the first and, of an even length, the last frequency stand for two.
            waves[1 : (self.length + 1) // 2] *= 2
        rows = waves.new_zeros(self.entries, results)  # Entries behind the length do not count; missing ones are zero.
        kept = min(self.entries, given)
        rows[:kept] = waves[:kept]
        if self.real_result:
            return torch.stack([rows.real, -rows.imag], dim=1).flatten(0, 1).to(dtype)
        of_real = torch.view_as_real(rows)
        if self.real_input:
            return of_real.flatten(1).to(dtype)
        of_imaginary = torch.view_as_real(rows * 1j)
        return torch.stack([of_real, of_imaginary], dim=1).flatten(2).flatten(0, 1).to(dtype)


def _transform(inverse: bool, real: bool) -> Callable[[Pairs, dict], fx.Node]:
    """real: the side that is not in frequencies is real."""

    def rule(p: Pairs, call: dict) -> fx.Node:
        source = call["self"]
        dims, lengths = _dimensions(p, call, source)
        order = list(zip(dims, lengths))
        if real and not inverse:
            order.reverse()  # The real one first.
        value = p.of[source] if p.is_complex(source) else _floating(p, source)
        paired = p.is_complex(source)
        if real and inverse and not paired:
            value, paired = p.pair(value, p.call(aten.zeros_like.default, value)), True
        for place, (dim, length) in enumerate(order):
            halved = real and place == (len(order) - 1 if inverse else 0)
            entries = _entries(p, source, dim)
            if length is None:
                length = 2 * (entries - 1) if halved and inverse else entries
            _check_length(p, length)
            result_real = halved and inverse
            scale = _scale(call["norm"], inverse, length)
            step = _Step(entries, length, inverse, not paired, result_real, halved, scale)
            value = _apply(p, value, step, dim, p.rank(source))
            paired = not result_real
        return value

    return rule


def _floating(p: Pairs, source: fx.Node) -> fx.Node:
    return p.as_type(source, real_type(p.like.meta["val"].dtype))


def _dimensions(p: Pairs, call: dict, source: fx.Node) -> tuple[list[int], list[int | None]]:
    """The dimensions to transform, and the lengths asked for."""
    rank = p.rank(source)
    if "n" in call:
        return [call["dim"] % rank], [call["n"]]
    lengths, dims = call["s"], call["dim"]
    if dims is None:
        dims = range(rank) if lengths is None else range(rank - len(lengths), rank)
    lengths = [None] * len(dims) if lengths is None else [None if n == -1 else n for n in lengths]
    return [dim % rank for dim in dims], lengths


def _entries(p: Pairs, source: fx.Node, dim: int) -> int:
    size = source.meta["val"].shape[dim]
    if not isinstance(size, int):
        raise ExportError(f"{describe(p.like)}: a Fourier transform over the batch, or a size that depends on it")
    return size


def _check_length(p: Pairs, length: object) -> None:
    if not isinstance(length, int):
        raise ExportError(f"{describe(p.like)}: a Fourier transform of a length that depends on the batch")
    if length > _LONGEST:
        raise ExportError(f"{describe(p.like)}: Fourier transforms become matrices, so {_LONGEST} numbers are the most")


def _scale(norm: str | None, inverse: bool, length: int) -> float:
    if norm == "ortho":
        return 1.0 / math.sqrt(length)
    return 1.0 / length if (norm == "forward") != inverse else 1.0


def _apply(p: Pairs, value: fx.Node, step: _Step, dim: int, rank: int) -> fx.Node:
    dtype = value.meta["val"].dtype
    last = rank - 1
    if dim != last:
        value = p.call(aten.movedim.int, value, dim, last)
    if not step.real_input:
        value = p.call(aten.flatten.using_ints, value, last, last + 1)
    matrix = p.constant((step, dtype), lambda: step.matrix(dtype), "fourier", p.like)
    value = p.call(aten.matmul.default, value, matrix)
    if not step.real_result:
        value = p.call(aten.unflatten.int, value, last, [-1, 2])
    return value if dim == last else p.call(aten.movedim.int, value, last, dim)


def _shift(back: bool) -> Callable[[Pairs, dict], fx.Node]:
    def rule(p: Pairs, call: dict) -> fx.Node:
        rank = p.rank(call["self"])
        dims = [dim % rank for dim in (range(rank) if call["dim"] is None else call["dim"])]
        sizes = [_entries(p, call["self"], dim) for dim in dims]
        return p.call(aten.roll.default, p.of[call["self"]], [(n + 1) // 2 if back else n // 2 for n in sizes], dims)

    return rule


TRANSFORMS: dict[str, Callable[[Pairs, dict], fx.Node]] = {
    f"fft_{'i' * inverse}{'r' * real}fft{several}": _transform(inverse, real)
    for inverse in (False, True)
    for real in (False, True)
    for several in ("", "2", "n")
}
TRANSFORMS |= {"fft_fftshift": _shift(back=False), "fft_ifftshift": _shift(back=True)}
