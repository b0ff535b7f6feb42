"""Passes that make a captured graph pure: no in-place operator, no nested graph.

Composite operators (linear, dropout, attention, losses, reshape) are kept as the model wrote them wherever possible:
they are what planners cost and what the engine dispatches. Only a graph that writes through views goes through
PyTorch's own functionalization, which rewrites some of them; `restore_composites` then undoes the two rewrites that
would lose meaning (dropout and batch normalisation).
"""

import operator
import warnings

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, OutputKind

from ..errors import ExportError
from .complex_numbers import write_out_complex_numbers
from .constants import fold_constants
from .custom_operators import inline_custom_operators, rewrite_known_operators
from .default_types import write_default_types
from .recurrent import split_recurrent_layers
from .regions import inline_regions
from .rewrites import (
    expose_attention_dropout,
    fold_identities,
    is_mutating,
    keep_the_batch,
    name_plainly,
    write_out_instance_statistics,
)

aten = torch.ops.aten

# Composite operators that never return a view of an argument. Others may, and are treated as views.
_FRESH_RESULT = {
    "linear", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "layer_norm", "group_norm", "batch_norm",
    "instance_norm", "embedding", "scaled_dot_product_attention", "cross_entropy_loss", "nll_loss", "silu", "selu",
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "bilinear", "cosine_similarity", "einsum", "rms_norm", "softmax", "log_softmax", "outer", "mse_loss",
}  # fmt: skip


def make_functional(
    program: ExportedProgram, shape_env: object, keep_slices: bool = False
) -> tuple[ExportedProgram, list[str]]:
    """A program whose graph has no in-place operator and no gradient-mode region, and the buffers that it changes.

    The graph's results are the new values of these buffers, in their order, before what the program returned.
    keep_slices: see fold_identities.
    """
    graph = program.graph_module.graph
    inline_regions(program)
    inline_custom_operators(program)
    write_out_instance_statistics(graph)
    changed = _rewrite_in_place(graph, program.graph_signature)
    if changed is None:
        program.graph_module.recompile()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own, about its tree specifications.
            program = program.run_decompositions({})
        changed = _mutated_buffers(program)
        _restore_composites(program.graph_module.graph)
    _replace_copies(program.graph_module.graph)
    write_out_complex_numbers(program)
    rewrite_known_operators(program.graph_module.graph)
    name_plainly(program.graph_module.graph)
    keep_the_batch(program.graph_module.graph)
    fold_constants(program)
    fold_identities(program.graph_module.graph, shape_env, keep_slices)
    expose_attention_dropout(program.graph_module.graph)
    split_recurrent_layers(program.graph_module.graph)
    write_default_types(program.graph_module.graph)
    for node in program.graph_module.graph.nodes:
        if is_mutating(node):
            raise ExportError(f"node '{node.name}': the in-place operator {node.target} has no functional form here")
    return program, changed


def _rewrite_in_place(graph: fx.Graph, signature: ExportGraphSignature) -> list[str] | None:
    """Turns in-place operators into pure ones and returns the buffers they change, whose new values become the first
    results. None, with the graph still valid, if a view or a parameter is written through.
    """
    buffers, inputs = signature.inputs_to_buffers, graph.find_nodes(op="placeholder")
    holders = {node: buffers[node.name] for node in inputs if node.name in buffers}
    fixed = {node for node in inputs if node.name in signature.inputs_to_parameters}
    placeholders = {name: node for node, name in holders.items()}
    newest: dict[str, fx.Node] = {}
    order = {node: position for position, node in enumerate(graph.nodes)}
    for node in filter(is_mutating, list(graph.nodes)):
        pure = _pure_overload(node.target)
        written = node.args[0] if node.args else None
        if pure is None or not isinstance(written, fx.Node) or not _may_rewrite(
            node, written, order, holders, fixed
        ):
            _write_back(graph, placeholders, newest)
            return None
        with graph.inserting_before(node):
            result = graph.call_function(pure, node.args, node.kwargs)
        result.meta = dict(node.meta)
        order[result] = order[node]
        node.replace_all_uses_with(result)
        written.replace_all_uses_with(result, delete_user_cb=lambda user: order.get(user, -1) > order[node])
        if written in holders:
            holders[result] = holders[written]
            newest[holders[written]] = result
        graph.erase_node(node)
    _return_first(graph, list(newest.values()))
    return list(newest)


def _may_rewrite(
    node: fx.Node, written: fx.Node, order: dict[fx.Node, int], holders: dict[fx.Node, str], fixed: set[fx.Node]
) -> bool:
    """Nothing but `written` itself shows what `node` writes: no alias that is read later, no buffer or parameter seen
    by a view. holders: buffers and what replaced them; fixed: parameters."""
    aliases = _may_alias(written) - {node}
    if aliases & fixed:
        return False
    aliases -= {written}
    if any(order[user] > order[node] for alias in aliases for user in alias.users if user is not node):
        return False
    return written in holders or not any(alias in holders for alias in aliases)


