"""What a trial at one point cannot see: operators made of pieces, and gradients that do not follow values.

A trial compares values at one point. Of expressions without kinks that is enough. But `relu` of a mean is the mean where
the mean is positive, a count of rare events is none where there was none, and `a + b * (a / b).detach()` has the values of
`2 * a` and other gradients. What holds something of several samples together is *gathered*; what such an operator makes of
it has no kind that can be relied on, whatever its value is. A sum or a mean that was the same for all samples is *silent*:
only what is linear in it is known.
"""

import operator
from collections.abc import Callable

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ..tracing.capture import Captured
from .sample_kinds import Found, Kind, Kinds, Layout, batch_total, is_sound, single

aten = torch.ops.aten

# Have kinks or steps: by the names of operators, without overloads.
_OF_PIECES = {
    "abs", "sign", "sgn", "copysign", "heaviside", "round", "floor", "ceil", "trunc", "fix", "frac", "fmod", "remainder",
    "floor_divide", "relu", "relu6", "leaky_relu", "prelu", "threshold", "hardtanh", "hardsigmoid", "hardswish",
    "hardshrink", "softshrink", "elu", "selu", "celu", "clamp", "clamp_min", "clamp_max", "clip", "maximum", "minimum",
    "fmax", "fmin", "max", "min", "amax", "amin", "aminmax", "cummax", "cummin", "argmax", "argmin", "sort", "argsort",
    "topk", "kthvalue", "median", "nanmedian", "mode", "quantile", "nanquantile", "gt", "lt", "ge", "le", "eq", "ne",
    "isnan", "isinf", "isfinite", "nan_to_num", "any", "all", "count_nonzero", "bucketize", "searchsorted", "histc",
    "one_hot", "l1_loss", "smooth_l1_loss", "huber_loss", "hinge_embedding_loss", "margin_ranking_loss",
    "multi_margin_loss", "multilabel_margin_loss", "triplet_margin_loss", "norm", "linalg_vector_norm",
}  # fmt: skip
# Choose by one operand only.
_CHOOSE_BY = {"where": 0, "masked_fill": 1}
# Linear in all of their operands.
_LINEAR = {
    "add", "sub", "neg", "sum", "mean", "detach", "alias", "clone", "to", "_to_copy", "view", "reshape", "squeeze",
    "unsqueeze", "expand", "stack", "select",
}  # fmt: skip
# Make whole numbers of whole numbers, whatever the type.
_KEEP_WHOLE = {"sum", "cumsum", "add", "sub", "mul", "to", "_to_copy", "view", "reshape", "clone", "detach", "cat", "stack"}
# Have, along a dimension, something of all entries before: operator -> position of the argument that names it.
_RUNNING = {
    "cumsum": 1, "cumprod": 1, "logcumsumexp": 1, "cummax": 1, "cummin": 1, "argsort": 1, "sort": 1, "topk": 2,
}  # fmt: skip
# Operator -> position of the argument that divides gradients by how often the batch has an index.
_SCALED_BY_FREQUENCY = {aten.embedding.default: 3, aten.embedding_bag.default: 3, aten.embedding_bag.padding_idx: 3}


def scales_by_frequency(node: fx.Node) -> bool:
    """The gradient of a sample depends on what others there are, though its value does not."""
    position = _SCALED_BY_FREQUENCY.get(node.target)
    if position is None:
        return False
    given = node.args[position] if len(node.args) > position else node.kwargs.get("scale_grad_by_freq", False)
    return bool(given)


