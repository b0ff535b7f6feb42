"""Modules that wrap the one to export."""

import warnings

from torch import nn

PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
# What wrappers put before the names of the module inside.
PREFIXES = ("module.", "_orig_mod.")


def unwrapped(model: object) -> object:
    """The module inside torch.compile and inside data-parallel wrappers, which plans replace."""
    while True:
        if isinstance(model, PARALLEL):
            warnings.warn(
                f"{type(model).__name__}: the module inside is exported, with its own names; plans decide how many "
                "replicas train it",
                stacklevel=3,
            )
            model = model.module
        elif hasattr(model, "_orig_mod"):
            model = model._orig_mod
        else:
            return model


def without_prefixes(names: list[str]) -> list[str]:
    """The names without what wrappers put before all of them."""
    for prefix in PREFIXES * 2:
        if names and all(name.startswith(prefix) for name in names):
            names = [name.removeprefix(prefix) for name in names]
    return names
