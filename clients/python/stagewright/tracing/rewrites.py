"""Rewrites that make single operators fit the engine: dropout inside attention, numbers passed as tensors."""

import math
import sys

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree

from ..errors import ExportError

aten = torch.ops.aten


_SHAPE_ONLY = {
    aten.slice.Tensor, aten.expand.default, aten.expand_as.default, aten.view.default, aten.reshape.default,
    aten.flatten.using_ints, aten.alias.default, aten.narrow.default,
}  # fmt: skip


# Python's operators on integers, and memory as it is found, which workers hand out to nobody: by the operators that all
# of them have.
_PLAIN = {
    aten.__and__.Tensor: aten.bitwise_and.Tensor, aten.__and__.Scalar: aten.bitwise_and.Scalar,
    aten.__or__.Tensor: aten.bitwise_or.Tensor, aten.__or__.Scalar: aten.bitwise_or.Scalar,
    aten.__xor__.Tensor: aten.bitwise_xor.Tensor, aten.__xor__.Scalar: aten.bitwise_xor.Scalar,
    aten.__lshift__.Tensor: aten.bitwise_left_shift.Tensor,
    aten.__lshift__.Scalar: aten.bitwise_left_shift.Tensor_Scalar,
    aten.__rshift__.Tensor: aten.bitwise_right_shift.Tensor,
    aten.__rshift__.Scalar: aten.bitwise_right_shift.Tensor_Scalar,
    aten.empty.memory_format: aten.zeros.default, aten.empty_like.default: aten.zeros_like.default,
    aten.new_empty.default: aten.new_zeros.default,
}  # fmt: skip


def name_plainly(graph: fx.Graph) -> None:
    """Replaces operators that graphs may not name by those that do the same."""
    for node in graph.nodes:
        if node.target in _PLAIN:
            if node.target is aten.empty.memory_format:
                node.kwargs = {name: value for name, value in node.kwargs.items() if name != "memory_format"}
            node.target = _PLAIN[node.target]


def keep_the_batch(graph: fx.Graph) -> None:
    """Names the dimensions that `x.squeeze()` takes away: of a micro-batch of one sample it would take the batch's, too.
    And gradients of tables are not sparse, which changes nothing in their values."""
    for node in graph.nodes:
        if node.target is aten.squeeze.default:
            sizes = node.args[0].meta["val"].shape
            node.target = aten.squeeze.dims
            node.args = (node.args[0], [dim for dim, size in enumerate(sizes) if isinstance(size, int) and size == 1])
        elif node.target in (aten.squeeze.dim, aten.squeeze.dims):
            sizes = node.args[0].meta["val"].shape
            dims = [node.args[1]] if isinstance(node.args[1], int) else node.args[1]
            if any(not isinstance(sizes[dim], int) for dim in dims):
                node.target = aten.squeeze.dims
                node.args = (node.args[0], [dim for dim in dims if isinstance(sizes[dim], int)])
        elif node.target is aten.embedding.default and len(node.args) > 4:
            node.args = node.args[:4]
        elif node.target in (aten.embedding_bag.default, aten.embedding_bag.padding_idx) and len(node.args) > 5:
            node.args = (*node.args[:5], False, *node.args[6:])


def is_mutating(node: fx.Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload) and node.target._schema.is_mutable


def erase_dead(graph: fx.Graph) -> None:
    """Removes what no result, and nothing that is changed in place, depends on: checks of types, say."""
    live, frontier = set(), [graph.output_node(), *filter(is_mutating, graph.nodes)]
    while frontier:
        node = frontier.pop()
        if node not in live:
            live.add(node)
            frontier.extend(node.all_input_nodes)
    for node in reversed(list(graph.nodes)):
        if node.op == "call_function" and node not in live:
            graph.erase_node(node)


def fold_identities(graph: fx.Graph, shape_env: object, keep_slices: bool) -> None:
    """Removes operators that change neither values nor shape, such as full slices and broadcasts of equal shapes; with
    `keep_slices` only those that do not for any length of the samples."""

    def same_shape(a: torch.Tensor, b: torch.Tensor) -> bool:
        def text(size: int | torch.SymInt) -> str:
            return str(size) if isinstance(size, int) else str(shape_env.simplify(size.node.expr))

        return [text(size) for size in a.shape] == [text(size) for size in b.shape]

    for node in list(graph.nodes):
        if node.target in _SHAPE_ONLY:
            if keep_slices and not _is_identity(node):
                continue
            step = node.args[4] if node.target is aten.slice.Tensor and len(node.args) > 4 else 1
            if step == 1 and same_shape(node.meta["val"], node.args[0].meta["val"]):
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
        elif node.target is aten.broadcast_tensors.default:
            for user in list(node.users):
                source = node.args[0][user.args[1]]
                if same_shape(user.meta["val"], source.meta["val"]):
                    user.replace_all_uses_with(source)
                    graph.erase_node(user)


def _is_identity(node: fx.Node) -> bool:
    """Whatever the sizes: an alias, or a slice without an end."""
    ends = node.args[3:4] if node.target is aten.slice.Tensor else ()
    return node.target is aten.alias.default or any(isinstance(end, int) and end >= sys.maxsize for end in ends)


