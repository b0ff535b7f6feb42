"""What capture has to know about a loss: an example target, and whether it is a mean or a sum over samples."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils import _pytree as pytree

from .errors import ExportError
from .proto import pb
from .symbols import Batch

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


def detect_reduction(loss: Callable, output: object, target: object, batch: Batch) -> int:
    """LOSS_REDUCTION_MEAN or _SUM, found by evaluating `loss` on two batches and on both together.

    `output` is the model's example output, with symbolic sizes; `target` the example target. The loss of the joint
    batch must be the sum of the two, or their mean weighted by the number of samples.
    """
    generator = torch.Generator().manual_seed(0)
    first, second = 3, 2
    try:
        outputs, targets = [], []
        for samples in (first, second):
            outputs.append(_map(output, lambda t: _random_output(t, samples, batch, generator)))
            targets.append(_map(target, lambda t: _some_target(t, samples, batch, generator)))
        joint_output = _join(output, outputs, batch)
        joint_target = _join(target, targets, batch)
        with torch.no_grad():
            losses = [float(loss(o, t)) for o, t in zip([*outputs, joint_output], [*targets, joint_target])]
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(
            f"cannot tell whether the loss is a mean or a sum over samples ({type(error).__name__}: {error}); "
            'pass reduction="mean" or reduction="sum"'
        ) from error
    a, b, joint = losses
    tolerance = 1e-4 * max(abs(a), abs(b), abs(joint))
    is_mean = abs(joint - (first * a + second * b) / (first + second)) <= tolerance
    is_sum = abs(joint - (a + b)) <= tolerance
    if is_mean and not is_sum:
        return pb.LOSS_REDUCTION_MEAN
    if is_sum and not is_mean:
        return pb.LOSS_REDUCTION_SUM
    raise ExportError(
        f"the loss is neither a mean nor a sum over samples: batches of {first} and {second} samples have losses "
        f"{a:.6g} and {b:.6g}, together {joint:.6g}. Class weights with a mean, and losses that compare samples with "
        "each other, depend on the micro-batch; use a mean or sum over samples"
    )


def _map(tree: object, function: Callable[[torch.Tensor], torch.Tensor]) -> object:
    return pytree.tree_map(lambda leaf: function(leaf) if isinstance(leaf, torch.Tensor) else leaf, tree)


def _sizes(tensor: torch.Tensor, batch: Batch) -> list[tuple[int, int]]:
    return [batch.affine(size, "output of the model") for size in tensor.shape]


def _random_output(tensor: torch.Tensor, samples: int, batch: Batch, generator: torch.Generator) -> torch.Tensor:
    """Values between 0 and 1, which every usual loss takes: logits, log-probabilities and probabilities."""
    shape = [scale * samples + offset for scale, offset in _sizes(tensor, batch)]
    if tensor.dtype.is_floating_point:
        return torch.rand(shape, generator=generator, dtype=torch.float64).mul(0.9).add(0.05).to(tensor.dtype)
    return torch.randint(0, 2, shape, generator=generator).to(tensor.dtype)


def _some_target(tensor: torch.Tensor, samples: int, batch: Batch, generator: torch.Generator) -> torch.Tensor:
    shape = [scale * samples + offset for scale, offset in _sizes(tensor, batch)]
    if tensor.dtype.is_floating_point:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(tensor.dtype)
    return torch.arange(torch.Size(shape).numel()).remainder(2).reshape(shape).to(tensor.dtype)


def _join(like: object, parts: list[object], batch: Batch) -> object:
    """Concatenates two batches of outputs or targets along the dimension that grows with the batch."""
    like_leaves, spec = pytree.tree_flatten(like)
    leaves = [pytree.tree_leaves(part) for part in parts]
    joined = []
    for position, leaf in enumerate(like_leaves):
        values = [part[position] for part in leaves]
        if isinstance(leaf, torch.Tensor):
            growing = [d for d, (scale, _) in enumerate(_sizes(leaf, batch)) if scale]
            values = [torch.cat(values, dim=growing[0])] if growing else values
        joined.append(values[0])
    return pytree.tree_unflatten(joined, spec)
