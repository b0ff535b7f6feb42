"""Building blocks of graphs in which complex numbers are real tensors with a last dimension of 2."""

import operator
from collections.abc import Callable

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, InputSpec, TensorArgument
from torch.utils import _pytree as pytree

from .rewrites import add_call

aten = torch.ops.aten

# An operand: a value of the graph, real or complex, or a number.
Number = fx.Node | complex | float | int

_REAL = {torch.complex64: torch.float32, torch.complex128: torch.float64, torch.complex32: torch.float16}


def is_complex(value: object) -> bool:
    """Whether a traced value is a complex tensor, or holds one."""
    return any(isinstance(leaf, torch.Tensor) and leaf.is_complex() for leaf in pytree.tree_leaves(value))


def real_type(dtype: torch.dtype) -> torch.dtype:
    """The type of the parts of numbers of a complex type; other types are their own."""
    return _REAL.get(dtype, dtype)


class Pairs:
    """The pairs that stand for complex values, and what makes more of them: real operators, put where the graph inserts
    now, on behalf of the node `like`."""

    def __init__(self, program: ExportedProgram):
        self._program = program
        self._graph = program.graph_module.graph
        self._parts: dict[fx.Node, tuple[fx.Node, fx.Node]] = {}
        self._constants: dict[object, fx.Node] = {}
        self.of: dict[fx.Node, fx.Node] = {}
        self.like: fx.Node

    # Values.

    def is_complex(self, value: object) -> bool:
        return isinstance(value, complex) or (isinstance(value, fx.Node) and value in self.of)

    def rank(self, value: fx.Node) -> int:
        return value.meta["val"].dim()

    def parts(self, value: Number) -> tuple[Number, Number]:
        """Real and imaginary part of what is complex."""
        if isinstance(value, complex):
            return value.real, value.imag
        pair = self.of[value]
        if pair not in self._parts:
            split = self.call(aten.unbind.int, pair, -1)
            self._parts[pair] = tuple(self.call(operator.getitem, split, part) for part in range(2))
        return self._parts[pair]

    def pair(self, real: Number, imaginary: Number) -> fx.Node:
        """Two real values of shapes that broadcast, as one complex value."""
        if real.meta["val"].shape != imaginary.meta["val"].shape:
            both = self.call(aten.broadcast_tensors.default, [real, imaginary])
            real, imaginary = (self.call(operator.getitem, both, part) for part in range(2))
        return self.call(aten.stack.default, [real, imaginary], -1)

    def as_pair(self, value: fx.Node) -> fx.Node:
        """The pair of a complex value; of a real one, that with zeros."""
        if value in self.of:
            return self.of[value]
        value = self.as_type(value, real_type(self.like.meta["val"].dtype))
        return self.pair(value, self.call(aten.zeros_like.default, value))

    def beside(self, value: Number) -> Number:
        """A real operand in a shape that broadcasts with pairs."""
        return self.call(aten.unsqueeze.default, value, -1) if isinstance(value, fx.Node) else value

    def as_type(self, value: fx.Node, dtype: torch.dtype) -> fx.Node:
        return value if value.meta["val"].dtype is dtype else self.call(aten.to.dtype, value, dtype)

    def operand(self, pair: fx.Node) -> fx.Node:
        """A pair inside a longer computation as a complex value, which it then stands for itself."""
        self.of[pair] = pair
        return pair

    # Operators.

    def call(self, op: Callable, *args: object, **kwargs: object) -> fx.Node:
        return add_call(self._graph, self.like, op, args, kwargs)

    # Constants.

    def constant_of(self, tensor: torch.Tensor, node: fx.Node) -> fx.Node:
        """A complex constant as the pair in its place."""
        pair = torch.view_as_real(tensor.detach().resolve_conj()).clone()
        return self.constant(node, lambda: pair, f"{node.name}_pair", node)

    def constant(self, key: object, make: Callable[[], torch.Tensor], name: str, like: fx.Node) -> fx.Node:
        """A tensor that the graph itself holds; one for all with an equal key."""
        if key not in self._constants:
            tensor = make()
            with self._graph.inserting_before(self._graph.find_nodes(op="placeholder")[0]):
                node = self._graph.placeholder(name)
            mode = next(t for t in pytree.tree_leaves(like.meta["val"]) if isinstance(t, torch.Tensor)).fake_mode
            node.meta["val"] = mode.from_tensor(tensor, static_shapes=True)
            spec = InputSpec(InputKind.CONSTANT_TENSOR, TensorArgument(node.name), node.name)
            self._program.graph_signature.input_specs.insert(0, spec)
            self._program.constants[node.name] = tensor
            self._constants[key] = node
        return self._constants[key]
