"""Constants that forward makes, `torch.tensor(3.0)`, as arguments of the operators that read them."""

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from .rewrites import with_scalar_overload

aten = torch.ops.aten

# The last stands for the first where PyTorch has made the graph functional.
_COPIES = {
    aten.lift_fresh_copy.default, aten.lift_fresh.default, aten.detach.default, aten.alias.default, aten.clone.default,
}  # fmt: skip


def fold_constants(program: ExportedProgram) -> None:
    """Writes single numbers where an operator takes one with the same result, and leaves empty tensors out of joins."""
    values = _constants(program)
    if not values:
        return
    for node in list(program.graph_module.graph.nodes):
        if node.op != "call_function" or values.keys().isdisjoint(node.all_input_nodes):
            continue
        if node.target in _COPIES and isinstance(node.args[0], fx.Node):
            values[node] = values[node.args[0]]
        elif node.target is aten.cat.default:
            _leave_out_empty(node, values)
        elif isinstance(node.target, torch._ops.OpOverload):
            _pass_numbers(node, values)


def _constants(program: ExportedProgram) -> dict[fx.Node, torch.Tensor]:
    """The inputs of the graph that are constants of forward itself, not tensors that a module holds."""
    found = {}
    for spec, node in zip(program.graph_signature.input_specs, program.graph_module.graph.find_nodes(op="placeholder")):
        if spec.kind is InputKind.CONSTANT_TENSOR and spec.target.split(".")[-1].startswith("lifted_tensor_"):
            value = program.constants.get(spec.target)
            if isinstance(value, torch.Tensor) and not isinstance(value, FakeTensor) and not value.is_meta:
                found[node] = value
    return found


def _leave_out_empty(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> None:
    """PyTorch joins tensors of no element and one dimension with anything."""
    parts = [part for part in node.args[0] if part not in values or tuple(values[part].shape) != (0,)]
    if not parts or parts[0].meta["val"].dtype != node.meta["val"].dtype:
        return
    if len(parts) == 1:
        node.replace_all_uses_with(parts[0])
        node.graph.erase_node(node)
    else:
        node.args = (parts, *node.args[1:])


def _pass_numbers(node: fx.Node, values: dict[fx.Node, torch.Tensor]) -> None:
    def number(argument: object) -> object:
        value = values.get(argument) if isinstance(argument, fx.Node) else None
        return value.item() if value is not None and value.dim() == 0 else argument

    args = tuple(map(number, node.args))
    target = with_scalar_overload(node.target, args)
    if target is node.target or not isinstance(node.meta.get("val"), torch.Tensor):
        return
    shapes = fx.map_arg(args, lambda n: n.meta["val"])
    kwargs = fx.map_arg(dict(node.kwargs), lambda n: n.meta["val"])
    with node.meta["val"].fake_mode, torch.no_grad():
        same = target(*shapes, **kwargs).dtype == node.meta["val"].dtype
    if same:
        node.target, node.args = target, args
