"""State that a model, or its loss, carries from call to call outside its buffers: a graph has what the first call saw.

Before a model is traced it is called several times, as it is. A call that follows others must give what it gives as the
first one: outputs, loss and buffers. Counters that only a log reads and tables that are filled when they are first
needed change nothing in that, and may stay.
"""

import contextlib
import io
import itertools
import random
import sys
import warnings
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import ExportError
from .held_state import HeldState, Place
from .places import line_here
from .replaced_tensors import replaced_tensors

# Larger models would take minutes.
_MOST_PARAMETERS = 500_000_000
# How far calls that begin alike may be apart, by the order in which a kernel's threads add.
_TOLERANCE = 1e-4
# After so many calls more, a branch on a counter may have gone the other way: a warm-up is over, or one call in ten,
# a hundred or a power of two is another one.
_LATER = (999, 1000, 1023, 1024, 1_000_000)
_NAMED = 3


class ModelAndLoss(nn.Module):
    """What is called."""

    def __init__(self, model: nn.Module, loss: Callable):
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, args: tuple, kwargs: dict, target: object) -> tuple:
        output = self.model(*args, **kwargs)
        return output, self.loss(output, target)


def refuse_hidden_state(model: nn.Module, loss: Callable, example: tuple, batch_dim: int) -> None:
    """ExportError if what forward, or the loss, leaves behind in Python changes what a later call gives.

    example: arguments, keyword arguments and target, samples first. The model is in training mode. It is left as it
    was, and is not judged where it has no data, is very large, or fails by itself.
    """
    calls = _Calls(ModelAndLoss(model, loss), example, batch_dim)
    held = HeldState([*calls.module.modules()])
    try:
        if calls.can_run():
            with silent():
                _compare(calls, held)
    except ExportError:
        raise
    except Exception:
        return  # Tracing says what is wrong.
    finally:
        held.restore()


class _Calls:
    """Calls with the same parameters, buffers and random numbers each."""

    def __init__(self, module: ModelAndLoss, example: tuple, batch_dim: int):
        self.module = module
        self._batches = [_moved(_another(example), batch_dim), _moved(example, batch_dim)]

    def can_run(self) -> bool:
        tensors = [*self.module.parameters(), *self.module.buffers()]
        virtual = any(t.device.type != "cpu" or isinstance(t, FakeTensor) for t in tensors)
        return not virtual and sum(tensor.numel() for tensor in tensors) <= _MOST_PARAMETERS

    def __call__(self, other: bool = False) -> list[torch.Tensor]:
        """Outputs, loss and new buffers for the example, or for other samples."""
        batch = pytree.tree_map_only(torch.Tensor, torch.clone, self._batches[0 if other else 1])
        with same_random_numbers(), replaced_tensors(self.module.modules(), _copy):
            results = self.module(*batch)
            buffers = [*self.module.buffers()]
        tensors = [leaf for leaf in _leaves(results) if isinstance(leaf, torch.Tensor)]
        return [tensor.detach() for tensor in (*tensors, *buffers)]


def _compare(calls: _Calls, held: HeldState) -> None:
    first = held.numbers()
    calls(other=True)
    second = held.numbers()
    later = calls()
    left = held.changed()
    third = held.numbers()
    counters = {place: first.get(place, n) for place, n in second.items() if third.get(place, n) != n}
    held.restore()
    fresh = calls()
    if not _close(fresh, later) or (not _equal(fresh, later) and _differ_again(calls, held, fresh)):
        raise _refusal(calls, held, left)
    for calls_later in _LATER if counters else ():
        held.restore()
        values = {place: value + calls_later for place, value in counters.items()}
        held.put(values)
        if not _runs_alike(calls, fresh):
            raise _refusal(calls, held, values)


def _differ_again(calls: _Calls, held: HeldState, fresh: list[torch.Tensor]) -> bool:
    """Whether a small difference is one of state: threads and compilers that warm up make others at other times."""
    held.restore()
    again = calls()
    held.restore()
    calls(other=True)
    return _equal(fresh, again) and not _equal(fresh, calls())


def _runs_alike(calls: _Calls, fresh: list[torch.Tensor]) -> bool:
    try:
        return _close(fresh, calls())
    except Exception:
        return True  # What it does with such a number is no evidence.


