"""CTC losses whose lengths are tensors.

PyTorch's tracer stops at their operator, because a second result of it, which nobody sees, has a size that depends on
the lengths. It traces an operator of this file instead, for which graphs get PyTorch's own. Labels that stand behind each
other without padding are padded again: their number depends on the data, which no graph can have.
"""

import contextlib
from collections.abc import Iterator
from unittest import mock

import torch
from torch import fx

from ..errors import ExportError
from .places import describe
from .rewrites import add_call

aten = torch.ops.aten

_NONE = 0  # What ATen's losses call a loss per sample.
_PASS_ON = {aten.to.dtype, aten.to.device, aten._to_copy.default, aten.clone.default, aten.detach.default}
_plain = torch.ctc_loss


@torch.library.custom_op("stagewright::ctc_loss", mutates_args=())
def _traced(
    scores: torch.Tensor,
    labels: torch.Tensor,
    times: torch.Tensor,
    lengths: torch.Tensor,
    blank: int,
    reduction: int,
    zero_infinity: bool,
) -> torch.Tensor:
    return _plain(scores, labels, times, lengths, blank, reduction, zero_infinity)


@_traced.register_fake
def _(scores, labels, times, lengths, blank, reduction, zero_infinity):
    each = reduction == _NONE and scores.dim() == 3
    return scores.new_empty((scores.shape[1],) if each else ())


@contextlib.contextmanager
def traceable_ctc() -> Iterator[None]:
    """While open, CTC losses can be traced."""

    def ctc_loss(
        log_probs: torch.Tensor,
        targets: torch.Tensor,
        input_lengths: object,
        target_lengths: object,
        blank: int = 0,
        reduction: int = 1,
        zero_infinity: bool = False,
    ) -> torch.Tensor:
        call = _traced if isinstance(input_lengths, torch.Tensor) else _plain
        return call(log_probs, targets, input_lengths, target_lengths, blank, reduction, zero_infinity)

    with mock.patch.object(torch, "ctc_loss", ctc_loss):
        yield


def ctc_as_pytorch(graph: fx.Graph, node: fx.Node) -> fx.Node:
    """PyTorch's operator in the place of this file's."""
    scores, labels, times, lengths, *rest = node.args
    if scores.meta["val"].dim() == 3 and labels.meta["val"].dim() == 1:
        labels = _padded(graph, node, labels, lengths)
    result = graph.call_function(aten.ctc_loss.Tensor, (scores, labels, times, lengths, *rest))
    result.meta = dict(node.meta)
    return result


def _padded(graph: fx.Graph, node: fx.Node, labels: fx.Node, lengths: fx.Node) -> fx.Node:
    """Rows of labels, those that count first; what follows is not read."""
    rows, counts = _selection(labels)
    if rows is None or not _is_count(lengths, counts):
        raise ExportError(
            f"{describe(node)}: the labels of all samples stand behind each other, so that their number depends on the "
            "data; give them as [samples, longest], and the lengths"
        )
    left_out = add_call(graph, node, aten.logical_not.default, (counts,))
    order = add_call(graph, node, aten.argsort.stable, (left_out,), {"stable": True, "dim": 1})
    known = add_call(graph, node, aten.masked_fill.Scalar, (rows, left_out, 0))
    return add_call(graph, node, aten.gather.default, (known, 1, order))


def _selection(labels: fx.Node) -> tuple[fx.Node | None, fx.Node | None]:
    """The rows, and which of their entries were taken, if that is where the labels are from."""
    while labels.target in _PASS_ON:
        labels = labels.args[0]
    rows, counts = None, None
    if labels.target is aten.masked_select.default:
        rows, counts = labels.args
    elif labels.target is aten.index.Tensor and len(labels.args[1]) == 1:
        rows, counts = labels.args[0], labels.args[1][0]
    if rows is None or rows.meta["val"].dim() != 2 or counts.meta["val"].dim() != 2:
        return None, None
    return (rows, counts) if counts.meta["val"].dtype is torch.bool else (None, None)


def _is_count(lengths: fx.Node, counts: fx.Node) -> bool:
    """The lengths say how many entries of each row count."""
    while lengths.target in _PASS_ON:
        lengths = lengths.args[0]
    return (
        lengths.target is aten.sum.dim_IntList and lengths.args[0] is counts and [d % 2 for d in lengths.args[1]] == [1]
    )
