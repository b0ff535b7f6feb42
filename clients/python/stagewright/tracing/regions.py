"""Regions of forward that run without gradients or under autocast, written into the operators themselves.

What is computed without gradients is detached where gradients are on again. Under autocast, every operator gets the
casts that autocast would make.
"""

import contextlib
import dataclasses
import operator
from unittest import mock

import torch
from torch import fx
from torch._export.passes import replace_autocast_with_hop_pass, replace_set_grad_with_hop_pass
from torch.amp import autocast_mode
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..errors import ExportError
from .autocasts import autocast_arguments
from .gradients import with_gradient
from .places import describe

aten = torch.ops.aten


@contextlib.contextmanager
def marked_regions():
    """While open, torch.export leaves regions as marks at their begin and end.

    It would make nested graphs of them, but loses regions without gradients that lie inside autocast.
    """

    def unchanged(module, signature):
        return module, signature

    with (
        mock.patch.object(replace_autocast_with_hop_pass, "replace_autocast_with_hop_pass", unchanged),
        mock.patch.object(replace_set_grad_with_hop_pass, "replace_set_grad_with_hop_pass", unchanged),
    ):
        yield


@dataclasses.dataclass
class _State:
    """What holds at a place of the graph."""

    gradients: bool = True
    # (the mark that began it, type, whether it is on), innermost last.
    autocasts: list[tuple[fx.Node, torch.dtype, bool]] = dataclasses.field(default_factory=list)

    def precision(self) -> torch.dtype | None:
        return self.autocasts[-1][1] if self.autocasts and self.autocasts[-1][2] else None


def inline_regions(program: ExportedProgram) -> None:
    """Removes the marks of `marked_regions`, with casts and detached values in their place."""
    graph, state = program.graph_module.graph, _State()
    without_gradient: set[fx.Node] = set()
    detached: dict[fx.Node, fx.Node] = {}
    casts = _Casts(program)
    marks = []
    for node in list(graph.nodes):
        if _is_mark(node):
            _enter(state, node)
            marks.append(node)
            if not state.autocasts:
                casts.forget()
        elif node.op == "call_function":
            if state.precision() is not None:
                casts.insert(node, state.precision())
            if not state.gradients or (node.target is operator.getitem and node.args[0] in without_gradient):
                _check_write(program, node, without_gradient)
                without_gradient.add(node)
            else:
                _detach_inputs(graph, node, without_gradient, detached)
        elif node.op == "output":
            _detach_inputs(graph, node, without_gradient, detached)
    for mark in reversed(marks):
        graph.erase_node(mark)


def _is_mark(node: fx.Node) -> bool:
    return node.target in (torch._C._set_grad_enabled, autocast_mode._enter_autocast, autocast_mode._exit_autocast)


def _enter(state: _State, mark: fx.Node) -> None:
    if mark.target is torch._C._set_grad_enabled:
        state.gradients = mark.args[0]
    elif mark.target is autocast_mode._exit_autocast:
        state.autocasts = [entry for entry in state.autocasts if entry[0] is not mark.args[0]]
    else:
        device, dtype, enabled, _ = mark.args
        if enabled and device != "cpu":
            raise ExportError(
                f"{describe(mark)}: autocast for '{device}' does not act on the CPU, where models are captured; write "
                "torch.autocast(x.device.type, dtype=...), which acts on whatever device x is on"
            )
        state.autocasts.append((mark, dtype, enabled))


def _detach_inputs(graph: fx.Graph, node: fx.Node, without_gradient: set[fx.Node], detached: dict) -> None:
    """Makes `node`, which gradients pass through, read what was computed without them as constants."""
    for source in node.all_input_nodes:
        value = source.meta.get("val")
        if source not in without_gradient or not isinstance(value, torch.Tensor):
            continue
        if not value.is_floating_point() and not value.is_complex():
            continue
        if source not in detached:
            with graph.inserting_before(node):
                detached[source] = graph.call_function(aten.detach.default, (source,))
            detached[source].meta = dict(source.meta)
        node.replace_input_with(source, detached[source])


def _check_write(program: ExportedProgram, node: fx.Node, without_gradient: set[fx.Node]) -> None:
    """Refuses to change in place, hidden from gradients, what gradients pass through."""
    if not isinstance(node.target, torch._ops.OpOverload) or not node.target._schema.is_mutable or not node.args:
        return
    written = node.args[0]
    if not isinstance(written, fx.Node) or written.op == "placeholder" or written in without_gradient:
        return
    if written in with_gradient(program, node):
        raise ExportError(
            f"{describe(node)}: forward changes a value in place under no_grad that gradients pass through; compute "
            "a new tensor from value.detach() instead"
        )


class _Casts:
    """Inserts the casts of autocast. Those of a parameter are made once for all its readers in a region, as autocast
    does; all others once per reader, so that gradients are added up after they are cast back."""

    def __init__(self, program: ExportedProgram):
        self._graph = program.graph_module.graph
        self._parameters = program.graph_signature.inputs_to_parameters
        self._of_parameter: dict[tuple[fx.Node, torch.dtype], fx.Node] = {}
        self._known: dict[tuple, list[torch.dtype | None] | None] = {}

    def forget(self) -> None:
        self._of_parameter.clear()

    def insert(self, node: fx.Node, dtype: torch.dtype) -> None:
        if not isinstance(node.target, torch._ops.OpOverload):
            return
        leaves, spec = pytree.tree_flatten((node.args, dict(node.kwargs)))
        values = [leaf.meta.get("val") if isinstance(leaf, fx.Node) else leaf for leaf in leaves]
        if not any(isinstance(value, torch.Tensor) and value.is_floating_point() for value in values):
            return
        casts = self._casts(node, values, spec, dtype)
        places = [place for place, value in enumerate(values) if isinstance(value, torch.Tensor)]
        for place, cast in zip(places, casts):
            if cast is not None:
                leaves[place] = self._cast(node, leaves[place], cast)
        node.args, node.kwargs = pytree.tree_unflatten(leaves, spec)

    def _casts(self, node: fx.Node, values: list, spec: pytree.TreeSpec, dtype: torch.dtype) -> list:
        shown = [(v.dtype, str(tuple(v.shape))) if isinstance(v, torch.Tensor) else str(v) for v in values]
        key = (node.target, dtype, tuple(shown), str(spec))
        if key not in self._known:
            self._known[key] = autocast_arguments(node.target, *pytree.tree_unflatten(values, spec), dtype)
        if self._known[key] is None:
            raise ExportError(
                f"{describe(node)}: autocast changes the precision inside this operator, which cannot be captured; put "
                "it under torch.autocast(x.device.type, enabled=False) and cast its inputs"
            )
        return self._known[key]

    def _cast(self, node: fx.Node, source: fx.Node, dtype: torch.dtype) -> fx.Node:
        shared = self._of_parameter.get((source, dtype))
        if shared is not None:
            return shared
        with self._graph.inserting_before(node):
            result = self._graph.call_function(aten.to.dtype, (source, dtype))
        result.meta = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
        result.meta["val"] = source.meta["val"].to(dtype)
        if source.name in self._parameters:
            self._of_parameter[source, dtype] = result
        return result
