"""Which values of a traced graph gradients of parameters pass through."""

import torch
from torch import fx
from torch.export import ExportedProgram


def with_gradient(program: ExportedProgram, before: fx.Node) -> set[fx.Node]:
    """The nodes ahead of `before` that depend on a parameter in a way that gradients follow."""
    parameters = program.graph_signature.inputs_to_parameters
    dependent: set[fx.Node] = set()
    for node in program.graph_module.graph.nodes:
        if node is before:
            break
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not (value.is_floating_point() or value.is_complex()):
            continue
        if node.name in parameters or (
            node.target is not torch.ops.aten.detach.default and not dependent.isdisjoint(node.all_input_nodes)
        ):
            dependent.add(node)
    return dependent
