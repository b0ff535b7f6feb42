"""Complex numbers of a graph, written as real tensors with a last dimension of 2: real and imaginary part.

The engine and the files have real types only. What is known here of an operator is in three tables: arithmetic below,
`complex_shapes.py` and `fourier.py`; what is in none is refused. Autograd's gradients of a complex number are those of its
two parts, so that training is the same.
"""

import operator
from collections.abc import Callable

import torch
from torch import fx
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind

from ..errors import ExportError
from .complex_shapes import SHAPES
from .fourier import TRANSFORMS
from .pairs import Number, Pairs, is_complex, real_type
from .places import describe
from .rewrites import bind, erase_dead

aten = torch.ops.aten

# Powers up to this are written as products.
_HIGHEST_POWER = 8


def write_out_complex_numbers(program: ExportedProgram) -> None:
    """Replaces every complex value of the graph, and the operators on them. ExportError for what is not known."""
    graph = program.graph_module.graph
    if not any(_touches_complex(node) for node in graph.nodes):
        return
    erase_dead(graph)
    touched, pairs = [node for node in graph.nodes if _touches_complex(node)], Pairs(program)
    for node in touched:
        if node.op == "placeholder":
            if node.users:
                pairs.of[node] = pairs.constant_of(_held_constant(program, node), node)
        elif node.op == "output":
            _write_output(node)
        elif node.target is aten.sym_size.int:
            node.args = (pairs.of[node.args[0]], node.args[1] % pairs.rank(node.args[0]))
        else:
            with graph.inserting_before(node):
                _write_out(pairs, node)
    for node in reversed(touched):
        if node.op == "placeholder":
            _forget_placeholder(program, node)
        elif _touches_complex(node):
            graph.erase_node(node)
    for node in graph.find_nodes(op="call_function", target=aten.view.default):
        node.target = aten.reshape.default  # What it reads may lie otherwise in memory now.


def refuse_complex_state(name: str, tensor: torch.Tensor) -> ExportError:
    """The error for a complex tensor that checkpoints would have to hold."""
    if isinstance(tensor, torch.nn.Parameter):
        return ExportError(
            f"parameter '{name}' is complex, which checkpoints of real types cannot hold; keep a real one with a last "
            "dimension of 2, and read it in forward as torch.view_as_complex(parameter)"
        )
    return ExportError(
        f"buffer '{name}' is complex, which checkpoints of real types cannot hold; register it with persistent=False, or "
        "keep torch.view_as_real of it"
    )


def _touches_complex(node: fx.Node) -> bool:
    return any(is_complex(n.meta.get("val")) for n in (node, *node.all_input_nodes))


def _spec_of(program: ExportedProgram, node: fx.Node) -> int:
    return program.graph.find_nodes(op="placeholder").index(node)


def _held_constant(program: ExportedProgram, node: fx.Node) -> torch.Tensor:
    """The value of a complex tensor that no step changes and no checkpoint has."""
    spec = program.graph_signature.input_specs[_spec_of(program, node)]
    value = program.constants.get(spec.target)
    if value is None or spec.kind not in (InputKind.CONSTANT_TENSOR, InputKind.BUFFER):
        name = (spec.target or node.name).removeprefix("model.")
        raise refuse_complex_state(name, program.state_dict.get(spec.target, torch.empty(0)))
    if value.is_meta or type(value).__name__ == "FakeTensor":
        raise ExportError(
            f"'{spec.target.removeprefix('model.')}' is complex and has no data, so it cannot be captured"
        )
    return value


def _forget_placeholder(program: ExportedProgram, node: fx.Node) -> None:
    del program.graph_signature.input_specs[_spec_of(program, node)]
    program.graph_module.graph.erase_node(node)


def _write_output(node: fx.Node) -> None:
    """A complex prediction is none; a complex loss or state is refused."""
    *others, prediction = node.args[0]
    for other in others:
        if isinstance(other, fx.Node) and is_complex(other.meta["val"]):
            raise ExportError(f"{describe(other)}: the loss, and what forward writes to a buffer, must not be complex")
    if isinstance(prediction, fx.Node) and is_complex(prediction.meta["val"]):
        node.args = ((*others, None),)