class Pieces:
    """Follows a graph node by node, in its order, beside the kinds that values have shown."""

    def __init__(self, captured: Captured):
        specs = captured.program.graph_signature.input_specs
        placeholders = captured.program.graph_module.graph.find_nodes(op="placeholder")
        by_kind = list(zip((spec.kind for spec in specs), placeholders))
        # What depends on samples; on parameters, in a way that gradients follow; on several samples at once; on such by
        # a value that gradients do not follow; and what cannot be relied on. And floating-point numbers that count.
        self._data = {node for kind, node in by_kind if kind is InputKind.USER_INPUT}
        self._trained = {node for kind, node in by_kind if kind is InputKind.PARAMETER}
        self._gathered: set[fx.Node] = set()
        self._whole: set[fx.Node] = set()
        # For each sample, something of those before it: its place in a queue, say.
        self._running: set[fx.Node] = set()
        self._cut_off: set[fx.Node] = set()
        self._silent: set[fx.Node] = set()
        self._unreliable: set[fx.Node] = set()

    def settle(self, node: fx.Node, found: Found | None, kinds: Kinds, is_zero: Callable[[], bool]) -> Found | None:
        """The kind of `node`, of whose values `found` is true; those of its operands are in `kinds`. is_zero: whether all
        of its values were 0."""
        if found is None or node.op != "call_function" or node.target is batch_total:
            return found
        read = [source for source in node.all_input_nodes if kinds.get(source) is not None]
        self._follow(node, read)
        if node.meta.get("adds_up"):  # Written by a rewrite: a mean, weighted by the samples at hand.
            (self._silent if found is Kind.CONSTANT else self._gathered).add(node)
            return Kind.SUM
        found = self._not_by_chance(node, found, read, kinds, is_zero)
        if found is None or self._cannot_tell(node, found, read, kinds):
            self._unreliable.add(node)
            value = node.meta.get("val")
            return [Kind.MIXED] * len(value) if isinstance(value, (list, tuple)) else Kind.MIXED
        if not is_sound(found) and (not _has_batch(node) or any(self._is_gathered_number(source) for source in read)):
            self._gathered.add(node)
        if not is_sound(found) and _has_batch(node) and not node.meta.get("known"):
            if not _is_sorted_values(node) and (_runs_along_batch(node) or any(s in self._running for s in read)):
                self._running.add(node)
        return found

    def _follow(self, node: fx.Node, read: list[fx.Node]) -> None:
        if any(source in self._data for source in read):
            self._data.add(node)
        cut = node.target is aten.detach.default
        if not cut and _is_floating(node) and any(source in self._trained for source in read):
            self._trained.add(node)
        name = _name(node)
        if name == "histc" or (name in _KEEP_WHOLE and read and all(s in self._whole or not _is_floating(s) for s in read)):
            self._whole.add(node)
        if cut and any(source in self._trained and source in self._gathered for source in read):
            self._cut_off.add(node)

    def _not_by_chance(
        self, node: fx.Node, found: Found, read: list[fx.Node], kinds: Kinds, is_zero: Callable[[], bool]
    ) -> Found | None:
        """What samples have made, and was the same for all of them, need not be with others; None where nothing is known
        of it then."""
        if any(source in self._silent for source in read):
            return self._of_silent(node, found, read, kinds, is_zero)
        if is_sound(found) and self._hides(node, read, kinds, is_zero):
            return None
        if found is not Kind.CONSTANT or not any(s in self._data and kinds[s] is not Kind.CONSTANT for s in read):
            return found
        name = _name(node)
        if name in ("sum", "mean") and all(isinstance(kinds[source], Layout) for source in read):
            self._silent.add(node)
            return Kind.SUM if name == "sum" else Kind.MEAN
        return None if name in _OF_PIECES else found

    def _of_silent(
        self, node: fx.Node, found: Found, read: list[fx.Node], kinds: Kinds, is_zero: Callable[[], bool]
    ) -> Found | None:
        """What is linear in a silent sum or mean is one, too. Nothing is known of all else."""
        kind = kinds[next(source for source in read if not is_sound(kinds[source]))]
        if found is Kind.CONSTANT and kind is Kind.SUM and not is_zero():
            return None
        if found not in (Kind.CONSTANT, kind) or not self._adds_up(node, kind, read, kinds):
            return None
        if found is Kind.CONSTANT:
            self._silent.add(node)
        return kind

    def _hides(self, node: fx.Node, read: list[fx.Node], kinds: Kinds, is_zero: Callable[[], bool]) -> bool:
        """Whether no sample has let something through that holds several together, though others may."""
        name = _name(node)
        if name in _CHOOSE_BY:
            by = node.args[_CHOOSE_BY[name]]
            return by in self._data and any(s is not by and self._is_gathered_value(s, kinds) for s in read)
        if name != "mul" or not any(self._is_gathered_value(s, kinds) for s in read):
            return False
        return any(s in self._data and is_sound(kinds[s]) for s in read) and is_zero()

    @staticmethod
    def _is_gathered_value(node: fx.Node, kinds: Kinds) -> bool:
        return not is_sound(kinds[node]) and _is_floating(node)

    def _cannot_tell(self, node: fx.Node, found: Found, read: list[fx.Node], kinds: Kinds) -> bool:
        if scales_by_frequency(node) or any(source in self._unreliable for source in read):
            return True
        if node.meta.get("known"):  # Written by a rewrite, which knows what it means.
            return False
        shown_mixed = all(kind is Kind.MIXED for kind in (found if isinstance(found, list) else [found]))
        if not shown_mixed and any(s in self._gathered or s in self._running for s in self._decisive(node, read)):
            return True
        if isinstance(found, Layout) and self._counts(node) and any(source in self._running for source in read):
            return True
        if any(source in self._cut_off for source in read):
            if not shown_mixed and not self._adds_up(node, found, read, kinds):
                return True
            self._cut_off.add(node)
        return False

    def _decisive(self, node: fx.Node, read: list[fx.Node]) -> list[fx.Node]:
        """The operands by which an operator takes one of its pieces."""
        name = _name(node)
        if name in _CHOOSE_BY:
            return [node.args[_CHOOSE_BY[name]]]
        if name in _OF_PIECES:
            return read
        if isinstance(node.meta.get("val"), torch.Tensor) and not _is_floating(node):
            return [source for source in read if _is_floating(source) and source not in self._whole]  # It is rounded.
        return []

    def _counts(self, node: fx.Node) -> bool:
        """Computes whole numbers, of which few samples have the same by chance, as their places in a queue."""
        return _name(node) in _KEEP_WHOLE and (node in self._whole or not _is_floating(node))

    def _adds_up(self, node: fx.Node, found: Found, read: list[fx.Node], kinds: Kinds) -> bool:
        """Gradients do, as values: a sum of what adds up alike, or a multiple of it."""
        gathered = [source for source in read if not is_sound(kinds[source])]
        if found not in (Kind.SUM, Kind.MEAN) or any(kinds[source] is not found for source in gathered):
            return False
        if _name(node) in ("mul", "div"):
            places = node.args[:2] if _name(node) == "mul" else node.args[:1]
            once = len(gathered) == 1 and sum(place is gathered[0] for place in places) == 1
            return once and all(kinds[s] is Kind.CONSTANT for s in read if s is not gathered[0])
        if _name(node) in _CHOOSE_BY:
            return node.args[_CHOOSE_BY[_name(node)]] not in self._data
        return _name(node) in _LINEAR

    def _is_gathered_number(self, source: fx.Node) -> bool:
        """Integers that are gathered say where things are, not what they are."""
        return source in self._gathered and _is_floating(source)


