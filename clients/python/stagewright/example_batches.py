"""The example batch: which of it are the arguments of `forward`, and which the target."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, IterableDataset, default_collate

from .errors import ExportError
from .samples.loss_forms import NO_TARGET

# Positional arguments, keyword arguments, and the target (None where the batch holds none).
Parts = tuple[tuple, dict, object]
# Takes a batch apart; goes by its structure alone.
Reading = Callable[[object], Parts]

# How many samples of a Dataset make an example batch.
_SAMPLES = 4
# What an entry of a dictionary is called that is the target.
TARGET_NAMES = {"target", "targets", "label", "labels", "y"}


@dataclasses.dataclass(frozen=True)
class Example:
    """An example batch, taken apart."""

    args: tuple
    kwargs: dict
    # None where it has to be derived from the loss.
    targets: object | None
    _batch: object
    _reading: Reading

    def names(self, names: list[str]) -> tuple[str, ...]:
        """Names of the batch's tensors in its own order, given all in the order of arguments and target; names of what
        the batch does not hold come last."""
        leaves, spec = pytree.tree_flatten(self._batch)
        order = pytree.tree_leaves(self._reading(pytree.tree_unflatten(range(len(leaves)), spec)))
        held = [place for place in order if place is not None and isinstance(leaves[place], torch.Tensor)]
        name_at = dict(zip(held, names))
        return tuple([name_at[place] for place in sorted(name_at)] + names[len(held) :])


def read_example(
    data: object, model: nn.Module, reads_target: bool, targets: object | None, runs: Callable[[tuple, dict], bool]
) -> Example:
    """Takes `data`, a batch or a DataLoader or Dataset of batches, apart.

    targets: the target, if it is given beside the batch.
    runs: whether the model runs on these arguments; asked only where the signature of `forward` leaves a choice.
    """
    batch = first_batch(data)
    reading = _all_inputs
    if reads_target and targets is None:
        reading = _choose_reading(batch, model, isinstance(data, (DataLoader, Dataset)), runs)
    args, kwargs, found = reading(batch)
    if not reads_target:
        targets = NO_TARGET
    return Example(args, kwargs, found if targets is None else targets, batch, reading)


def first_batch(data: object) -> object:
    """The first batch of a DataLoader, or one of the first samples of a Dataset; anything else as it is."""
    if isinstance(data, Mapping):
        return dict(data)  # Tokenizers return mappings that are no dictionaries.
    if not isinstance(data, (DataLoader, Dataset)):
        return data
    with torch.random.fork_rng(devices=[]):  # A loader that shuffles draws its seed.
        if isinstance(data, DataLoader):
            for batch in data:
                return first_batch(batch)
        elif isinstance(data, IterableDataset):
            samples = list(itertools.islice(data, _SAMPLES))
        else:
            samples = [data[index] for index in range(min(_SAMPLES, len(data)))]
        if isinstance(data, Dataset) and samples:
            return default_collate(samples)
    raise ExportError(f"the {type(data).__name__} yields no batch")


def _choose_reading(batch: object, model: nn.Module, is_stream: bool, runs: Callable[[tuple, dict], bool]) -> Reading:
    """How to take apart a batch that may hold the target; one of a stream as a rule does."""
    if isinstance(batch, Mapping):
        return _read_mapping(batch, model)
    if not isinstance(batch, (tuple, list)) or len(batch) < 2:
        return _all_inputs
    fitting = [reading for reading in (_all_inputs, _last_is_target) if _fits(model, reading(batch))]
    if len(fitting) == 2:
        fitting = [reading for reading in fitting if runs(*reading(batch)[:2])] or fitting[:1]
    if len(fitting) == 2 and is_stream:
        bound = inspect.signature(model.forward).bind(*batch).arguments
        raise ExportError(
            f"the last tensor of the batch may be the target or '{list(bound)[-1]}' of {type(model).__name__}.forward; "
            "take it apart and pass the target as targets="
        )
    return fitting[0] if fitting else _all_inputs


def _all_inputs(batch: object) -> Parts:
    args, kwargs = _as_call(batch)
    return args, kwargs, None


def _last_is_target(batch: object) -> Parts:
    *inputs, target = batch
    return *_as_call(inputs[0] if len(inputs) == 1 else inputs), target


def _as_call(inputs: object) -> tuple[tuple, dict]:
    if isinstance(inputs, Mapping):
        return (), dict(inputs)
    if isinstance(inputs, (tuple, list)):
        return tuple(inputs), {}
    return (inputs,), {}


def _read_mapping(batch: Mapping, model: nn.Module) -> Reading:
    """All arguments, but for one entry that forward does not take and whose name says that it is the target."""
    parameters = inspect.signature(model.forward).parameters
    if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        return _all_inputs
    unknown = sorted(key for key in batch if key not in parameters)
    if not unknown:
        return _all_inputs
    if len(unknown) > 1 or unknown[0] not in TARGET_NAMES:
        raise ExportError(
            f"the example inputs do not fit {type(model).__name__}.forward, which takes no "
            f"{' and no '.join(map(repr, unknown))}; leave out what nothing reads, and pass the target as targets="
        )

    def read(whole: Mapping) -> Parts:
        return (), {key: value for key, value in whole.items() if key != unknown[0]}, whole[unknown[0]]

    return read


def _fits(model: nn.Module, parts: Parts) -> bool:
    args, kwargs, _ = parts
    try:
        inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError:
        return False
    return True
