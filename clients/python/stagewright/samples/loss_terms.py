"""Makes the loss of a mini-batch follow from those of its micro-batches.

A loss that is a mean or a sum over samples does already. One that divides by something else - tokens that count, class
weights of the targets, a mask - is rewritten: what it divides by becomes a total of the mini-batch (`batch_total`), and
the rest adds up. Every rewrite is tried before it is believed (trial.py).
"""

import dataclasses

import torch
from torch import fx
from torch.export.graph_signature import InputKind

from ..errors import ExportError
from ..proto import pb
from ..tracing.capture import Captured
from ..tracing.places import line_of_node
from ..tracing.rewrites import add_call, bind
from .sample_kinds import Kind, Kinds, ancestors, batch_total, is_sound, roots, single
from .sample_rules import kinds_by_rules
from .trial import find_kinds
from .trial_data import CLASS_LOSSES, Effort

aten = torch.ops.aten

_MEAN, _SUM = 1, 2  # What ATen's losses call these reductions.
_PASS_ON = {
    aten.clone.default, aten.detach.default, aten.alias.default, aten.squeeze.default, aten.squeeze.dim,
    aten.view.default, aten.reshape.default, aten.to.dtype, aten.contiguous.default, aten.neg.default,
}  # fmt: skip
_SUMS = {aten.add.Tensor, aten.sub.Tensor}
_PRODUCTS = {aten.mul.Tensor, aten.mul.Scalar, aten.div.Tensor, aten.div.Scalar}


@dataclasses.dataclass(frozen=True)
class Separated:
    """What is known of a captured graph once its loss adds up."""

    reduction: int  # pb.LOSS_REDUCTION_*
    kinds: Kinds
    # Operators whose result depends on which samples share a forward pass.
    coupled: frozenset[fx.Node]


class CoupledSamples(ExportError):
    """The loss of a sample depends on others. `separated` is what a whole batch at once would train with."""

    def __init__(self, message: str, separated: Separated):
        super().__init__(message)
        self.separated = separated


def separate_loss(
    captured: Captured, state: dict[str, torch.Tensor], reduction: str | None, whole_batch: bool
) -> Separated:
    """Rewrites the graph where it must. ExportError, with the user's line, for a loss that couples samples, unless
    `whole_batch` allows that; or if `reduction`, "mean" or "sum", is not what the loss is."""
    rewriter = _Rewriter(captured, state)
    rewriter.open_fused_losses()
    kinds = rewriter.find()
    for rewrite in (rewriter.divide_by_totals, rewriter.add_up):
        if rewriter.adds_up(kinds):
            break
        rewrite(kinds)
        kinds = rewriter.find()
    found = single(kinds.get(rewriter.loss()))
    coupled = _coupling(rewriter.states(), kinds)
    if found in (Kind.MEAN, Kind.CONSTANT, Kind.SUM):
        name = "sum" if found is Kind.SUM else "mean"
        if reduction not in (None, name) and not rewriter.has_totals():
            raise ExportError(f'the loss is a {name} over samples, not what reduction="{reduction}" says; leave it out')
        return Separated(_REDUCTIONS[name], kinds, coupled)
    in_loss = _coupling([rewriter.loss()], kinds)
    separated = Separated(pb.LOSS_REDUCTION_MEAN, kinds, coupled | in_loss)
    if not whole_batch:
        raise CoupledSamples(_couples(rewriter.loss(), in_loss), separated)
    return separated


_REDUCTIONS = {"mean": pb.LOSS_REDUCTION_MEAN, "sum": pb.LOSS_REDUCTION_SUM}


def _coupling(results: list[fx.Node], kinds: Kinds) -> frozenset[fx.Node]:
    """The operators that read what has a place for each sample, and make what has none, on the way to `results`."""
    found: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    frontier = [node for node in results if not is_sound(kinds.get(node))]
    while frontier:
        node = frontier.pop()
        if node in seen or node.op != "call_function":
            continue
        seen.add(node)
        unsound = [source for source in node.all_input_nodes if source in kinds and not _sound_or_size(source, kinds)]
        if unsound:
            frontier.extend(unsound)
        else:
            found.add(node)
    return frozenset(found)


def _sound_or_size(node: fx.Node, kinds: Kinds) -> bool:
    return kinds[node] is None or is_sound(kinds[node])


def _couples(loss: fx.Node, coupling: frozenset[fx.Node]) -> str:
    order = {node: position for position, node in enumerate(loss.graph.nodes)}
    first = min(coupling - {loss}, key=order.__getitem__, default=loss)
    operator_name = str(first.target).removeprefix("aten.").split(".")[0]
    return (
        f"the loss of a sample depends on the other samples of its batch, by '{operator_name}'{line_of_node(first) or ' in the loss'}: "
        "micro-batches or replicas would train something else. Write it as a sum or a mean over samples, or pass "
        "whole_batch=True, and plans run the whole mini-batch at once on one device from there on"
    )