def expose_attention_dropout(graph: fx.Graph) -> None:
    """Writes attention with dropout out as matmul, softmax, dropout, matmul.

    The engine keys dropout by sample, so that it does not depend on how the batch is cut; inside the fused operator it
    could not.
    """
    for node in list(graph.nodes):
        if node.target is aten.scaled_dot_product_attention.default:
            call = bind(node)
            if call["dropout_p"] != 0:
                with graph.inserting_before(node):
                    node.replace_all_uses_with(_explicit_attention(graph, node, call))
                graph.erase_node(node)


def write_out_instance_statistics(graph: fx.Graph) -> None:
    """Gives the running statistics of instance normalisation operators of their own, which change them once for a batch:
    the layer's operator would, unseen, for every micro-batch."""
    for node in graph.find_nodes(op="call_function", target=aten.instance_norm.default):
        call = bind(node)
        if not call["use_input_stats"]:
            continue
        with graph.inserting_before(node):
            values = add_call(graph, node, aten.detach.default, (call["input"],))
            for name, statistic in (("running_mean", aten.mean.dim), ("running_var", aten.var.dim)):
                if call[name] is not None:
                    _update_average(graph, node, call[name], statistic, values, call["momentum"])
        call |= {"running_mean": None, "running_var": None}
        node.args = tuple(call[argument.name] for argument in node.target._schema.arguments)
        node.kwargs = {}


def _update_average(
    graph: fx.Graph, like: fx.Node, average: fx.Node, statistic: torch._ops.OpOverload, values: fx.Node, momentum: float
) -> None:
    """`average` goes on by the mean over samples of what `statistic` says of each channel of each."""
    of_samples = add_call(graph, like, statistic, (values, [*range(2, values.meta["val"].dim())]))
    now = add_call(graph, like, aten.mean.dim, (of_samples, [0]))
    if now.meta["val"].dtype is not average.meta["val"].dtype:
        now = add_call(graph, like, aten.to.dtype, (now, average.meta["val"].dtype))
    add_call(graph, like, aten.copy_.default, (average, add_call(graph, like, aten.lerp.Scalar, (average, now, momentum))))


def bind(node: fx.Node) -> dict[str, object]:
    """Every argument of the call by its name in the schema, defaults included."""
    arguments = node.target._schema.arguments
    bound = {argument.name: argument.default_value for argument in arguments if argument.has_default_value()}
    bound.update(zip((argument.name for argument in arguments), node.args))
    bound.update(node.kwargs)
    return bound


def _explicit_attention(graph: fx.Graph, node: fx.Node, call: dict[str, object]) -> fx.Node:
    def emit(op: torch._ops.OpOverload, *args: object) -> fx.Node:
        return add_call(graph, node, op, args)

    if call["enable_gqa"]:
        raise ExportError(f"node '{node.name}': grouped-query attention with dropout cannot be captured; set it to 0")
    query, key, mask = call["query"], call["key"], call["attn_mask"]
    width = query.meta["val"].shape[-1]
    scale = call["scale"] if call["scale"] is not None else 1.0 / math.sqrt(width)
    scores = emit(aten.mul.Tensor, emit(aten.matmul.default, query, emit(aten.transpose.int, key, -2, -1)), scale)
    if call["is_causal"]:
        allowed = emit(aten.tril.default, emit(aten.ones_like.default, scores))
        scores = emit(aten.masked_fill.Scalar, scores, emit(aten.eq.Scalar, allowed, 0), -math.inf)
    elif mask is not None and mask.meta["val"].dtype is torch.bool:
        scores = emit(aten.masked_fill.Scalar, scores, emit(aten.logical_not.default, mask), -math.inf)
    elif mask is not None:
        scores = emit(aten.add.Tensor, scores, mask)
    weights = emit(aten.dropout.default, emit(aten.softmax.int, scores, -1), call["dropout_p"], True)
    return emit(aten.matmul.default, weights, call["value"])


def add_call(
    graph: fx.Graph, like: fx.Node, op: torch._ops.OpOverload, args: tuple, kwargs: dict | None = None
) -> fx.Node:
    """A new node of the same module and line as `like`, its result worked out on shapes."""
    result = graph.call_function(op, args, kwargs or {})
    result.meta = {key: like.meta[key] for key in ("nn_module_stack", "stack_trace") if key in like.meta}
    mode = next(tensor for tensor in pytree.tree_leaves(like.meta["val"]) if isinstance(tensor, torch.Tensor)).fake_mode
    # As the tracer does it: kernels of PyTorch's in C++ would make a number of the batch size.
    with enable_python_dispatcher(), mode, torch.no_grad():
        shapes = fx.map_arg((args, kwargs or {}), lambda n: n.meta["val"])
        result.meta["val"] = op(*shapes[0], **shapes[1])
    return result


def with_scalar_overload(target: torch._ops.OpOverload, args: tuple) -> torch._ops.OpOverload:
    """`aten.add.Scalar` for `aten.add.Tensor` called with a number, so that arguments are of the schema's kinds."""
    mistyped = [
        position
        for position, (argument, value) in enumerate(zip(target._schema.arguments, args))
        if isinstance(argument.type, torch.TensorType) and isinstance(value, (bool, int, float, torch.SymInt))
    ]
    if not mistyped:
        return target
    overload = getattr(target.overloadpacket, target._overloadname.replace("Tensor", "Scalar"), None)
    if overload is None:
        return target
    arguments = overload._schema.arguments
    if len(arguments) < len(args) or not all(isinstance(arguments[p].type, torch.NumberType) for p in mistyped):
        return target
    return overload
