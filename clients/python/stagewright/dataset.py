"""Data files: a `.safetensors` whose tensors are named as the graph's inputs, samples along the first dimension."""

import os
import pathlib

import torch

from .errors import DatasetError
from .tensor_file import write_tensors


def save_dataset(path: str | os.PathLike, /, *, batch_dim: int = 0, **arrays: object) -> None:
    """Writes arrays (tensors, NumPy arrays or nested lists) as one data file.

    The names are those of the graph's inputs: the model's forward arguments, and `target` for the loss. The file has
    the samples in the first dimension, wherever `batch_dim` says the arrays have them.
    """
    if not pathlib.Path(path).parent.is_dir():
        raise DatasetError(f"{pathlib.Path(path).parent}: no such directory")
    if not arrays:
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
