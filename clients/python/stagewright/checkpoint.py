"""Checkpoints in plain PyTorch: trained weights, the state of a job under way, and weights from elsewhere."""

import dataclasses
import json
import os
import pathlib
import pickle
import re
import zlib

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import nn

from .errors import CheckpointError
from .tensor_file import write_tensors
from .tracing.wrappers import without_prefixes

MANIFEST = "manifest.json"
_SHARE = re.compile(r"(.+)@(\d+)-(\d+)")  # Of a state of the optimizer: elements in a row.


def tied_names(model: nn.Module) -> list[list[str]]:
    """Groups of names of one and the same tensor, in the order of the module; singletons included."""
    groups: dict[int, list[str]] = {}
    for name, tensor in model.named_parameters(remove_duplicate=False):
        groups.setdefault(id(tensor), []).append(name)
    for name, tensor in model.named_buffers(remove_duplicate=False):
        groups.setdefault(id(tensor), []).append(name)
    return list(groups.values())


def load_checkpoint(model: nn.Module, path: str | os.PathLike) -> None:
    """Copies the tensors of a checkpoint into `model`, in place.

    `path` is a `.safetensors` file, or the directory of a checkpoint of a job under way. Tied tensors stand in the file once, under any of their names; all of them get the value. Raises CheckpointError,
    and leaves the model as it was, if a name is missing or unknown or a shape differs.
    """
    stored = read_checkpoint(path).weights if os.path.isdir(path) else _load(path)
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


@dataclasses.dataclass(frozen=True)
class TrainingCheckpoint:
    """The state of a job after `step` steps."""

    step: int
    samples: int
    seed: int
    optimizer: str  # "sgd" or "adam".
    weights: dict[str, torch.Tensor]  # Parameters and buffers, tied ones under each name.
    optimizer_state: dict[str, dict[str, torch.Tensor]]  # By parameter, as in `torch.optim`'s `state`.


def read_checkpoint(directory: str | os.PathLike) -> TrainingCheckpoint:
    """Reads OUT/checkpoints/step-0000000100. Raises CheckpointError, naming the file, if one is missing or damaged."""
    path = pathlib.Path(directory)
    try:
        manifest = json.loads((path / MANIFEST).read_text())
        version = (manifest["format"], manifest["version"])
        if version != ("stagewright-checkpoint", 1):
            raise CheckpointError(f"{path / MANIFEST}: format {version} is not known")
        files = {}
        for file in manifest["files"]:
            _check(path / file["name"], file["bytes"], int(file["crc32"], 16))
            files[file["name"]] = _load(path / file["name"])
        weights = {name: files[file][name] for name, file in manifest["weight_map"].items()}
        state: dict[str, dict[str, torch.Tensor]] = {}
        for name, file in manifest["optimizer_map"].items():
            parameter, _, key = name.rpartition(".")
            if not parameter:
                continue  # Of the job, not of a parameter: the scale of its loss.
            state.setdefault(parameter, {})[key] = files[file][name]
        for parameter, values in state.items():
            _join_shares(parameter, values, weights)
        for name, sliced in manifest.get("slices", {}).items():
            _join(name, sliced["slices"], sliced["dim"], weights, state)
        for alias, name in manifest["aliases"].items():
            if name in weights:
                weights[alias] = weights[name]
        return TrainingCheckpoint(
            manifest["step"], manifest["samples"], manifest["seed"], manifest["optimizer"], weights, state
        )
    except OSError as error:
        raise CheckpointError(str(error)) from error
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path / MANIFEST}: {error!r}") from error


def load_optimizer(optimizer: torch.optim.Optimizer, model: nn.Module, directory: str | os.PathLike) -> None:
    """Puts the optimizer state of a checkpoint into `optimizer`, which updates parameters of `model`.

    Raises CheckpointError for state of a parameter that the model lacks, or of another shape.
    """
    checkpoint = read_checkpoint(directory)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    for name, state in checkpoint.optimizer_state.items():
        if name not in parameters:
            raise CheckpointError(f"{directory}: the model has no parameter '{name}'")
        parameter = parameters[name]
        for key, tensor in state.items():
            if key != "step" and tensor.shape != parameter.shape:
                raise CheckpointError(
                    f"{directory}: '{name}.{key}' has shape {tuple(tensor.shape)}, not {tuple(parameter.shape)}"
                )
        optimizer.state[parameter] = {
            key: tensor.clone() if key == "step" else tensor.to(parameter.device).clone()
            for key, tensor in state.items()
        }


def import_state_dict(source: str | os.PathLike, path: str | os.PathLike) -> list[str]:
    """Writes a PyTorch `state_dict` file (`.pt`, `.pth`) as the `.safetensors` file that `submit --weights` takes.

    The dictionary may stand under "state_dict", "model_state_dict" or "model", as training scripts often save it.
    What torch.compile and data-parallel wrappers put before all names ("module.") is left out.
    Only tensors are read: no code in the file runs. Returns the names; raises CheckpointError for any other file.
    """
    try:
        stored = torch.load(source, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(f"{source}: {(str(error) or repr(error)).splitlines()[0]}") from error
    for key in ("state_dict", "model_state_dict", "model"):
        if isinstance(stored, dict) and isinstance(stored.get(key), dict):
            stored = stored[key]
    if not isinstance(stored, dict) or not stored:
        raise CheckpointError(f"{source}: it holds no state_dict")
    for name, tensor in stored.items():
        if not isinstance(name, str) or not isinstance(tensor, torch.Tensor):
            raise CheckpointError(f"{source}: entry {name!r} is no tensor")
    stored = dict(zip(without_prefixes(list(stored)), stored.values()))
    write_tensors(path, stored)
    return sorted(stored)


def _join_shares(parameter: str, values: dict[str, torch.Tensor], weights: dict) -> None:
    """Puts a state that replicas shared out, "exp_avg@0-64" and so on, in the place of the shares."""
    shares: dict[str, list[tuple[int, int, torch.Tensor]]] = {}
    for key in list(values):
        if match := _SHARE.fullmatch(key):
            name, begin, end = match.groups()
            shares.setdefault(name, []).append((int(begin), int(end), values.pop(key)))
    for name, parts in shares.items():
        parts.sort(key=lambda part: part[0])
        whole = weights[parameter]
        ends = [0, *(end for _, end, _ in parts)]
        if [begin for begin, _, _ in parts] != ends[:-1] or ends[-1] != whole.numel():
            raise ValueError(f'not all of "{parameter}.{name}" is there once')
        values[name] = torch.cat([part for _, _, part in parts]).reshape(whole.shape)


def _join(name: str, slices: list[str], dim: int, weights: dict, state: dict) -> None:
    """Puts a parameter that a job trained in parallel parts, and its state, in the place of the parts."""
    parts = [weights.pop(part) for part in slices]
    weights[name] = torch.cat(parts, dim)
    states = [state.pop(part, {}) for part in slices]
    joined = {
        key: torch.cat([of[key] for of in states], dim) if value.shape == parts[0].shape else value
        for key, value in states[0].items()
    }
    if joined:
        state[name] = joined


def _load(path: str | os.PathLike) -> dict[str, torch.Tensor]:
    try:
        return load_file(os.fspath(path))
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path}: {error}") from error


def _check(path: pathlib.Path, size: int, checksum: int) -> None:
    crc, count = 0, 0
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            crc, count = zlib.crc32(chunk, crc), count + len(chunk)
    if (count, crc) != (size, checksum):
        raise CheckpointError(f"{path}: {count} bytes, checksum {crc:x}; the manifest says {size}, {checksum:x}")
