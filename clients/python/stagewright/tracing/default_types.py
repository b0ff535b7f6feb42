"""Operators that make real numbers of whole ones, `positions / length`: of which type, PyTorch's default says. Workers have
float32 for it; where the model was traced with another, operands get that type."""

import contextlib
from collections.abc import Iterator

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch.utils import _pytree as pytree

from .rewrites import add_call, bind

aten = torch.ops.aten

_CHOICES = {aten.where.Scalar, aten.where.ScalarSelf, aten.where.ScalarOther}


def write_default_types(graph: fx.Graph) -> None:
    for node in list(graph.nodes):
        if node.op != "call_function" or not _makes_another_type(node):
            continue
        dtype = node.meta["val"].dtype
        with graph.inserting_before(node):
            if node.target in _CHOICES:
                result = _choice(graph, node, dtype)
            else:
                result = add_call(graph, node, node.target, _cast(graph, node, node.args, dtype), dict(node.kwargs))
        node.replace_all_uses_with(result)
        graph.erase_node(node)


def _makes_another_type(node: fx.Node) -> bool:
    """Whether a real number of a type that no operand has is one of another type where float32 is the default."""
    result = node.meta.get("val")
    read = [n.meta["val"] for n in node.all_input_nodes if isinstance(n.meta.get("val"), torch.Tensor)]
    if not isinstance(result, torch.Tensor) or not isinstance(node.target, torch._ops.OpOverload) or not read:
        return False
    if result.dtype is torch.float32 or not result.is_floating_point() or not all(map(_is_whole, read)):
        return False
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda n: n.meta["val"])
    with _default_of_workers(), enable_python_dispatcher(), result.fake_mode, torch.no_grad():
        return node.target(*args, **kwargs).dtype != result.dtype


def _is_whole(tensor: torch.Tensor) -> bool:
    return not tensor.is_floating_point() and not tensor.is_complex()


@contextlib.contextmanager
def _default_of_workers() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _cast(graph: fx.Graph, like: fx.Node, args: tuple, dtype: torch.dtype) -> tuple:
    def cast(argument: object) -> object:
        is_tensor = isinstance(argument, fx.Node) and isinstance(argument.meta.get("val"), torch.Tensor)
        return add_call(graph, like, aten.to.dtype, (argument, dtype)) if is_tensor else argument

    return pytree.tree_map_only(fx.Node, cast, args)


def _choice(graph: fx.Graph, node: fx.Node, dtype: torch.dtype) -> fx.Node:
    """A choice between numbers as one between tensors of one element."""
    call = bind(node)

    def tensor(value: object) -> object:
        is_tensor = isinstance(value, fx.Node) and isinstance(value.meta.get("val"), torch.Tensor)
        return value if is_tensor else add_call(graph, node, aten.full.default, ([], value), {"dtype": dtype})

    return add_call(graph, node, aten.where.self, (call["condition"], tensor(call["self"]), tensor(call["other"])))
