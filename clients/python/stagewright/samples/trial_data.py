"""Small batches on which a captured graph is tried: made from the example's tensors, so that every sample differs."""

import dataclasses
import enum
import math
from collections.abc import Iterator

import torch
from torch import fx

from ..tracing.capture import Captured

aten = torch.ops.aten


class Effort(enum.Enum):
    """How far the inputs of a trial may go from the example's."""

    IGNORED_TARGETS = 1  # Random integers, and targets that a loss ignores among them.
    RANDOM = 2
    EXAMPLE = 3


@dataclasses.dataclass(frozen=True)
class Draw:
    """What other trials of a graph take in the place of what the first one took."""

    number: int = 0
    # An input of which the last samples have what the one before them has: those of a group may be computed together.
    alike: str = ""
    # So many steps after the first: buffers that forward changes hold something else.
    later: int = 0


# Integers of which an example shows one value only, and the graph no bound, are drawn below this.
_FEW = 8
# Samples with so many random bits each are hardly ever the same.
_BITS = 16.0

# Operators through which an integer reaches a table or a loss as it is.
_PASS_ON = {
    aten.slice.Tensor, aten.view.default, aten.reshape.default, aten.flatten.using_ints, aten.permute.default,
    aten.transpose.int, aten.select.int, aten.unsqueeze.default, aten.squeeze.dim, aten.squeeze.default,
    aten.clone.default, aten.contiguous.default, aten.to.dtype, aten.to.device, aten.to.dtype_layout,
    aten.detach.default, aten.alias.default, aten.expand.default, aten.movedim.int, aten.narrow.default,
    aten.pad.default, aten.constant_pad_nd.default, aten.masked_fill.Scalar, aten.roll.default, aten.cat.default,
    aten._to_copy.default, aten.where.ScalarSelf, aten.unbind.int, aten.split.Tensor, aten.chunk.default,
}  # fmt: skip
CLASS_LOSSES = {
    aten.cross_entropy_loss.default: 4,
    aten.nll_loss.default: 4,
    aten.nll_loss_nd.default: 4,
    aten.nll_loss2d.default: 4,
}
# Losses of two pieces, and the position of the argument that says, by 1 or -1, which is meant.
_MARKED = {aten.hinge_embedding_loss.default: 1, aten.cosine_embedding_loss.default: 2}
_COMPARISONS = {aten.eq.Scalar, aten.ne.Scalar, aten.logical_not.default}


def trial_inputs(
    captured: Captured, parts: tuple[int, int], effort: Effort, generator: torch.Generator, draw: Draw
) -> dict[str, torch.Tensor]:
    """One tensor per input of the graph, with the samples of both parts along dimension 0; others for another draw."""
    placeholders = _input_placeholders(captured)
    first, samples = parts[0], sum(parts)
    found = {
        name: _some_batch(tensor, placeholders[name], samples, effort, generator, draw.number)
        for name, tensor in captured.example.items()
    }
    if draw.alike:
        found[draw.alike][first:] = found[draw.alike][first - 1]
    return found


def grouping_inputs(captured: Captured) -> list[str]:
    """The inputs by which a model could put samples in groups."""
    placeholders = _input_placeholders(captured)
    return [
        name
        for name, tensor in captured.example.items()
        if tensor.numel() and (not tensor.is_floating_point() or _is_mark(placeholders[name]))
    ]


def draws_that_tell(captured: Captured) -> int:
    """So many draws give every two samples other integers at least once, but for one time in ten thousand or so."""
    placeholders = _input_placeholders(captured)
    fewest = min(
        (_bits(tensor, placeholders[name]) for name, tensor in captured.example.items() if tensor.numel()), default=_BITS
    )
    return math.ceil(_BITS / max(fewest, 1.0))


def _bits(example: torch.Tensor, node: fx.Node) -> float:
    """How much there is to draw for a sample."""
    if example.is_floating_point():
        if not _is_mark(node):
            return _BITS
        values = example.unique().numel()
    else:
        least, most, _ = _integer_range(node)
        values = 2 if example.dtype is torch.bool else most - least if most is not None else example.unique().numel()
    return example[0].numel() * math.log2(max(values, 1))


def _input_placeholders(captured: Captured) -> dict[str, fx.Node]:
    program = captured.program
    user_inputs = set(program.graph_signature.user_inputs)
    tensors = [
        node
        for node in program.graph_module.graph.find_nodes(op="placeholder")
        if node.name in user_inputs and isinstance(node.meta.get("val"), torch.Tensor)
    ]
    return {name: node for (name, _), node in zip(captured.input_names, tensors)}


