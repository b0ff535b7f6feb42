"""Operators that move, join, choose or sum complex numbers without mixing their parts: the same ones, on pairs.

Dimensions are counted from the front, so that they are those of the pairs; sizes get a 2 at their end.
"""

from collections.abc import Callable

import torch
from torch import fx

from ..errors import ExportError
from .pairs import Pairs, real_type
from .places import describe

aten = torch.ops.aten

Rule = Callable[[Pairs, dict[str, object]], object]

# Arguments that name dimensions.
_DIMENSIONS = {"dim", "dims", "dim0", "dim1", "start_dim", "end_dim", "source", "destination"}


def _along(grows: int = 0) -> Rule:
    """The operator itself. grows: how many dimensions more than operands the result has, which `dim` counts."""

    def rule(p: Pairs, call: dict) -> object:
        rank = p.rank(call["self"] if "self" in call else call["tensors"][0]) + grows
        written = {name: _on_pairs(p, name, value, rank) for name, value in call.items()}
        if "dtype" in written:
            written["dtype"] = None if written["dtype"] is None else real_type(written["dtype"])
        return _call_as(p, p.like.target, written)

    return rule


def _on_pairs(p: Pairs, name: str, value: object, rank: int) -> object:
    if name in _DIMENSIONS:
        if isinstance(value, (list, tuple)):
            return [dim % rank for dim in value]
        return value if value is None else value % rank
    if isinstance(value, fx.Node):
        return p.as_pair(value) if p.is_complex(value) or name in ("src", "values") else value
    if name == "tensors":
        return [p.as_pair(item) for item in value]
    return value


def _call_as(p: Pairs, op: torch._ops.OpOverload, given: dict[str, object]) -> fx.Node:
    """A call with arguments by name; those at the end that are the schema's own are left out."""
    args, kwargs, pending = [], {}, []
    for argument in op._schema.arguments:
        value = given[argument.name]
        default = argument.has_default_value() and value == argument.default_value
        if argument.kwarg_only:
            kwargs |= {} if default else {argument.name: value}
        elif default:
            pending.append(value)
        else:
            args += [*pending, value]
            pending = []
    return p.call(op, *args, **kwargs)


def _sized(name: str, end: int, op: torch._ops.OpOverload | None = None) -> Rule:
    """An operator that is told sizes, or numbers of copies, of all dimensions."""

    def rule(p: Pairs, call: dict) -> fx.Node:
        return p.call(op or p.like.target, p.as_pair(call["self"]), [*call[name], end])

    return rule


def _like_other(p: Pairs, call: dict) -> fx.Node:
    if not p.is_complex(call["other"]):
        raise ExportError(f"{describe(p.like)}: a complex value in the shape of a real one; give the shape itself")
    return p.call(p.like.target, p.of[call["self"]], p.of[call["other"]])


def _swapped(p: Pairs, call: dict) -> fx.Node:
    """The transpose of matrices."""
    value = call["self"]
    rank = p.rank(value)
    return p.of[value] if rank < 2 else p.call(aten.transpose.int, p.of[value], rank - 2, rank - 1)


def _summed(op: torch._ops.OpOverload) -> Rule:
    def rule(p: Pairs, call: dict) -> fx.Node:
        rank = p.rank(call["self"])
        dims = sorted(dim % rank for dim in call.get("dim") or range(rank)) if rank else []
        pair = p.of[call["self"]]
        return p.call(op, pair, dims, bool(call.get("keepdim"))) if dims else pair

    return rule


def _permuted(p: Pairs, call: dict) -> fx.Node:
    rank = p.rank(call["self"])
    return p.call(aten.permute.default, p.of[call["self"]], [*(dim % rank for dim in call["dims"]), rank])


def _padded(p: Pairs, call: dict) -> fx.Node:
    if call.get("mode", "constant") != "constant" or call["value"]:
        raise ExportError(f"{describe(p.like)}: complex numbers can only be padded with zeros")
    return p.call(aten.constant_pad_nd.default, p.of[call["self"]], [0, 0, *call["pad"]], 0.0)


def _gathered(p: Pairs, call: dict) -> fx.Node:
    rank = p.rank(call["self"])
    index = p.call(aten.expand.default, p.call(aten.unsqueeze.default, call["index"], -1), [*[-1] * rank, 2])
    return p.call(aten.gather.default, p.of[call["self"]], call["dim"] % rank, index)


