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

from .custom_operators import inline_custom_operators, rewrite_known_operators
from .errors import ExportError
from .recurrent import split_recurrent_layers
from .regions import inline_regions
from .rewrites import expose_attention_dropout, fold_identities

aten = torch.ops.aten

# Composite operators that never return a view of an argument. Others may, and are treated as views.
_FRESH_RESULT = {
    "linear", "matmul", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "layer_norm", "group_norm", "batch_norm",
    "instance_norm", "embedding", "scaled_dot_product_attention", "cross_entropy_loss", "nll_loss", "silu", "selu",
    "max_pool1d", "max_pool2d", "max_pool3d", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d",
    "bilinear", "cosine_similarity", "einsum", "rms_norm", "softmax", "log_softmax", "outer", "mse_loss",
}  # fmt: skip


def is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def make_functional(program: ExportedProgram, shape_env: object) -> ExportedProgram:
    """Returns a program whose graph has no in-place operator and no gradient-mode region."""
    graph = program.graph_module.graph
    inline_regions(program)
    inline_custom_operators(program)
    _drop_counters(graph, program)
    if not _rewrite_in_place(graph):
        program.graph_module.recompile()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)  # PyTorch's own, about its tree specifications.
            program = program.run_decompositions({})
        _restore_composites(program.graph_module.graph)
    _replace_copies(program.graph_module.graph)
    rewrite_known_operators(program.graph_module.graph)
    fold_identities(program.graph_module.graph, shape_env)
    expose_attention_dropout(program.graph_module.graph)
    split_recurrent_layers(program.graph_module.graph)
    for node in program.graph_module.graph.nodes:
        if is_mutating(node):
            raise ExportError(f"node '{node.name}': the in-place operator {node.target} has no functional form here")
    return program


def _drop_counters(graph: fx.Graph, program: ExportedProgram) -> None:
    """Removes batch norm's `num_batches_tracked += 1`; any other state kept by the module is refused."""
    state = program.graph_signature.inputs_to_buffers | program.graph_signature.inputs_to_parameters
    for node in list(graph.nodes):
        if not is_mutating(node) or not isinstance(node.args[0], fx.Node) or node.args[0].name not in state:
            continue
        name = state[node.args[0].name].removeprefix("model.")
        if node.users or not name.endswith("num_batches_tracked"):
            raise ExportError(
                f"node '{node.name}': forward changes '{name}' in place ({node.target}); state that a module carries "
                "from one step to the next cannot be captured"
            )
        graph.erase_node(node)


def _rewrite_in_place(graph: fx.Graph) -> bool:
    """Turns in-place operators into pure ones. False, with the graph still valid, if a view is written through."""
    while True:
        order = {node: position for position, node in enumerate(graph.nodes)}
        node = next((n for n in order if is_mutating(n)), None)
        if node is None:
            return True
        pure = _pure_overload(node.target)
        if pure is None or not isinstance(node.args[0], fx.Node):
            return False
        written = node.args[0]
        for alias in _may_alias(written) - {written, node}:
            if any(order[user] > order[node] for user in alias.users if user is not node):
                return False
        with graph.inserting_before(node):
            result = graph.call_function(pure, node.args, node.kwargs)
        result.meta = dict(node.meta)
        node.replace_all_uses_with(result)
        written.replace_all_uses_with(result, delete_user_cb=lambda user: order.get(user, -1) > order[node])
        graph.erase_node(node)


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


def _replace_first_output(graph: fx.Graph, node: fx.Node, op: torch._ops.OpOverload, arguments: tuple) -> None:
    """Replaces a node of several outputs by `op`, for the users of its first output."""
    for user in [u for u in node.users if u.target is operator.getitem and u.args[1] == 0]:
        with graph.inserting_before(node):
            result = graph.call_function(op, arguments)
        result.meta = dict(user.meta)
        user.replace_all_uses_with(result)