def _write_out(pairs: Pairs, node: fx.Node) -> None:
    """Puts real operators in the place of one that reads or makes complex values."""
    pairs.like = node
    if node.target is operator.getitem:
        result = pairs.call(operator.getitem, pairs.of[node.args[0]], node.args[1])
    else:
        result = _rule(node)(pairs, bind(node))
    if not is_complex(node.meta["val"]):
        node.replace_all_uses_with(result)
    elif isinstance(node.meta["val"], torch.Tensor):
        pairs.of[node] = pairs.as_type(result, real_type(node.meta["val"].dtype))
    else:
        pairs.of[node] = result


def _rule(node: fx.Node) -> Callable[[Pairs, dict[str, object]], fx.Node]:
    name = node.target._schema.name.removeprefix("aten::") if isinstance(node.target, torch._ops.OpOverload) else ""
    rule = _ARITHMETIC.get(name) or SHAPES.get(name) or TRANSFORMS.get(name)
    if rule is None:
        raise ExportError(
            f"{describe(node)}: complex numbers in this operator cannot be captured; compute it of real and imaginary part"
        )
    return rule


# From real numbers to complex ones, and back.


def _polar(p: Pairs, call: dict) -> fx.Node:
    return p.pair(
        p.call(aten.mul.Tensor, call["abs"], p.call(aten.cos.default, call["angle"])),
        p.call(aten.mul.Tensor, call["abs"], p.call(aten.sin.default, call["angle"])),
    )


def _absolute(p: Pairs, call: dict) -> fx.Node:
    """Its gradient at zero is zero, as that of a complex number's size."""
    return p.call(aten.linalg_vector_norm.default, p.of[call["self"]], 2, [-1])


def _angle(p: Pairs, call: dict) -> fx.Node:
    real, imaginary = p.parts(call["self"])
    return p.call(aten.atan2.default, imaginary, real)


def _cast(p: Pairs, call: dict) -> fx.Node:
    """To another type: of a complex value, the result's real type follows by itself."""
    dtype = p.like.meta["val"].dtype
    if dtype.is_complex:
        return p.as_pair(call["self"])
    return p.as_type(p.parts(call["self"])[0], dtype)


def _unchanged(p: Pairs, call: dict) -> fx.Node:
    return p.of[call["self"]]


# Arithmetic.


def _product(p: Pairs, a: Number, b: Number) -> fx.Node:
    if not p.is_complex(a):
        a, b = b, a
    if not p.is_complex(b):
        if isinstance(a, complex):
            return p.pair(p.call(aten.mul.Tensor, b, a.real), p.call(aten.mul.Tensor, b, a.imag))
        return p.call(aten.mul.Tensor, p.of[a], p.beside(b))
    (ar, ai), (br, bi) = p.parts(a), p.parts(b)

    def times(x: Number, y: Number) -> fx.Node:
        return p.call(aten.mul.Tensor, *((x, y) if isinstance(x, fx.Node) else (y, x)))

    return p.pair(
        p.call(aten.sub.Tensor, times(ar, br), times(ai, bi)), p.call(aten.add.Tensor, times(ar, bi), times(ai, br))
    )


def _sum(p: Pairs, a: Number, b: Number, op: torch._ops.OpOverload, alpha: object) -> fx.Node:
    if isinstance(alpha, complex):
        raise ExportError(f"{describe(p.like)}: a complex alpha cannot be captured")
    kwargs = {} if alpha == 1 else {"alpha": alpha}
    if isinstance(b, fx.Node):
        return p.call(op, p.as_pair(a), p.as_pair(b), **kwargs)
    real, imaginary = p.parts(a)
    b = complex(b)
    return p.pair(p.call(op, real, b.real, **kwargs), p.call(op, imaginary, b.imag, **kwargs) if b.imag else imaginary)


def _difference_from(p: Pairs, call: dict) -> fx.Node:
    """`other - alpha * self`."""
    subtracted = p.call(aten.mul.Scalar, p.as_pair(call["self"]), -call["alpha"])
    return _sum(p, p.operand(subtracted), call["other"], aten.add.Tensor, 1)


def _conjugate(p: Pairs, value: Number) -> fx.Node:
    real, imaginary = p.parts(value)
    return p.pair(real, p.call(aten.neg.default, imaginary))


def _reciprocal(p: Pairs, value: Number) -> fx.Node:
    squares = p.call(aten.square.default, p.of[value])
    size = p.call(aten.sum.dim_IntList, squares, [-1], True)
    return p.call(aten.div.Tensor, _conjugate(p, value), size)