def settled_in_single_precision(node: fx.Node, found: Found | None, kinds: Kinds) -> Found | None:
    """Among the rounding errors of single precision a weak coupling hides, such as a small weight on a product of
    means: what seems to add up there though an operand does not is mixed."""
    if found not in (Kind.SUM, Kind.MEAN):
        return found
    operands = [kinds[source] for source in node.all_input_nodes if kinds.get(source) is not None]
    return Kind.MIXED if any(single(operand) is Kind.MIXED for operand in operands) else found


def _name(node: fx.Node) -> str:
    schema = getattr(node.target, "_schema", None)
    return schema.name.removeprefix("aten::").strip("_") if schema else ""


def _is_sorted_values(node: fx.Node) -> bool:
    """Those that a sort gives are the samples' own in another order; what it also gives are their places."""
    return node.target is operator.getitem and _name(node.args[0]) in ("sort", "topk") and node.args[1] == 0


def _runs_along_batch(node: fx.Node) -> bool:
    """Experts of each token, say, are sorted along another dimension, which has the same size in any batch."""
    if _name(node) == "arange":
        return _has_batch(node)
    position = _RUNNING.get(_name(node))
    if position is None:
        return False
    value = node.args[0].meta.get("val")
    dim = node.args[position] if len(node.args) > position else node.kwargs.get("dim", -1)
    other = isinstance(value, torch.Tensor) and value.dim() and isinstance(dim, int) and isinstance(value.shape[dim], int)
    return not other


def _has_batch(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(not isinstance(size, int) for item in values if isinstance(item, torch.Tensor) for size in item.shape)


def _is_floating(node: fx.Node) -> bool:
    value = node.meta.get("val")
    values = value if isinstance(value, (list, tuple)) else [value]
    return any(isinstance(item, torch.Tensor) and item.is_floating_point() for item in values)
