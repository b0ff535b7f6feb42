"""What a model returns: its prediction, and its loss where it computes one."""

import dataclasses
from collections.abc import Mapping

import torch
from torch.utils import _pytree as pytree

from ..errors import ExportError


def prediction_of(output: object) -> torch.Tensor | None:
    """`logits` if the output has them, else the first tensor in it that is not a single number."""
    fields = _fields(output)
    if isinstance(fields.get("logits"), torch.Tensor):
        return fields["logits"]
    leaves = pytree.tree_leaves(fields or output)
    return next((leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.dim() > 0), None)


def returned_loss(output: object) -> torch.Tensor:
    """The loss in an output: the output itself, its `loss`, or the one single number of a tuple."""
    if _is_scalar(output):
        return output
    fields = _fields(output)
    if _is_scalar(fields.get("loss")):
        return fields["loss"]
    if "loss" in fields and fields["loss"] is None:
        raise ExportError(
            f"the model returns a {type(output).__name__} whose loss is None; add what it computes its loss from "
            "(labels, say) to the example inputs, or pass loss=<a function of output and target>"
        )
    scalars = [value for value in output if _is_scalar(value)] if isinstance(output, (tuple, list)) else []
    if len(scalars) == 1:
        return scalars[0]
    if isinstance(output, torch.Tensor):
        found = f"a tensor of shape {tuple(output.shape)} and no loss"
    elif scalars:
        found = f"{len(scalars)} scalars, any of which may be the loss"
    else:
        found = f"a {type(output).__name__} and no loss (a scalar tensor, or one named 'loss')"
    raise ExportError(f"the model returns {found}; pass loss=<a function of output and target>")


def _fields(output: object) -> dict[str, object]:
    """The named parts of an output; none for a tensor or a tuple."""
    if isinstance(output, Mapping):
        return dict(output)
    if dataclasses.is_dataclass(output) and not isinstance(output, type):
        return {field.name: getattr(output, field.name) for field in dataclasses.fields(output)}
    if isinstance(output, tuple) and hasattr(output, "_asdict"):
        return output._asdict()
    return {}


def _is_scalar(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.dim() == 0