def _some_batch(
    example: torch.Tensor, node: fx.Node, samples: int, effort: Effort, generator: torch.Generator, draw: int
) -> torch.Tensor:
    rows = example[(torch.arange(samples) + draw * samples) % example.shape[0]]
    seen = example.unique()
    if rows.is_floating_point():
        marks = seen.numel() > 1 and _is_mark(node)
        return seen[torch.randint(0, seen.numel(), rows.shape, generator=generator)] if marks else _perturbed(rows, generator)
    if effort is Effort.EXAMPLE or not rows.numel():
        return rows
    if rows.dtype is torch.bool:
        return torch.rand(rows.shape, generator=generator) < 0.7
    least, most, ignored = _integer_range(node)
    if most is None and seen.numel() > 1:
        drawn = seen[torch.randint(0, seen.numel(), rows.shape, generator=generator)]
    else:
        drawn = torch.randint(least, most or _FEW, rows.shape, generator=generator).to(rows.dtype)
    if effort is Effort.IGNORED_TARGETS and ignored is not None and drawn.numel():
        # The first sample ignores the last quarter of its targets, so that samples count differently.
        first = drawn[0].reshape(-1)
        first[-max(1, first.numel() // 4) :] = ignored
        drawn[0] = first.reshape(drawn[0].shape)
    return drawn


def _perturbed(rows: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """The rows with noise, within the bounds that the example keeps to: no less than 0, no more than 1."""
    wide = rows.to(torch.float64)
    low, high = (float(wide.min()), float(wide.max())) if wide.numel() else (0.0, 0.0)
    noise = torch.randn(wide.shape, generator=generator, dtype=torch.float64)
    if low == high:  # Zeros or ones, say: nothing is known of the range but that small positive numbers lie in it.
        return (noise.abs() * 0.3 + 0.05).clamp(max=0.95).to(rows.dtype)
    wide = wide + noise * 0.3 * float(wide.std())
    if low >= 0:
        wide = wide.abs()
    if low >= 0 and high <= 1:
        wide = wide.clamp(max=1.0)
    return wide.to(rows.dtype)


def _integer_range(node: fx.Node) -> tuple[int, int | None, int | None]:
    """(the least value, the first that is too large, the target that a loss ignores): by the tables and losses that the
    input reaches."""
    least: list[int] = [0]
    most: list[int] = []
    ignored: list[int] = []
    for user, current in _readers(node):
        if user.target is aten.embedding.default and user.args[1] is current:
            rows = user.args[0].meta["val"].shape[0]
            most += [rows] if isinstance(rows, int) else []
        elif user.target in CLASS_LOSSES and user.args[1] is current:
            scores = user.args[0].meta["val"]
            classes = scores.shape[1] if scores.dim() > 1 else scores.shape[0]
            if isinstance(classes, int):
                most.append(classes)
            position = CLASS_LOSSES[user.target]
            ignored.append(user.args[position] if len(user.args) > position else -100)
        elif user.target is aten.ctc_loss.Tensor:
            low, high = _ctc_range(user, current)
            least.append(low)
            most.append(high)
        elif user.target is aten.one_hot.default and len(user.args) > 1 and isinstance(user.args[1], int):
            most.append(user.args[1])
    largest = min(most, default=None)
    smallest = max(least) if largest is None or max(least) < largest else 0
    return smallest, largest, (ignored[0] if ignored else None)


def _is_mark(node: fx.Node) -> bool:
    """Whether certain values of a real number mean something that others, however close, do not."""
    return any(
        user.target in _COMPARISONS
        or (user.target in _MARKED and user.args[_MARKED[user.target]] is current)
        or current.meta["val"].dtype is torch.bool
        for user, current in _readers(node)
    )


def _readers(node: fx.Node) -> Iterator[tuple[fx.Node, fx.Node]]:
    """The operators that an input's values reach as they are, each with what it reads them from."""
    seen: set[fx.Node] = set()
    frontier = [node]
    while frontier:
        current = frontier.pop()
        if current in seen:
            continue
        seen.add(current)
        for user in current.users:
            if user.target in _PASS_ON or getattr(user.target, "__name__", "") == "getitem":
                frontier.append(user)
            else:
                yield user, current


def _ctc_range(loss: fx.Node, argument: fx.Node) -> tuple[int, int]:
    """Labels; times that suffice for them, whatever they are; and how many labels count."""
    scores, labels = loss.args[0].meta["val"], loss.args[1].meta["val"]
    longest, classes, width = int(scores.shape[0]), int(scores.shape[-1]), int(labels.shape[-1])
    if argument is loss.args[1]:
        return 0, classes
    return (longest // 2, longest + 1) if argument is loss.args[2] else (1, max(2, min(width, longest // 4) + 1))
