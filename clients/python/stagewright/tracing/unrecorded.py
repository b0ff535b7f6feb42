"""What no graph records of a model: hooks on gradients, gradients of earlier steps, backward passes, random numbers of Python's and NumPy's, packed
sequences. None is dropped in silence."""

import contextlib
import itertools
import random
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from unittest import mock

import torch
from torch import nn
from torch.autograd import graph
from torch.nn.modules import module as _of_modules
from torch.nn.utils import rnn

from ..errors import ExportError
from .places import is_users, line_here

# What registers hooks on gradients.
_REGISTER = {
    torch.Tensor: ("register_hook", "register_post_accumulate_grad_hook"),
    nn.Module: ("register_backward_hook", "register_full_backward_hook", "register_full_backward_pre_hook"),
    _of_modules: ("register_module_full_backward_hook", "register_module_full_backward_pre_hook"),
}
# The parts of PyTorch that compute with gradients; others only hand them on.
_USE_GRADIENTS = ("torch.nn.utils.", "torch.optim.")


def refuse_backward_hooks(*modules: nn.Module) -> None:
    """Those that a model, or its loss, has before it runs, and those of all modules."""
    if _of_modules._global_backward_hooks or _of_modules._global_backward_pre_hooks:
        raise ExportError("all modules have a backward hook, which a graph cannot hold; remove it before export")
    hooked = []
    for name, module in _named(modules, nn.Module.named_modules):
        if module._backward_hooks or module._backward_pre_hooks:
            hooked.append(name)
    for name, parameter in _named(modules, nn.Module.named_parameters):
        if parameter._backward_hooks or parameter._post_accumulate_grad_hooks:
            hooked.append(name)
    if hooked:
        raise ExportError(f"'{hooked[0]}' has a backward hook, which a graph cannot hold; remove it before export")


def _named(modules: tuple[nn.Module, ...], named: Callable) -> Iterator[tuple[str, object]]:
    return itertools.chain.from_iterable(map(named, modules))


@contextlib.contextmanager
def refused_hooks() -> Iterator[None]:
    """While open, nothing takes hooks on its gradients, nor functions around what a backward pass keeps."""

    def register(*args: object, **kwargs: object) -> None:
        raise ExportError(
            f"forward registers a hook on a gradient{line_here()}, which a graph cannot hold; compute what it does in forward"
        )

    init = graph.saved_tensors_hooks.__init__

    def keep(self: graph.saved_tensors_hooks, *functions: Callable) -> None:
        if type(self) is graph.saved_tensors_hooks:  # Those of PyTorch, as for checkpoints, give back what was kept.
            raise ExportError(
                f"forward puts functions around what the backward pass keeps{line_here()}, which a graph cannot hold; the "
                "plan decides where activations are, so leave them out"
            )
        init(self, *functions)

    with contextlib.ExitStack() as stack:
        for holder, names in _REGISTER.items():
            for name in names:
                stack.enter_context(mock.patch.object(holder, name, register))
        stack.enter_context(mock.patch.object(graph.saved_tensors_hooks, "__init__", keep))
        yield


@contextlib.contextmanager
def refused_gradients() -> Iterator[None]:
    """While open, the gradients that tensors have from an earlier backward pass are neither read nor set. A graph has
    none, and whether there are some when forward runs is up to the training loop."""
    grad = torch._C.TensorBase.grad

    def refuse() -> None:
        frame = sys._getframe(2)
        if is_users(frame) or frame.f_globals.get("__name__", "").startswith(_USE_GRADIENTS):
            raise ExportError(
                f"forward reads or sets the .grad of a tensor{line_here()}, which a graph does not have; pass what depends "
                "on gradients of earlier steps as an input of the model, or leave it out"
            )

    def read(self: torch.Tensor) -> torch.Tensor | None:
        refuse()
        return grad.__get__(self)

    def put(self: torch.Tensor, value: torch.Tensor | None) -> None:
        refuse()
        grad.__set__(self, value)

    def delete(self: torch.Tensor) -> None:
        refuse()
        grad.__delete__(self)

    with mock.patch.object(torch.Tensor, "grad", property(read, put, delete), create=True):
        yield


