"""What the tensors of a graph are: who reads them, how large they are, what a node's arguments stand for."""

import math
from collections.abc import Callable, Iterator

import torch

from ..lowering import DTYPES
from ..proto import pb

TORCH_DTYPES = {code: dtype for dtype, code in DTYPES.items()}

# One output of one node: (index in Graph.nodes, index in Node.outputs).
Value = tuple[int, int]


def arguments(node: "pb.Node") -> Iterator["pb.Argument"]:
    """Every argument of a node, those in lists among them."""
    frontier = [*node.args, *(entry.value for entry in node.kwargs)]
    while frontier:
        argument = frontier.pop()
        if argument.HasField("list"):
            frontier.extend(argument.list.items)
        else:
            yield argument


def values_read(node: "pb.Node") -> list[Value]:
    """The values that a node reads, each once, sorted."""
    read = {(a.value.node, a.value.output) for a in arguments(node) if a.HasField("value")}
    return sorted(read)


def size_at(size: "pb.SymInt", samples: int) -> int:
    return size.scale * samples + size.offset


def bytes_at(meta: "pb.TensorMeta", samples: int) -> int:
    """Bytes of a tensor for so many samples."""
    elements = math.prod(size_at(size, samples) for size in meta.shape)
    return elements * TORCH_DTYPES[meta.dtype].itemsize


def operator_of(node: "pb.Node") -> Callable:
    """The operator that a node calls: "aten.linear.default" in torch.ops."""
    found: object = torch.ops
    for part in node.target.split("."):
        found = getattr(found, part)
    return found


def resolve(argument: "pb.Argument", tensors: Callable[["pb.Argument"], torch.Tensor], samples: int) -> object:
    """What an argument stands for; `tensors` gives values, parameters, inputs and totals."""
    kind = argument.WhichOneof("kind")
    if kind in ("value", "parameter", "input", "total"):
        return tensors(argument)
    if kind == "list":
        return [resolve(item, tensors, samples) for item in argument.list.items]
    if kind == "integer":
        return size_at(argument.integer, samples)
    if kind == "none":
        return None
    if kind == "dtype":
        return TORCH_DTYPES[argument.dtype]
    if kind == "memory_format":
        return getattr(torch, argument.memory_format)
    return getattr(argument, kind)