def _repeated(p: Pairs, call: dict) -> fx.Node:
    if call["dim"] is None or isinstance(call["repeats"], fx.Node):
        raise ExportError(
            f"{describe(p.like)}: complex numbers can be repeated a fixed number of times along a dimension"
        )
    dim = call["dim"] % p.rank(call["self"])
    return p.call(aten.repeat_interleave.self_int, p.of[call["self"]], call["repeats"], dim)


def _rolled(p: Pairs, call: dict) -> fx.Node:
    if not call["dims"]:
        raise ExportError(f"{describe(p.like)}: complex numbers can be rolled along dimensions; name them")
    dims = [dim % p.rank(call["self"]) for dim in call["dims"]]
    return p.call(aten.roll.default, p.of[call["self"]], list(call["shifts"]), dims)


def _chosen(p: Pairs, call: dict) -> fx.Node:
    if not isinstance(call["self"], fx.Node) or not isinstance(call["other"], fx.Node):
        raise ExportError(f"{describe(p.like)}: of complex numbers, torch.where takes two tensors")
    return p.call(aten.where.self, p.beside(call["condition"]), p.as_pair(call["self"]), p.as_pair(call["other"]))


def _masked(p: Pairs, call: dict) -> fx.Node:
    if isinstance(call["value"], fx.Node):
        raise ExportError(f"{describe(p.like)}: of complex numbers, masked_fill takes a number")
    value = complex(call["value"])
    if value == 0:
        return p.call(aten.masked_fill.Scalar, p.of[call["self"]], p.beside(call["mask"]), 0.0)
    filled = [
        p.call(aten.masked_fill.Scalar, part, call["mask"], number)
        for part, number in zip(p.parts(call["self"]), (value.real, value.imag))
    ]
    return p.pair(*filled)


def _filled(value: complex | None) -> Rule:
    """A new value of equal numbers; those of `fill_value` unless given."""

    def rule(p: Pairs, call: dict) -> fx.Node:
        number = complex(call["fill_value"]) if value is None else value
        dtype = real_type(p.like.meta["val"].dtype)
        if "size" in call:
            if number == 0:
                return p.call(aten.full.default, [*call["size"], 2], 0.0, dtype=dtype)
            make, of = aten.full.default, call["size"]
        else:
            make, of = aten.full_like.default, call["self"]
            of = p.parts(of)[0] if p.is_complex(of) else of
        return p.pair(p.call(make, of, number.real, dtype=dtype), p.call(make, of, number.imag, dtype=dtype))

    return rule


SHAPES: dict[str, Rule] = {
    "view": _sized("size", 2, aten.reshape.default),
    "_unsafe_view": _sized("size", 2, aten.reshape.default),
    "reshape": _sized("shape", 2),
    "expand": _sized("size", 2, aten.expand.default),
    "broadcast_to": _sized("size", 2),
    "repeat": _sized("repeats", 1),
    "tile": _sized("dims", 1),
    "expand_as": _like_other,
    "view_as": _like_other,
    "reshape_as": _like_other,
    "unsqueeze": _along(grows=1),
    "stack": _along(grows=1),
    "squeeze": _along(),
    "t": _swapped,
    "mT": _swapped,
    "permute": _permuted,
    "sum": _summed(aten.sum.dim_IntList),
    "mean": _summed(aten.mean.dim),
    "pad": _padded,
    "constant_pad_nd": _padded,
    "gather": _gathered,
    "repeat_interleave": _repeated,
    "roll": _rolled,
    "where": _chosen,
    "masked_fill": _masked,
    "zeros": _filled(0j), "zeros_like": _filled(0j), "new_zeros": _filled(0j),
    "empty": _filled(0j), "empty_like": _filled(0j), "new_empty": _filled(0j),
    "ones": _filled(1 + 0j), "ones_like": _filled(1 + 0j), "new_ones": _filled(1 + 0j),
    "full": _filled(None), "full_like": _filled(None), "new_full": _filled(None),
}  # fmt: skip
SHAPES |= {
    name: _along()
    for name in (
        "transpose", "movedim", "flatten", "unflatten", "select", "slice", "narrow", "cat", "index",
        "index_select", "index_put", "slice_scatter", "select_scatter", "flip", "cumsum", "unbind", "split",
        "split_with_sizes", "chunk",
    )
}  # fmt: skip
