"""How far trained weights, losses and the changes of weights are from what they should be."""

import dataclasses
import math

import torch

# Below this part of the largest change of any tensor, a change is rounding: gradients that cancel to zero.
NEGLIGIBLE = 1e-2


@dataclasses.dataclass
class Difference:
    """The largest errors, relative to the size of what is off, and where they are."""

    loss: float = 0.0
    value: float = 0.0
    value_at: str = ""
    change: float = 0.0
    change_at: str = ""

    @property
    def largest(self) -> float:
        return max(self.loss, self.value, self.change)

    def __str__(self) -> str:
        parts = [
            f"losses off by {self.loss:.1e}" if self.loss > 0 else "",
            f"{self.value_at} by {self.value:.1e}" if self.value > 0 else "",
            f"the change of {self.change_at} by {self.change:.1e}" if self.change > 0 else "",
        ]
        return ", ".join(part for part in parts if part) or "none"

    def add(self, other: "Difference") -> None:
        self.loss = max(self.loss, other.loss)
        if other.value > self.value:
            self.value, self.value_at = other.value, other.value_at
        if other.change > self.change:
            self.change, self.change_at = other.change, other.change_at


def compare_losses(found: list[float], expected: list[float]) -> Difference:
    """Of every step."""
    errors = [
        abs(a - b) / max(abs(b), 1e-6) if math.isfinite(a) else math.inf for a, b in zip(found, expected, strict=True)
    ]
    return Difference(loss=max(errors, default=0.0))


def compare_states(found: dict, expected: dict, before: dict) -> Difference:
    """Tensors of the same names, all of them: values, and what training changed of them."""
    worst = Difference()
    largest = max(
        (_size(expected[name] - before[name]) for name in expected if _is_number(expected[name])), default=0.0
    )
    for name, right in expected.items():
        value = found[name]
        if not _is_number(right):
            if not torch.equal(value, right):
                worst.add(Difference(value=1.0, value_at=name, change=1.0, change_at=name))
            continue
        off, size, change = _size(value - right), _size(right), _size(right - before[name])
        rounding = 2 * torch.finfo(right.dtype).eps * size
        worst.add(
            Difference(
                value=off / max(size, largest, 1e-30),
                value_at=name,
                change=max(0.0, off - rounding) / max(change, NEGLIGIBLE * largest, 1e-30),
                change_at=name,
            )
        )
    return worst


def _is_number(tensor: torch.Tensor) -> bool:
    return tensor.is_floating_point() or tensor.is_complex()


def _size(tensor: torch.Tensor) -> float:
    """The largest absolute value; infinite where one is not a number."""
    if tensor.numel() == 0:
        return 0.0
    size = tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).abs().max().item()
    return size if math.isfinite(size) else math.inf
