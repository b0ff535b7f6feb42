"""Loading a checkpoint of trained weights back into the module it came from."""

import os

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from .errors import CheckpointError


def tied_names(model: nn.Module) -> list[list[str]]:
    """Groups of names of one and the same tensor, in the order of the module; singletons included."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(tensor), []).append(name)
    for name, tensor in model.named_buffers(remove_duplicate=False):
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def load_checkpoint(model: nn.Module, path: str | os.PathLike) -> None:
    """Copies the tensors of a `.safetensors` checkpoint into `model`, in place.

    Tied tensors stand in the file once, under any of their names; all of them get the value. Raises CheckpointError,
    and leaves the model as it was, if a name is missing or unknown or a shape differs.
    """
    try:
        stored = load_file(os.fspath(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from error
    here = dict(model.named_parameters(remove_duplicate=False)) | dict(model.named_buffers(remove_duplicate=False))
    persistent = set(model.state_dict(keep_vars=True))
    copies: list[tuple[torch.Tensor, torch.Tensor]] = []
    for names in tied_names(model):
        found = [name for name in names if name in stored]
        if not found:
            if persistent.isdisjoint(names):
                continue
            raise CheckpointError(f"{path}: no tensor '{names[0]}'")
        value, tensor = stored[found[0]], here[names[0]]
        if value.shape != tensor.shape:
            raise CheckpointError(
                f"{path}: '{found[0]}' has shape {tuple(value.shape)}, the model's is {tuple(tensor.shape)}"
            )
        copies.append((tensor, value))
    unknown = sorted(name for name in stored if name not in here and not _is_constant(model, name))
    if unknown:
        raise CheckpointError(f"{path}: the model has no tensor '{unknown[0]}'")
    with torch.no_grad():
        for tensor, value in copies:
            tensor.copy_(value)


def _is_constant(model: nn.Module, name: str) -> bool:
    """True for tensors that capture added as constants: plain tensor attributes and literals in forward."""
    *path, leaf = name.split(".")
    module: object = model
    for part in path:
        module = getattr(module, part, None)
    return isinstance(getattr(module, leaf, None), torch.Tensor) or leaf.startswith("lifted_tensor_")