@contextlib.contextmanager
def refused_backward() -> Iterator[None]:
    """While open, backward passes are not run: they add to gradients beside the loss's own."""

    def backward(*args: object, **kwargs: object) -> None:
        raise ExportError(
            f"forward runs a backward pass of its own{line_here()}, which a graph cannot hold: workers run one backward "
            "pass, from the loss"
        )

    with mock.patch.object(torch.Tensor, "backward", backward), mock.patch.object(torch.autograd, "backward", backward):
        yield


@contextlib.contextmanager
def noted_escapes() -> Iterator[dict[str, str]]:
    """While open, notes the first line of the user's code for each way past the tracer: torch.autograd.grad, whose
    backward reads values that the tracer does not see, and the `.data` of tensors, which nobody may put others for."""
    lines: dict[str, str] = {}
    grad, data = torch.autograd.grad, torch._C.TensorBase.data

    def noted_grad(*args: object, **kwargs: object) -> object:
        lines.setdefault("torch.autograd.grad", line_here())
        return grad(*args, **kwargs)

    def read(self: torch.Tensor) -> torch.Tensor:
        if is_users(sys._getframe(1)):
            lines.setdefault(".data", line_here())
        return data.__get__(self)

    def put(self: torch.Tensor, value: torch.Tensor) -> None:
        if is_users(sys._getframe(1)):
            raise ExportError(
                f"forward puts other data in the place of a tensor's{line_here()}; only the optimizer may change a "
                "parameter, and other values are computed as new tensors"
            )
        data.__set__(self, value)

    with (
        mock.patch.object(torch.autograd, "grad", noted_grad),
        mock.patch.object(torch.Tensor, "data", property(read, put), create=True),
    ):
        yield lines


@contextlib.contextmanager
def refused_packing() -> Iterator[None]:
    """While open, sequences are not packed: how many rows a packed one has depends on the values of lengths."""

    def pack(*args: object) -> None:
        raise ExportError(
            f"forward packs sequences{line_here()}, so that sizes depend on the values of a tensor; run the recurrent layer "
            "over the padded sequences and take its outputs at the last step of each (gather). One of two directions also "
            "reads the padding: run the other way over sequences that are each turned round within their length"
        )

    with mock.patch.object(rnn, "_packed_sequence_init_args", pack):
        yield


def refuse_own_randomness(trace: Callable[[], object]) -> object:
    """What `trace` gives. ExportError if it draws numbers from the generators of Python or NumPy: the graph has those
    that were drawn, and every step would compute with them."""
    before = _generators()
    result = trace()
    name = next((name for name, state in _generators().items() if state != before[name]), None)
    if name is None:
        return result
    raise ExportError(
        f"forward draws random numbers from {name}{_line_that_draws(trace)}; every step would compute with those drawn "
        "at export: use nn.Dropout, or pass them as an input of the model"
    )


def _generators() -> dict[str, object]:
    """The states of the generators that are shared by a process."""
    states: dict[str, object] = {"Python's random": random.getstate()}
    if "numpy" in sys.modules:
        kind, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy.random"] = (kind, keys.tobytes(), *rest)
    return states


def _line_that_draws(trace: Callable[[], object]) -> str:
    """Runs `trace` once more and looks at every function that is called."""
    lines: list[str] = []

    def look(frame: FrameType, event: str, argument: object) -> None:
        if event == "c_call" and getattr(argument, "__self__", None) is random._inst:
            lines.append(line_here())

    previous = sys.getprofile()
    with _watched_numpy(lambda: lines.append(line_here())):
        sys.setprofile(look)
        try:
            trace()
        except Exception:
            pass  # It may take another way with other numbers.
        finally:
            sys.setprofile(previous)
    return lines[0] if lines else ""


@contextlib.contextmanager
def _watched_numpy(called: Callable[[], None]) -> Iterator[None]:
    """While open, functions of numpy.random tell when they are called; the profiler does not see them."""
    numpy_random = sys.modules.get("numpy.random")

    def watched(function: Callable) -> Callable:
        def call(*args: object, **kwargs: object) -> object:
            called()
            return function(*args, **kwargs)

        return call

    with contextlib.ExitStack() as stack:
        for name, value in vars(numpy_random).copy().items() if numpy_random else ():
            if name.islower() and getattr(value, "__self__", None) is numpy_random.mtrand._rand:
                stack.enter_context(mock.patch.object(numpy_random, name, watched(value)))
        yield
