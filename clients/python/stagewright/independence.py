"""Does a model treat every sample by itself? If not, micro-batches change what it computes."""

import warnings

import torch
from torch import nn
from torch.utils import _pytree as pytree

from .capture import in_mode, is_virtual
from .outputs import prediction_of

# A batch, and the first samples of it.
_ALL, _PART = 4, 2


def warn_if_samples_mix(model: nn.Module, args: tuple, kwargs: dict, batch_dim: int) -> None:
    """Warns if the output for the first samples of a batch changes when the others are left out.

    Done in evaluation mode: without dropout, and without batch normalisation, which has a warning of its own. A model
    that cannot be run here, is random all the same, or has no output dimension of the batch's size, is not checked.
    REQUIRES: the model can be captured with these inputs.
    """
    generator = torch.Generator().manual_seed(0)
    whole = pytree.tree_map_only(torch.Tensor, lambda t: _some_batch(t, batch_dim, generator), (args, kwargs))
    part = pytree.tree_map_only(torch.Tensor, lambda t: t.narrow(batch_dim, 0, _PART), whole)
    try:
        with in_mode(model, training=False), torch.no_grad(), torch.random.fork_rng(devices=[]):
            all_rows, again, first_rows = (prediction_of(model(*a, **k)) for a, k in (whole, whole, part))
    except Exception:  # The model could be traced; that it does not run on this machine is no fault of it.
        return
    if all_rows is None or not all_rows.is_floating_point() or all_rows.dim() != first_rows.dim():
        return
    if not torch.equal(all_rows, again):
        return
    sizes = list(zip(all_rows.shape, first_rows.shape))
    if sizes.count((_ALL, _PART)) != 1:
        return
    expected = all_rows.narrow(sizes.index((_ALL, _PART)), 0, _PART)
    tolerance = 1e-3 if all_rows.dtype in (torch.float32, torch.float64) else 5e-2
    scale = expected.abs().max().item() if expected.numel() else 0.0
    if not torch.allclose(first_rows, expected, rtol=tolerance, atol=tolerance * scale, equal_nan=True):
        warnings.warn(
            f"{type(model).__name__}: the output for a sample depends on the other samples of its batch, so results "
            "depend on the micro-batch size",
            stacklevel=3,
        )


def _some_batch(tensor: torch.Tensor, batch_dim: int, generator: torch.Generator) -> torch.Tensor:
    """Random numbers, or the example's own integers, for a batch of _ALL samples."""
    rows = torch.arange(_ALL) % tensor.shape[batch_dim]
    if is_virtual(tensor):
        tensor = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
    batch = tensor.detach().cpu().index_select(batch_dim, rows)
    if batch.is_floating_point():
        return torch.randn(batch.shape, generator=generator, dtype=torch.float64).to(batch.dtype)
    return batch
