"""Autograd functions of a user's own. A tracer sees their forward alone, and so does the engine's autograd; so one is
captured if its backward is the derivative of its forward, which is tried on numbers of many sizes, and else refused."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.utils.checkpoint import CheckpointFunction

from ..errors import ExportError
from .places import line_here, module_here

# Sizes of inputs and of gradients: functions that clip differ from a derivative at one end or the other.
_SIZES = (1.0, 1e-9, 1e-4, 1e4, 0.0)
_GRADIENT_SIZES = (1.0, 1e6)


@dataclasses.dataclass(frozen=True)
class _Argument:
    """What a tensor argument was like while the model was traced."""

    shape: tuple[int, ...]
    dtype: torch.dtype


class FunctionCalls:
    """The calls of autograd functions in a trace, each of which has its own arguments."""

    def __init__(self):
        self._refusals: list[tuple[type, tuple, str]] = []
        self._known: set[tuple] = set()

    def __bool__(self) -> bool:
        return bool(self._refusals)

    def add(self, function: type, args: tuple, refusal: str) -> None:
        call = (function, tuple(_seen(arg) for arg in args))
        try:
            known = call in self._known
            self._known.add(call)
        except TypeError:
            known = False  # An argument that has no hash.
        if not known:
            self._refusals.append((*call, refusal))

    def refuse_other_derivatives(self) -> None:
        """ExportError for the first call of which the backward is not the derivative of its forward."""
        for function, args, refusal in self._refusals:
            if not is_derivative(function, args):
                raise ExportError(refusal) from None


def _seen(arg: object) -> object:
    if not isinstance(arg, torch.Tensor):
        return arg
    shape = tuple(size if isinstance(size, int) else int(size.node.hint or 3) for size in arg.shape)
    return _Argument(shape, arg.dtype)


class _Context:
    """Stands for the context where nothing is kept for a backward."""

    def __init__(self, args: tuple):
        self.needs_input_grad = tuple(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        self.without_gradient: tuple[torch.Tensor, ...] = ()

    def save_for_backward(self, *tensors: torch.Tensor) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *tensors: torch.Tensor) -> None:
        self.without_gradient = tensors

    def set_materialize_grads(self, value: bool) -> None:
        pass


def _forward(function: type, args: tuple) -> object:
    context = _Context(args)
    if function.setup_context is torch.autograd.Function.setup_context:
        results = function.forward(context, *args)
    else:
        results = function.forward(*args)
        function.setup_context(context, args, results)
    if not context.without_gradient:
        return results

    def ended(result: object) -> object:
        return result.detach() if any(result is tensor for tensor in context.without_gradient) else result

    return tuple(map(ended, results)) if isinstance(results, tuple) else ended(results)


@contextlib.contextmanager
def plain_functions(model: nn.Module, calls: FunctionCalls) -> Iterator[None]:
    """While open, a user's autograd functions run their forward only, and `calls` knows what for."""
    original = torch.autograd.Function.__dict__["apply"]

    def apply(cls, *args, **kwargs):
        if cls is CheckpointFunction:
            return _checkpointed(*args)
        if cls.__module__.startswith("torch."):
            return original.__get__(None, cls)(*args, **kwargs)
        module = module_here(model)
        refusal = (
            f"{f'module {module!r}: ' if module else ''}the autograd function {cls.__name__} has its own backward, "
            f"which cannot be captured; compute with differentiable operators instead{line_here()}"
        )
        if kwargs:
            raise ExportError(refusal)
        calls.add(cls, args, refusal)
        return _forward(cls, args)

    torch.autograd.Function.apply = classmethod(apply)
    try:
        yield
    finally:
        torch.autograd.Function.apply = original


def _checkpointed(function: Callable, _: bool, *args: object) -> object:
    """What a reentrant checkpoint computes, which runs without gradients and so would be traced without: with them if
    what it reads has one, as its backward does."""
    differentiable = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    with torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
        return function(*args)


def is_derivative(function: type, args: tuple) -> bool:
    """Whether the backward of `function` is the derivative of its forward, for arguments like `args`."""
    generator = torch.Generator().manual_seed(0)
    try:
        return all(
            _agree(function, args, size, gradient_size, generator)
            for size in _SIZES
            for gradient_size in _GRADIENT_SIZES
        )
    except Exception:  # Its forward is not what autograd can follow, or does not take such numbers.
        return False


def _agree(function: type, args: tuple, size: float, gradient_size: float, generator: torch.Generator) -> bool:
    values = [_number(arg, size, generator) for arg in args]
    found = []
    for run in (lambda v: function.apply(*v), lambda v: _forward(function, tuple(v))):
        copies = [_leaf(value, arg) for value, arg in zip(values, args)]
        with torch.enable_grad():
            results = run(copies)
        leaves = [copy for copy in copies if isinstance(copy, torch.Tensor) and copy.requires_grad]
        found.append(_results_and_gradients(results, leaves, gradient_size))
    return len(found[0]) == len(found[1]) and all(
        torch.allclose(own, plain, rtol=1e-5, atol=1e-5 * _scale(plain), equal_nan=True) for own, plain in zip(*found)
    )


def _number(arg: object, size: float, generator: torch.Generator) -> object:
    if not isinstance(arg, _Argument):
        return arg
    if arg.dtype.is_floating_point:
        return torch.randn(arg.shape, generator=generator, dtype=torch.float64) * size
    return torch.randint(0, 2, arg.shape, generator=generator).to(arg.dtype)


def _leaf(value: object, arg: object) -> object:
    if not isinstance(arg, _Argument):
        return value
    return value.clone().requires_grad_(arg.dtype.is_floating_point)


def _results_and_gradients(results: object, leaves: list[torch.Tensor], size: float) -> list[torch.Tensor]:
    outputs = [t for t in (results if isinstance(results, (tuple, list)) else [results]) if isinstance(t, torch.Tensor)]
    differentiable = [t for t in outputs if t.requires_grad]
    gradients = [torch.linspace(-size, size, t.numel(), dtype=t.dtype).reshape(t.shape) for t in differentiable]
    found = torch.autograd.grad(differentiable, leaves, gradients, allow_unused=True) if differentiable else []
    gradients = [torch.zeros_like(leaf) if g is None else g for leaf, g in zip(leaves, found)]
    return [t.detach().to(torch.float64) for t in (*outputs, *gradients)]


def _scale(tensor: torch.Tensor) -> float:
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0
