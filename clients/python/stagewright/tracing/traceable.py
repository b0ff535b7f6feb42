"""What PyTorch's tracer cannot follow, done in ways that it can while a model is traced."""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from unittest import mock

import sympy
import torch
import torch.nn.functional as F
from torch import nn
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn.modules import transformer
from torch.overrides import TorchFunctionMode
from torch.utils._sympy.functions import Max, Min


class ForAnyBatch(TorchFunctionMode):
    """Does with symbolic sizes what PyTorch's own functions ask numbers for, and so fix the batch: `x.chunk(n)` of a size
    that n divides, whatever the batch, `x.split(batch)`, `take_along_dim`, `cov`, `corrcoef` and `fill_diagonal_`."""

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        kwargs = kwargs or {}
        result = None
        if func in (torch.chunk, torch.Tensor.chunk):
            result = _even_parts(*args, **kwargs)
        elif func in (torch.split, torch.Tensor.split):
            result = _parts_of_size(*args, **kwargs)
        elif func in (torch.take_along_dim, torch.Tensor.take_along_dim):
            result = _taken_along(*args, **kwargs)
        elif func in (torch.cov, torch.Tensor.cov):
            result = _covariances(*args, **kwargs)
        elif func in (torch.corrcoef, torch.Tensor.corrcoef):
            result = _correlations(*args, **kwargs)
        elif func is torch.Tensor.fill_diagonal_:
            result = _with_diagonal(*args, **kwargs)
        return func(*args, **kwargs) if result is None else result


class KeptSlices(TorchFunctionMode):
    """Makes `x[:n]` an operator where n is all that x has, too: PyTorch leaves it out then, and graphs of several
    lengths would differ."""

    def __torch_function__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        if func is not torch.Tensor.__getitem__ or not isinstance(result, torch.Tensor):
            return result
        for dim, size in _whole_slices(*args):
            result = torch.ops.aten.slice.Tensor(result, dim, 0, size)
        return result


def _whole_slices(input: torch.Tensor, index: object) -> list[tuple[int, int]]:
    """Dimensions of the result that a slice with an end has cut nothing off, with their sizes."""
    index = index if isinstance(index, tuple) else (index,)
    if not all(part is None or part is Ellipsis or isinstance(part, (int, slice)) for part in index):
        return []
    found = []
    source, dim = 0, 0
    for part in index:
        if part is Ellipsis:
            skipped = input.dim() - sum(other is not None and other is not Ellipsis for other in index)
            source, dim = source + skipped, dim + skipped
        elif part is None:
            dim += 1
        elif isinstance(part, slice):
            size = input.shape[source]
            begins = part.start in (None, 0) and part.step in (None, 1)
            if begins and isinstance(size, int) and isinstance(part.stop, int) and part.stop >= size:
                found.append((dim, size))
            source, dim = source + 1, dim + 1
        else:
            source += 1
    return found


def _even_parts(input: torch.Tensor, chunks: int, dim: int = 0) -> tuple[torch.Tensor, ...] | None:
    size = input.shape[dim]
    if not isinstance(size, torch.SymInt) or not _divides(chunks, size):
        return None
    part = size // chunks
    return tuple(input.narrow(dim, i * part, part) for i in range(chunks))


def _parts_of_size(
    tensor: torch.Tensor, split_size_or_sections: object = None, dim: int = 0, *, split_size: object = None
) -> tuple[torch.Tensor, ...] | None:
    part = split_size if split_size_or_sections is None else split_size_or_sections
    size = tensor.shape[dim]
    if not isinstance(part, torch.SymInt) or not isinstance(size, torch.SymInt):
        return None
    parts = sympy.cancel(_of_batch(size) / _of_batch(part))
    return _even_parts(tensor, int(parts), dim) if parts.is_Integer else None