class _Rewriter:
    """The rewrites of one graph, in the order of what they change."""

    def __init__(self, captured: Captured, state: dict[str, torch.Tensor]):
        self._captured = captured
        self._state = state
        self._graph = captured.program.graph_module.graph
        self._effort: Effort | None = None
        self._changing = self._changing_placeholders()

    def loss(self) -> fx.Node:
        return roots(self._graph)[1]

    def states(self) -> list[fx.Node]:
        return roots(self._graph)[0]

    def has_totals(self) -> bool:
        return any(node.target is batch_total for node in self._graph.nodes)

    def find(self) -> Kinds:
        tried = find_kinds(self._captured, self._state)
        if tried is None:
            self._effort = None
            return kinds_by_rules(self._captured)
        kinds, self._effort = tried
        return kinds

    def adds_up(self, kinds: Kinds) -> bool:
        """The loss is a mean or a sum, whatever the targets."""
        if single(kinds.get(self.loss())) not in (Kind.MEAN, Kind.SUM, Kind.CONSTANT):
            return False
        return self._effort is Effort.IGNORED_TARGETS or not self._fused_losses()

    # First rewrite: means over targets that count say what they divide by.

    def open_fused_losses(self) -> None:
        for node in self._fused_losses():
            self._open_fused(node)

    # Second rewrite: what depends on data alone and is divided by becomes a total.

    def divide_by_totals(self, kinds: Kinds) -> None:
        of_loss = ancestors([self.loss()])
        for node in list(self._graph.nodes):
            kind = kinds.get(node)
            if node not in of_loss or kind not in (Kind.SUM, Kind.MEAN) or not self._is_data(node):
                continue
            if not any(_has_places(kinds.get(source)) for source in node.all_input_nodes):
                continue
            if all(user.target is batch_total for user in node.users):
                continue
            self._replace_by_total(node, kind)

    def _fused_losses(self) -> list[fx.Node]:
        """Means over targets that count, by ATen's class losses."""
        of_loss = ancestors([self.loss()])
        calls = [(node, bind(node)) for node in self._graph.nodes if node in of_loss and node.target in CLASS_LOSSES]
        return [
            node
            for node, call in calls
            if call["reduction"] == _MEAN and not call["target"].meta["val"].is_floating_point()
        ]

    def _open_fused(self, node: fx.Node) -> None:
        """`loss(mean)` as `loss(sum) / total(weights of the targets that count)`; not with weights of the classes that the
        batch itself makes."""
        call = bind(node)
        target, weight = call["target"], call["weight"]
        if not self._is_data(target) or (weight is not None and not (self._is_data(weight) and self._is_constant(weight))):
            return
        with self._graph.inserting_before(node):
            counts = self._call(node, aten.ne.Scalar, target, call["ignore_index"])
            if weight is not None:
                safe = self._call(node, aten.masked_fill.Scalar, target, self._call(node, aten.logical_not.default, counts), 0)
                counts = self._call(node, aten.mul.Tensor, self._call(node, aten.index.Tensor, weight, [safe]), counts)
            counts = self._call(node, aten.to.dtype, counts, _counting_type(node))
            count = self._call(node, aten.sum.default, counts)
            arguments = [call[argument.name] for argument in node.target._schema.arguments]
            arguments[[a.name for a in node.target._schema.arguments].index("reduction")] = _SUM
            numerator = self._call(node, node.target, *arguments)
            result = self._divide(node, numerator, self._total(node, count))
        node.replace_all_uses_with(result)
        self._graph.erase_node(node)

    def _replace_by_total(self, node: fx.Node, kind: Kind) -> None:
        users = list(node.users)
        with self._graph.inserting_after(node):
            end = self._graph.call_function(aten.detach.default, (node,))
        end.meta = dict(node.meta)
        with self._graph.inserting_before(end):
            if kind is Kind.SUM:
                result = self._total(node, node)
            else:
                weighted = self._call(node, aten.mul.Scalar, node, self._samples())
                result = self._divide(node, self._total(node, weighted), self._sample_total(node))
        for user in users:
            user.replace_input_with(node, result)
        self._graph.erase_node(end)

    # Third rewrite: terms of different kinds are brought to one.

    def add_up(self, kinds: Kinds) -> None:
        loss = self.loss()
        summed = self._additive(loss, kinds)
        if summed is not None and summed is not loss:
            loss.replace_all_uses_with(summed, delete_user_cb=lambda user: user.op == "output")

    def _additive(self, node: fx.Node, kinds: Kinds) -> fx.Node | None:
        """A value that adds up over micro-batches to what `node` is for the whole."""
        kind = kinds.get(node)
        if kind is Kind.SUM:
            return node
        if kind in (Kind.MEAN, Kind.CONSTANT):
            return self._share(node)
        if node.target in _PASS_ON and isinstance(node.args[0], fx.Node):
            inner = self._additive(node.args[0], kinds)
            return None if inner is None else self._after(node, inner, *node.args[1:])
        if node.target in _SUMS:
            parts = [self._additive(x, kinds) if isinstance(x, fx.Node) else None for x in node.args[:2]]
            return None if None in parts else self._after(node, *parts)
        if node.target in _PRODUCTS:
            return self._product(node, kinds)
        if node.target in (aten.sum.default, aten.mean.default) and node.args[0].target is aten.stack.default:
            return self._stacked(node, kinds)
        return None

    def _product(self, node: fx.Node, kinds: Kinds) -> fx.Node | None:
        left, right = node.args[:2]
        if not isinstance(right, fx.Node) or kinds.get(right) in (Kind.CONSTANT, None):
            inner = self._additive(left, kinds) if isinstance(left, fx.Node) else None
            return None if inner is None else self._after(node, inner, right)
        if node.target is aten.mul.Tensor and (not isinstance(left, fx.Node) or kinds.get(left) is Kind.CONSTANT):
            inner = self._additive(right, kinds)
            return None if inner is None else self._after(node, left, inner)
        return None

    def _stacked(self, node: fx.Node, kinds: Kinds) -> fx.Node | None:
        parts = [self._additive(part, kinds) for part in node.args[0].args[0]]
        if None in parts:
            return None
        with self._graph.inserting_before(node):
            return self._call(node, node.target, self._call(node, aten.stack.default, parts))

    def _share(self, node: fx.Node) -> fx.Node:
        """`node`, weighted by the micro-batch's part of the samples."""
        with self._graph.inserting_after(node):
            end = self._graph.call_function(aten.detach.default, (node,))
        end.meta = dict(node.meta)
        with self._graph.inserting_before(end):
            weighted = self._call(node, aten.mul.Scalar, node, self._samples())
            result = self._divide(node, weighted, self._sample_total(node))
        self._graph.erase_node(end)
        weighted.meta["adds_up"] = result.meta["adds_up"] = True
        return result

    # Building nodes.

    def _after(self, like: fx.Node, *args: object) -> fx.Node:
        """`like`'s call with other arguments, in its place."""
        with self._graph.inserting_before(like):
            kept = tuple(like.args[len(args) :])
            return self._call(like, like.target, *args, *kept, **like.kwargs)

    def _divide(self, like: fx.Node, numerator: fx.Node, denominator: fx.Node) -> fx.Node:
        """The quotient in the numerator's type; counts have one in which they are exact."""
        dtype = numerator.meta["val"].dtype
        quotient = self._call(like, aten.div.Tensor, numerator, denominator)
        return quotient if quotient.meta["val"].dtype is dtype else self._call(like, aten.to.dtype, quotient, dtype)

    def _total(self, like: fx.Node, value: fx.Node) -> fx.Node:
        total = self._graph.call_function(batch_total, (value,))
        total.meta = {key: like.meta[key] for key in ("nn_module_stack", "stack_trace") if key in like.meta}
        total.meta["val"] = value.meta["val"]
        return total

    def _sample_total(self, like: fx.Node) -> fx.Node:
        count = self._call(like, aten.full.default, [], self._samples(), dtype=_counting_type(like))
        return self._total(like, count)

    def _samples(self) -> fx.Node:
        """The number of samples at hand."""
        place = self._input()
        for node in self._graph.nodes:
            if node.target is aten.sym_size.int and node.args == (place, 0) and node.meta.get("first"):
                return node
        with self._graph.inserting_after(self._graph.find_nodes(op="placeholder")[-1]):
            size = self._graph.call_function(aten.sym_size.int, (place, 0))
        size.meta = {"val": place.meta["val"].shape[0], "first": True}
        return size

    def _input(self) -> fx.Node:
        user_inputs = set(self._captured.program.graph_signature.user_inputs)
        return next(
            node
            for node in self._graph.find_nodes(op="placeholder")
            if node.name in user_inputs and isinstance(node.meta.get("val"), torch.Tensor)
        )

    def _call(self, like: fx.Node, op: object, *args: object, **kwargs: object) -> fx.Node:
        return add_call(self._graph, like, op, args, kwargs)

    # What depends on what.

    def _is_data(self, node: fx.Node) -> bool:
        """Nothing that trains or changes is in it, no total, and no normalisation over the batch."""
        return not any(source in self._changing or source.target is batch_total for source in ancestors([node]))

    def _is_constant(self, node: fx.Node) -> bool:
        inputs = set(self._captured.program.graph_signature.user_inputs)
        return not any(source.name in inputs for source in ancestors([node]))

    def _changing_placeholders(self) -> set[fx.Node]:
        changing = set()
        specs = self._captured.program.graph_signature.input_specs
        for spec, node in zip(specs, self._graph.find_nodes(op="placeholder")):
            name = (spec.target or "").removeprefix("model.")
            trains = spec.kind is InputKind.PARAMETER and self._state[name].requires_grad
            if trains or (spec.kind is InputKind.BUFFER and spec.target in self._captured.states):
                changing.add(node)
        return changing


def _counting_type(like: fx.Node) -> torch.dtype:
    return torch.float64 if like.meta["val"].dtype is torch.float64 else torch.float32


def _has_places(found: object) -> bool:
    return found is not None and not isinstance(found, Kind)
