"""Tensors over the memory of parameters and buffers.

In eager mode they change with it. A graph holds what is no parameter or buffer of a module as a constant, and gives every
parameter memory of its own: what is a parameter by another way - in a list, a closure, a partial function - is read as
that parameter, and all else is refused.
"""

import torch
from torch import fx
from torch._C._functorch import is_functorch_wrapped_tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ..errors import ExportError
from .places import line_of_node


def refuse_shared_memory(state: dict[str, torch.Tensor]) -> None:
    """ExportError for two tensors of the state over the same memory, of which one is trained."""
    placed = sorted(
        (*_range(tensor), position, name) for position, (name, tensor) in enumerate(state.items()) if _has_memory(tensor)
    )
    reaching: list[tuple[int, int, int, str]] = []
    for entry in placed:
        reaching = [other for other in reaching if other[1] > entry[0]]
        for other in reaching:
            (_, first), (_, second) = sorted([entry[2:], other[2:]])
            if state[first] is not state[second] and _overlap(state[first], state[second]):
                _refuse_pair(first, second, state)
        reaching.append(entry)


def _refuse_pair(first: str, second: str, state: dict[str, torch.Tensor]) -> None:
    pair = state[first], state[second]
    if any(tensor.requires_grad for tensor in pair):
        parameters = all(isinstance(tensor, torch.nn.Parameter) for tensor in pair)
        tie = f"make them one parameter (module.{second} = module.{first}), or " if parameters else ""
        raise ExportError(
            f"'{first}' and '{second}' are two tensors over the same memory, so that the update of one would change the "
            f"other; {tie}give each its own (.clone())"
        )


def read_as_state(program: ExportedProgram, tensors: dict[str, torch.Tensor]) -> None:
    """Replaces constants of the graph that are parameters or buffers by these. ExportError, with the line that reads it,
    for one that has only some of their memory.

    tensors: parameters and buffers by the name that the program has for them.
    """
    holders: dict[str, fx.Node] = {}
    constants: list[tuple[fx.Node, torch.Tensor]] = []
    for spec, node in zip(program.graph_signature.input_specs, program.graph_module.graph.find_nodes(op="placeholder")):
        if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
            holders[spec.target] = node
        elif spec.kind is InputKind.CONSTANT_TENSOR and isinstance(program.constants.get(spec.target), torch.Tensor):
            constants.append((node, program.constants[spec.target]))
    held = [(name, tensors[name]) for name in holders if name in tensors and _has_memory(tensors[name])]
    for node, constant in constants:
        if not node.users or not _has_memory(constant):
            continue
        for name, tensor in held:
            if _is_same(constant, tensor):
                node.replace_all_uses_with(holders[name])
                break
            if _overlap(constant, tensor):
                raise ExportError(
                    f"forward reads a tensor over the memory of '{name.removeprefix('model.')}' that was made before"
                    f"{line_of_node(next(iter(node.users)))}, and would not change with it in a graph; make it of the "
                    "parameter in forward"
                )


def _has_memory(tensor: torch.Tensor) -> bool:
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and not is_functorch_wrapped_tensor(tensor)
    return plain and tensor.device.type == "cpu" and tensor.layout is torch.strided and tensor.numel() > 0


def _range(tensor: torch.Tensor) -> tuple[int, int]:
    """The addresses from the first byte to behind the last."""
    entries = 1 + sum((size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride()))
    return tensor.data_ptr(), tensor.data_ptr() + entries * tensor.element_size()


def _is_same(a: torch.Tensor, b: torch.Tensor) -> bool:
    return (a.data_ptr(), a.shape, a.stride(), a.dtype) == (b.data_ptr(), b.shape, b.stride(), b.dtype)


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether an entry of one is in the memory of an entry of the other."""
    (begin, end), (other_begin, other_end) = _range(a), _range(b)
    if end <= other_begin or other_end <= begin:
        return False
    if a.element_size() != b.element_size() or (a.is_contiguous() and b.is_contiguous()):
        return True
    first, size = min(begin, other_begin), a.element_size()
    taken = torch.zeros((max(end, other_end) - first) // size, dtype=torch.bool)
    taken.as_strided(a.shape, a.stride(), (begin - first) // size).fill_(True)
    return bool(taken.as_strided(b.shape, b.stride(), (other_begin - first) // size).any())
