"""How a value of a captured graph follows from the samples of a batch."""

import dataclasses
import enum

import torch
from torch import fx

aten = torch.ops.aten


@dataclasses.dataclass(frozen=True)
class Layout:
    """The samples lie in one dimension of outer * samples * inner entries; entry (o * samples + s) * inner + i belongs
    to sample s, and so does all that stands in it."""

    dim: int
    outer: int


class Kind(enum.Enum):
    """Of a value without a place for each sample."""

    CONSTANT = "constant"  # The same for every batch.
    SUM = "sum"  # Of a batch: the sum over its parts.
    MEAN = "mean"  # Of a batch: the mean over its parts, weighted by their samples.
    MIXED = "mixed"  # Anything else: its samples are coupled, or out of order.


# Of one tensor; a list for an operator that returns several.
Found = Layout | Kind | list[Layout | Kind]
Kinds = dict[fx.Node, Found]


def batch_total(value: torch.Tensor) -> torch.Tensor:
    """Marks, in a graph, the sum of `value` over all micro-batches and replicas of a mini-batch."""
    return value


KEYED_DROPOUT = {
    aten.dropout.default,
    aten.feature_dropout.default,
    aten.alpha_dropout.default,
    aten.feature_alpha_dropout.default,
}
# Operator -> position of the argument that switches it to the statistics of the batch.
BATCH_STATISTICS = {
    aten.batch_norm.default: 5,
    aten._native_batch_norm_legit.default: 5,
    aten.native_batch_norm.default: 5,
}


def uses_batch_statistics(node: fx.Node) -> bool:
    position = BATCH_STATISTICS.get(node.target)
    return position is not None and node.args[position] is True


def single(found: Found | None) -> Layout | Kind:
    """The kind of a value that is one tensor."""
    return found if isinstance(found, (Layout, Kind)) else Kind.MIXED


def is_sound(found: Found | None) -> bool:
    """Every sample has its place, or the value is the same for all batches."""
    if isinstance(found, list):
        return all(is_sound(item) for item in found)
    return isinstance(found, Layout) or found is Kind.CONSTANT


def roots(graph: fx.Graph) -> tuple[list[fx.Node], fx.Node, fx.Node | None]:
    """New values of buffers, loss, prediction: the results of a captured graph."""
    *states, loss, prediction = graph.output_node().args[0]
    return states, loss, prediction


def live_nodes(graph: fx.Graph) -> set[fx.Node]:
    """What the results depend on, sizes left out."""
    states, loss, prediction = roots(graph)
    return ancestors([node for node in (*states, loss, prediction) if node is not None])


def ancestors(nodes: list[fx.Node], through_totals: bool = True) -> set[fx.Node]:
    """`nodes` and all whose tensors they read, directly or not. Without going through totals: what passes compute, for
    which those are there before."""
    found: set[fx.Node] = set()
    frontier = list(nodes)
    while frontier:
        node = frontier.pop()
        if node in found:
            continue
        found.add(node)
        if node.target is batch_total and not through_totals:
            continue
        if not isinstance(node.meta.get("val"), (int, torch.SymInt)):
            frontier.extend(node.all_input_nodes)
    return found
