"""What capture has to know about a loss before it is traced: an example target."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from ..errors import ExportError

_CLASS_INDEX = (nn.CrossEntropyLoss, nn.NLLLoss, nn.MultiMarginLoss, F.cross_entropy, F.nll_loss, F.multi_margin_loss)
_LIKE_OUTPUT = (
    nn.MSELoss, nn.L1Loss, nn.SmoothL1Loss, nn.HuberLoss, nn.BCELoss, nn.BCEWithLogitsLoss, nn.KLDivLoss,
    nn.PoissonNLLLoss, nn.SoftMarginLoss, nn.MultiLabelSoftMarginLoss, F.mse_loss, F.l1_loss, F.smooth_l1_loss,
    F.huber_loss, F.binary_cross_entropy, F.binary_cross_entropy_with_logits, F.kl_div, F.poisson_nll_loss,
    F.soft_margin_loss, F.multilabel_soft_margin_loss,
)  # fmt: skip


def _is_one_of(loss: Callable, known: tuple) -> bool:
    classes = tuple(entry for entry in known if isinstance(entry, type))
    return isinstance(loss, classes) or any(loss is entry for entry in known)


def derive_target(loss: Callable, output: object) -> torch.Tensor:
    """An example target for a well-known loss, from an example `output` of the model (which may be fake)."""
    if isinstance(output, torch.Tensor):
        if _is_one_of(loss, _CLASS_INDEX) and output.dim() >= 2:
            return torch.zeros(output.shape[0], *output.shape[2:], dtype=torch.int64)
        if _is_one_of(loss, _LIKE_OUTPUT):
            return torch.zeros(output.shape, dtype=output.dtype)
    raise ExportError("the shape of the target cannot be told from this loss; pass targets=<an example target>")