def _refusal(calls: _Calls, held: HeldState, left: dict[Place, object]) -> ExportError:
    """Names what makes the difference, of what calls have left behind, and the line at which it first shows."""
    held.restore()
    fresh = calls()
    names = []
    for place, value in left.items():
        held.restore()
        held.put({place: value})
        if not _runs_alike(calls, fresh):
            names.append(held.name(place))
    held.restore()
    line = _first_difference(calls, lambda: held.put(left) if names else calls(other=True))
    if not names:
        return ExportError(
            f"forward, called again on the same inputs, gives something else{line}: every step would compute with what "
            "it read at export. Pass times and random numbers as inputs of the model, and keep what changes from step to "
            "step in a buffer (self.register_buffer)"
        )
    listed = ", ".join(f"'{name}'" for name in list(dict.fromkeys(names))[:_NAMED])
    return ExportError(
        f"forward changes {listed}, and computes something else with it on later calls{line}: every step would compute "
        f"with what was there at export. State that a module carries from one step to the next must be a buffer of it, "
        f'self.register_buffer("{names[0]}", torch.tensor(...)), changed by operators on tensors'
    )


def _first_difference(calls: _Calls, go_on: Callable[[], object]) -> str:
    """The line of the first operator with other results, after `go_on` has changed the state."""
    first = _Results([])
    with first:
        calls()
    go_on()
    second = _Results(first.seen)
    with second:
        calls()
    return second.line


class _Results(TorchDispatchMode):
    """Notes the results of operators, and the line of the first that differ from those given."""

    def __init__(self, expected: list[tuple]):
        super().__init__()
        self.seen: list[tuple] = []
        self.line = ""
        self._expected = expected

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        tensors = [t.detach().clone() for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        position = len(self.seen)
        self.seen.append((func, tensors))
        if not self.line and position < len(self._expected):
            other, expected = self._expected[position]
            if other is not func or not (_equal(expected, tensors) or "empty" in str(func)):
                self.line = line_here()
        return result


def _equal(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    return _agree(a, b, lambda x, y: torch.equal(x, y) or torch.allclose(x, y, rtol=0, atol=0, equal_nan=True))


def _close(a: list[torch.Tensor], b: list[torch.Tensor]) -> bool:
    rounding = torch.finfo(torch.float32).eps * max(map(_size, a), default=0.0)

    def near(x: torch.Tensor, y: torch.Tensor) -> bool:
        if not x.is_floating_point() and not x.is_complex():
            return torch.equal(x, y)
        tolerance = max(_TOLERANCE, 16 * torch.finfo(x.dtype).eps)
        return torch.allclose(x, y, rtol=tolerance, atol=tolerance * _size(x) + rounding, equal_nan=True)

    return _agree(a, b, near)


def _size(tensor: torch.Tensor) -> float:
    """The largest number in it, of those that are not whole."""
    if not tensor.is_floating_point() and not tensor.is_complex():
        return 0.0
    finite = tensor[tensor.isfinite()].abs()
    return float(finite.max()) if finite.numel() else 0.0


def _agree(a: list[torch.Tensor], b: list[torch.Tensor], same: Callable) -> bool:
    return len(a) == len(b) and all(
        x.shape == y.shape and x.dtype == y.dtype and same(x, y) for x, y in itertools.zip_longest(a, b)
    )


def _leaves(results: object) -> list:
    """Also of data classes that PyTorch does not know."""
    found = []
    for leaf in pytree.tree_leaves(results):
        found += [leaf] if isinstance(leaf, torch.Tensor) or not hasattr(leaf, "__dict__") else vars(leaf).values()
    return found


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    copy = tensor.detach().clone()
    return nn.Parameter(copy, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else copy


def _another(example: tuple) -> tuple:
    """Other samples: all but the last in the next one's place, the first one twice, and real numbers a little less."""

    def shift(tensor: torch.Tensor) -> torch.Tensor:
        shifted = torch.cat([tensor[:1], tensor[:-1]])
        return shifted * 0.97 if tensor.is_floating_point() else shifted

    return pytree.tree_map_only(torch.Tensor, shift, example)


def _moved(example: tuple, batch_dim: int) -> tuple:
    return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.movedim(0, batch_dim), example)


@contextlib.contextmanager
def same_random_numbers() -> Iterator[None]:
    """While open, PyTorch, Python and NumPy draw the same numbers as ever; how they draw is judged elsewhere."""
    of_numpy = sys.modules["numpy"].random if "numpy" in sys.modules else None
    before = random.getstate(), of_numpy.get_state() if of_numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            yield
    finally:
        random.setstate(before[0])
        if of_numpy:
            of_numpy.set_state(before[1])


@contextlib.contextmanager
def silent() -> Iterator[None]:
    """Models that print or warn do so when they are traced."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        yield
