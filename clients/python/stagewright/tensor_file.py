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
        save_file({name: t.detach().cpu().contiguous().clone() for name, t in tensors.items()}, os.fspath(scratch))
        umask = os.umask(0)
        os.umask(umask)
        scratch.chmod(0o666 & ~umask)
        scratch.replace(target)
    finally:
        scratch.unlink(missing_ok=True)