def _quotient(p: Pairs, call: dict) -> fx.Node:
    a, b = call["self"], call["other"]
    if call.get("rounding_mode") is not None:
        raise ExportError(f"{describe(p.like)}: complex numbers cannot be rounded")
    if isinstance(b, complex):
        return _product(p, a, 1 / b)
    if not p.is_complex(b):
        return p.call(aten.div.Tensor, p.as_pair(a), p.beside(b))
    return _product(p, a, p.operand(_reciprocal(p, b)))


def _power(p: Pairs, call: dict) -> fx.Node:
    base, exponent = call["self"], call["exponent"]
    if not p.is_complex(base) or exponent not in range(1, _HIGHEST_POWER + 1):
        raise ExportError(
            f"{describe(p.like)}: of complex powers, only whole ones from 1 to {_HIGHEST_POWER} are known"
        )
    result = base
    for _ in range(int(exponent) - 1):
        result = p.operand(_product(p, result, base))
    return p.of[result]


def _exponential(p: Pairs, call: dict) -> fx.Node:
    real, imaginary = p.parts(call["self"])
    size = p.call(aten.exp.default, real)
    return p.pair(
        p.call(aten.mul.Tensor, size, p.call(aten.cos.default, imaginary)),
        p.call(aten.mul.Tensor, size, p.call(aten.sin.default, imaginary)),
    )


def _logarithm(p: Pairs, call: dict) -> fx.Node:
    return p.pair(p.call(aten.log.default, _absolute(p, call)), _angle(p, call))


# Products of matrices.


def _bilinear(p: Pairs, a: fx.Node, b: fx.Node, product: Callable[[fx.Node, fx.Node], fx.Node]) -> fx.Node:
    (ar, ai), (br, bi) = p.parts(a), p.parts(b)
    return p.pair(
        p.call(aten.sub.Tensor, product(ar, br), product(ai, bi)),
        p.call(aten.add.Tensor, product(ar, bi), product(ai, br)),
    )


def _matrix_product(p: Pairs, call: dict) -> fx.Node:
    a, b = list(call.values())[:2]
    return _bilinear(p, a, b, lambda x, y: p.call(p.like.target, x, y))


def _einsum(p: Pairs, call: dict) -> fx.Node:
    operands = call["tensors"]
    if len(operands) > 2:
        raise ExportError(f"{describe(p.like)}: of complex operands, einsum is known for one or two")

    def of(*values: fx.Node) -> fx.Node:
        return p.call(aten.einsum.default, call["equation"], list(values))

    if len(operands) == 1:
        return p.pair(*map(of, p.parts(operands[0])))
    return _bilinear(p, *operands, of)


_ARITHMETIC: dict[str, Callable[[Pairs, dict], fx.Node]] = {
    "polar": _polar,
    "complex": lambda p, call: p.pair(call["real"], call["imag"]),
    "view_as_complex": lambda p, call: call["self"],
    "view_as_real": _unchanged,
    "real": lambda p, call: p.parts(call["self"])[0],
    "imag": lambda p, call: p.parts(call["self"])[1],
    "abs": _absolute,
    "angle": _angle,
    "mul": lambda p, call: _product(p, call["self"], call["other"]),
    "square": lambda p, call: _product(p, call["self"], call["self"]),
    "add": lambda p, call: _sum(p, call["self"], call["other"], aten.add.Tensor, call["alpha"]),
    "sub": lambda p, call: _sum(p, call["self"], call["other"], aten.sub.Tensor, call["alpha"]),
    "rsub": _difference_from,
    "div": _quotient,
    "reciprocal": lambda p, call: _reciprocal(p, call["self"]),
    "detach": lambda p, call: p.call(aten.detach.default, p.of[call["self"]]),
    "neg": lambda p, call: p.call(aten.neg.default, p.of[call["self"]]),
    "pow": _power,
    "exp": _exponential,
    "log": _logarithm,
    "matmul": _matrix_product,
    "bmm": _matrix_product,
    "mm": _matrix_product,
    "mv": _matrix_product,
    "einsum": _einsum,
}
_ARITHMETIC |= {
    name: lambda p, call: _conjugate(p, call["self"]) for name in ("conj", "_conj", "conj_physical", "_conj_physical")
}
_ARITHMETIC |= {name: _cast for name in ("to", "_to_copy", "type_as")}
_ARITHMETIC |= {
    name: _unchanged
    for name in (
        "clone", "alias", "contiguous", "resolve_conj", "resolve_neg", "lift_fresh", "lift_fresh_copy",
    )
}  # fmt: skip
