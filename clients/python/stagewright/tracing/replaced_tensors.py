"""Other tensors in the place of a model's parameters and buffers, for a while."""

import contextlib
from collections.abc import Callable, Iterable, Iterator

import torch
from torch import nn


@contextlib.contextmanager
def replaced_tensors(modules: Iterable[nn.Module], replacement: Callable[[torch.Tensor], torch.Tensor]) -> Iterator[None]:
    """While open, modules have `replacement(tensor)` for each parameter and buffer: one for all places that hold the same.
    Puts back the tensors themselves. PyTorch's functional_call leaves others in a module that has two names."""
    kept = [
        (registry, name, tensor)
        for module in dict.fromkeys(modules)
        for registry in (module._parameters, module._buffers)
        for name, tensor in registry.items()
        if tensor is not None
    ]
    made: dict[int, torch.Tensor] = {}
    try:
        for registry, name, tensor in kept:
            if id(tensor) not in made:
                made[id(tensor)] = replacement(tensor)
            registry[name] = made[id(tensor)]
        yield
    finally:
        for registry, name, tensor in kept:
            registry[name] = tensor
