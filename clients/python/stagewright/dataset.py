"""Data files: a `.safetensors` whose tensors are named as the graph's inputs, samples along the first dimension."""

import os
import pathlib
from collections.abc import Iterator, Mapping

import torch
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset

from .errors import DatasetError
from .example_batches import TARGET_NAMES
from .exporting import Exported
from .graph_file import load_graph
from .proto import pb
from .tensor_file import write_tensors

# Samples of a Dataset that are read together.
_BATCH = 256


def save_dataset(
    path: str | os.PathLike,
    data: DataLoader | Dataset | None = None,
    /,
    *,
    graph: "Exported | pb.Graph | str | os.PathLike | None" = None,
    batch_dim: int = 0,
    **arrays: object,
) -> None:
    """Writes arrays (tensors, NumPy arrays or nested lists), or all that a DataLoader or Dataset holds, as one file.

    The names are those of the graph's inputs: the model's forward arguments, and `target` for the loss. The file has
    the samples in the first dimension, wherever `batch_dim` says the arrays have them.

    data: a DataLoader, in the order in which it yields, or a Dataset. It is held in memory until it is written.
    graph: what `export` returned, or the graph's file; it says which tensor of a batch is which input, by key for
        dictionaries and else by position. Tensors that the graph does not read are left out.
    arrays: the arrays by name; with `data`, the batch's key of an input that is called otherwise there, as in
        `target="label"`.
    """
    if not pathlib.Path(path).parent.is_dir():
        raise DatasetError(f"{pathlib.Path(path).parent}: no such directory")
    if data is not None:
        arrays = _collected(data, _names(graph), batch_dim, arrays, str(path))
    elif not arrays:
        raise DatasetError(f"{path}: no arrays given")
    tensors = {}
    for name, array in arrays.items():
        tensor = torch.as_tensor(array)
        if tensor.dim() <= batch_dim:
            raise DatasetError(f"{path}: '{name}' has shape {tuple(tensor.shape)}, without a dimension {batch_dim}")
        tensors[name] = tensor.movedim(batch_dim, 0)
    sizes = {name: tensor.shape[0] for name, tensor in tensors.items()}
    if len(set(sizes.values())) > 1:
        raise DatasetError(f"{path}: the arrays differ in their number of samples: {sizes}")
    if next(iter(sizes.values())) == 0:
        raise DatasetError(f"{path}: the arrays hold no sample")
    write_tensors(path, tensors)


def _names(graph: "Exported | pb.Graph | str | os.PathLike | None") -> tuple[list[str], list[str]] | None:
    """Names of the graph's inputs, and of the tensors of a batch by position; None without a graph."""
    if graph is None:
        return None
    if isinstance(graph, Exported):
        return [entry.name for entry in graph.graph.inputs], list(graph.batch_names)
    graph = graph if isinstance(graph, pb.Graph) else load_graph(graph)
    inputs = [entry.name for entry in graph.inputs]
    return inputs, inputs


def _collected(
    data: DataLoader | Dataset, names: tuple | None, batch_dim: int, keys: dict[str, object], path: str
) -> dict[str, torch.Tensor]:
    """The tensors of all batches, joined, by input."""
    parts: dict[str, list[torch.Tensor]] = {}
    for number, batch in enumerate(_batches(data, batch_dim, path)):
        for name, tensor in _named(batch, names, keys, path).items():
            kept = parts.setdefault(name, [])
            if kept and _without(kept[0].shape, batch_dim) != _without(tensor.shape, batch_dim):
                raise DatasetError(
                    f"{path}: batch {number}: '{name}' has shape {tuple(tensor.shape)}, batch 0 has "
                    f"{tuple(kept[0].shape)}; a file holds samples of one shape: write one for each into a directory"
                )
            kept.append(tensor)
    if not parts:
        raise DatasetError(f"{path}: the {type(data).__name__} yields no batch")
    return {name: torch.cat(tensors, dim=batch_dim) for name, tensors in parts.items()}


def _batches(data: DataLoader | Dataset, batch_dim: int, path: str) -> Iterator[object]:
    if isinstance(data, Dataset):
        if batch_dim != 0:
            raise DatasetError(f"{path}: samples of a Dataset are stacked in dimension 0; pass a DataLoader")
        data = DataLoader(data, batch_size=_BATCH)
    elif not isinstance(data, DataLoader):
        raise DatasetError(f"{path}: data is a DataLoader or a Dataset, not a {type(data).__name__}; name arrays")
    return iter(data)


def _named(batch: object, names: tuple | None, keys: dict[str, object], path: str) -> dict[str, torch.Tensor]:
    """What the graph reads of a batch, by input."""
    leaves = pytree.tree_flatten_with_path(dict(batch) if isinstance(batch, Mapping) else batch)[0]
    leaves = [(place, leaf) for place, leaf in leaves if isinstance(leaf, torch.Tensor)]
    if isinstance(batch, Mapping):
        found = {".".join(str(getattr(key, "key", getattr(key, "idx", key))) for key in p): leaf for p, leaf in leaves}
        inputs = list(found) if names is None else names[0]
        target = TARGET_NAMES & (found.keys() - set(inputs))
        if "target" not in found and len(target) == 1:
            found["target"] = found[target.pop()]
        found |= {name: found[key] for name, key in keys.items() if key in found}
    elif names is None:
        raise DatasetError(f"{path}: batches name no inputs; pass graph=<what export returned>")
    else:
        inputs, by_position = names
        if len(leaves) != len(by_position):
            raise DatasetError(
                f"{path}: the data has batches of {len(leaves)} tensors, but the graph has {len(by_position)} inputs: "
                f"{', '.join(by_position)}"
            )
        found = {name: tensor for name, (_, tensor) in zip(by_position, leaves)}
    missing = next((name for name in inputs if name not in found), None)
    if missing is not None:
        held = ", ".join(map(repr, found))
        raise DatasetError(
            f"{path}: no tensor for the graph's input '{missing}'; the batch has {held}: add {missing}=<its name there>"
        )
    return {name: found[name] for name in inputs}


def _without(shape: torch.Size, dim: int) -> list[int]:
    return [size for position, size in enumerate(shape) if position != dim]