def _write_back(graph: fx.Graph, placeholders: dict[str, fx.Node], newest: dict[str, fx.Node]) -> None:
    """Writes the new values of buffers to them at the graph's end, as a module would."""
    with graph.inserting_before(graph.output_node()):
        for name, value in newest.items():
            copied = graph.call_function(aten.copy_.default, (placeholders[name], value))
            copied.meta = dict(value.meta)


def _return_first(graph: fx.Graph, values: list[fx.Node]) -> None:
    output = graph.output_node()
    output.args = ((*values, *output.args[0]),)


def _mutated_buffers(program: ExportedProgram) -> list[str]:
    """The buffers whose new values PyTorch's functionalization returns first. Batch normalisation, which will be one
    operator again, changes its statistics by itself."""
    output = program.graph_module.graph.output_node()
    changed, values = [], []
    for spec, value in zip(program.graph_signature.output_specs, output.args[0]):
        if spec.kind is OutputKind.BUFFER_MUTATION and not _is_batch_statistic(value):
            changed.append(spec.target)
            values.append(value)
        elif spec.kind is OutputKind.USER_OUTPUT:
            values.append(value)
        elif spec.kind is OutputKind.PARAMETER_MUTATION:
            raise ExportError(
                f"forward changes the parameter '{spec.target.removeprefix('model.')}' in place; only an optimizer may: "
                "compute a new tensor of it, and keep what forward itself carries on, as averages, in buffers"
            )
    output.args = (tuple(values),)
    return changed


def _is_batch_statistic(value: fx.Node) -> bool:
    return value.target is operator.getitem and value.args[0].target is aten._native_batch_norm_legit_functional.default


def _pure_overload(op: torch._ops.OpOverload) -> torch._ops.OpOverload | None:
    """`aten.relu.default` for `aten.relu_.default`; None unless the operator writes its first argument only."""
    written = [a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write]
    name = op._schema.name.removeprefix("aten::")
    if not name.endswith("_") or written != [op._schema.arguments[0].name]:
        return None
    packet = getattr(aten, name[:-1], None)
    return getattr(packet, op._overloadname, None) if packet is not None else None


def _is_view(node: fx.Node) -> bool:
    """True if a result of `node` may share memory with an argument."""
    if node.target is operator.getitem:
        return True
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    if any(argument.alias_info is not None for argument in node.target._schema.returns):
        return True
    name = node.target._schema.name
    if name.removeprefix("aten::") in _FRESH_RESULT:
        return False
    return torch._C._dispatch_has_kernel_for_dispatch_key(node.target.name(), "CompositeImplicitAutograd")


def _may_alias(node: fx.Node) -> set[fx.Node]:
    """`node` and every node that may share its memory."""
    found, frontier = set(), [node]
    while frontier:
        current = frontier.pop()
        if current in found:
            continue
        found.add(current)
        if _is_view(current) or is_mutating(current):
            frontier.extend(n for n in current.all_input_nodes if isinstance(n.meta.get("val"), (torch.Tensor, list)))
        frontier.extend(user for user in current.users if _is_view(user))
    return found


def _replace_copies(graph: fx.Graph) -> None:
    """`aten.copy(old, new)` has no derivative; its value is `new`, in the shape and dtype of `old`."""
    for node in list(graph.nodes):
        if node.target is not aten.copy.default:
            continue
        old, new = node.args[:2]
        with graph.inserting_before(node):
            if new.meta["val"].shape != old.meta["val"].shape:
                new = _derived(graph, aten.expand_as.default, (new, old), node)
            if node.args[1].meta["val"].dtype != old.meta["val"].dtype:
                new = _derived(graph, aten.to.dtype, (new, old.meta["val"].dtype), node)
        node.replace_all_uses_with(new)
        graph.erase_node(node)


def _derived(graph: fx.Graph, op: torch._ops.OpOverload, arguments: tuple, like: fx.Node) -> fx.Node:
    """A new node that stands for `like`: same shape, same module."""
    result = graph.call_function(op, arguments)
    result.meta = dict(like.meta)
    return result


def _restore_composites(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.target is aten.native_dropout.default:
            probability, train = node.args[1], node.args[2]
            _replace_first_output(graph, node, aten.dropout.default, (node.args[0], probability, train is not False))
        elif node.target is aten._native_batch_norm_legit_functional.default:
            x, weight, bias, mean, variance, training, momentum, epsilon = node.args
            arguments = (x, weight, bias, mean, variance, training, momentum, epsilon, False)
            _replace_first_output(graph, node, aten.batch_norm.default, arguments)
        elif node.target is aten._native_batch_norm_legit.no_stats:
            x, weight, bias, training, momentum, epsilon = node.args
            arguments = (x, weight, bias, None, None, training, momentum, epsilon, False)
            _replace_first_output(graph, node, aten.batch_norm.default, arguments)


def _replace_first_output(graph: fx.Graph, node: fx.Node, op: torch._ops.OpOverload, arguments: tuple) -> None:
    """Replaces a node of several outputs by `op`, for the users of its first output."""
    for user in [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]:
        with graph.inserting_before(node):
            result = graph.call_function(op, arguments)
        result.meta = dict(user.meta)
        user.replace_all_uses_with(result)