def _taken_along(input: torch.Tensor, indices: torch.Tensor, dim: int | None = None) -> torch.Tensor | None:
    if dim is None or input.dim() != indices.dim() or not -input.dim() <= dim < input.dim():
        return None
    dim %= input.dim()

    def spread(tensor: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        ones = [d for d, size in enumerate(tensor.shape) if d != dim and isinstance(size, int) and size == 1]
        return tensor.expand([other.shape[d] if d in ones else size for d, size in enumerate(tensor.shape)])

    return spread(input, indices).gather(dim, spread(indices, input))


def _covariances(
    input: torch.Tensor, *, correction: int = 1, fweights: torch.Tensor | None = None, aweights: torch.Tensor | None = None
) -> torch.Tensor | None:
    if input.dim() != 2 or input.is_complex() or not isinstance(input.shape[1], torch.SymInt):
        return None
    if fweights is not None or aweights is not None:
        return None
    apart = input - input.mean(1, keepdim=True)
    return (apart @ apart.T / (input.shape[1] - correction)).squeeze()


def _correlations(input: torch.Tensor) -> torch.Tensor | None:
    covariances = _covariances(input)
    if covariances is None or covariances.dim() != 2:
        return None
    deviations = covariances.diagonal().sqrt()
    return (covariances / deviations[:, None] / deviations).clip(-1, 1)


def _with_diagonal(input: torch.Tensor, fill_value: object, wrap: bool = False) -> torch.Tensor | None:
    if input.dim() != 2 or wrap or not any(isinstance(size, torch.SymInt) for size in input.shape):
        return None
    return input.masked_fill_(torch.eye(*input.shape, dtype=torch.bool, device=input.device), fill_value)


def _divides(chunks: int, size: torch.SymInt) -> bool:
    try:
        coefficients = sympy.Poly(_of_batch(size)).coeffs()
    except sympy.PolynomialError:
        return False
    return all(c.is_Integer and int(c) % chunks == 0 for c in coefficients)


def _of_batch(size: torch.SymInt) -> sympy.Expr:
    """A size by the batch: those of several inputs are the same, which the tracer does not know yet."""
    expression = size.node.shape_env.simplify(size.node.expr)
    return expression.subs({symbol: sympy.Symbol("batch") for symbol in expression.free_symbols})


@contextlib.contextmanager
def cumulative_averages() -> Iterator[None]:
    """While open, batch normalisation with `momentum=None` averages its statistics by tensors: by itself it makes a
    number of its counter."""
    norm = nn.modules.batchnorm._BatchNorm
    original = norm.forward

    def forward(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        if self.momentum is not None or not self.training or self.num_batches_tracked is None:
            return original(self, x)
        self._check_input_dim(x)
        with torch.no_grad():
            self.num_batches_tracked.add_(1)
            others = [dim for dim in range(x.dim()) if dim != 1]
            share = 1.0 / self.num_batches_tracked.to(self.running_mean.dtype)
            self.running_mean.add_((x.mean(others) - self.running_mean) * share)
            self.running_var.add_((x.var(others) - self.running_var) * share)
        return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)

    norm.forward = forward
    try:
        yield
    finally:
        norm.forward = original


@contextlib.contextmanager
def idle_conversions() -> Iterator[None]:
    """While open, `module.to(dtype)` in forward leaves a module alone that has this type: by itself it puts every
    parameter anew, which a tracer refuses."""
    original = nn.Module.to

    def to(self: nn.Module, *args: object, **kwargs: object) -> nn.Module:
        wanted = args[0] if len(args) == 1 and not kwargs else kwargs.get("dtype") if not args and len(kwargs) == 1 else None
        tensors = itertools.chain(self.parameters(), self.buffers())
        if isinstance(wanted, torch.dtype) and all(t.dtype == wanted for t in tensors if t.is_floating_point()):
            return self
        return original(self, *args, **kwargs)

    nn.Module.to = to
    try:
        yield
    finally:
        nn.Module.to = original


@contextlib.contextmanager
def unchecked_distributions() -> Iterator[None]:
    """While open, distributions do not look at the values of their parameters, which they only do to refuse some."""
    before = torch.distributions.Distribution._validate_args
    torch.distributions.Distribution.set_default_validate_args(False)
    try:
        yield
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


@contextlib.contextmanager
def masks_as_given() -> Iterator[None]:
    """While open, layers of Transformers attend by the masks they are given. They compare their values with those of a
    causal mask, to take a faster kernel where these are equal."""

    def told(mask: object, is_causal: bool | None = None, size: object = None) -> bool:
        return is_causal is True

    with mock.patch.object(transformer, "_detect_is_causal_mask", told):
        yield


@contextlib.contextmanager
def settled_minima() -> Iterator[None]:
    """While open, `min(8, 96 * batch)` is 8: PyTorch leaves it, and takes what compares it with 8 for a bound on the
    batch."""
    original = ShapeEnv.simplify

    def simplify(self: ShapeEnv, expression: sympy.Basic, *args: object, **kwargs: object) -> sympy.Basic:
        result = original(self, expression, *args, **kwargs)
        settled = {}
        for atom in result.atoms(Min, Max):
            if len(atom.args) == 2:
                difference = self.bound_sympy(atom.args[0] - atom.args[1])
                low, high = atom.args if isinstance(atom, Min) else reversed(atom.args)
                if difference.upper <= 0:
                    settled[atom] = low
                elif difference.lower >= 0:
                    settled[atom] = high
        return original(self, result.xreplace(settled), *args, **kwargs) if settled else result

    with mock.patch.object(ShapeEnv, "simplify", simplify):
        yield
