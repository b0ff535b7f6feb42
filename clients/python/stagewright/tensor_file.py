"""Writing `.safetensors` files."""

import os
import pathlib

import torch
from safetensors.torch import save_file


def write_tensors(path: str | os.PathLike, tensors: dict[str, torch.Tensor]) -> None:
    """Writes `tensors`, from whatever device and layout, to `path`, whole or not at all, readable as umask allows."""
    target = pathlib.Path(path)
    scratch = target.with_name(target.name + ".partial")
    try:
        save_file(_separate(tensors), os.fspath(scratch))
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)


def _separate(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The tensors on the CPU, contiguous, each alone in its memory; copied only where they are not."""
    separate: dict[str, torch.Tensor] = {}
    taken: set[int] = set()
    for name, tensor in tensors.items():
        tensor = tensor.detach().cpu().contiguous()
        storage = tensor.untyped_storage()
        if storage.data_ptr() in taken or storage.nbytes() != tensor.nbytes:
            tensor = tensor.clone()
        taken.add(tensor.untyped_storage().data_ptr())
        separate[name] = tensor
    return separate
