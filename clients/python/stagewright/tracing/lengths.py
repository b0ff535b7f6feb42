"""Samples of several lengths: one graph for each, which must agree in everything but sizes."""

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import nn
from torch.export import Dim
from torch.export.dynamic_shapes import _DerivedDim, _DimHint, _DimHintType
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader

from ..errors import ExportError
from ..proto import pb

# Each is a graph of its own and a program of its own on every device.
MOST = 64

# Arguments that may differ from length to length: sizes, and numbers made from them.
_NUMBERS = {"integer", "real"}


@dataclasses.dataclass(frozen=True)
class OfLength:
    """The graph of one length."""

    graph: "pb.Graph"
    # By name of a node: the operator and the user's line.
    describe: Mapping[str, str]
    # The shape of a sample by input.
    shapes: dict[str, tuple[int, ...]]

    def __str__(self) -> str:
        return shapes_text(self.shapes)

    @property
    def size(self) -> int:
        return sum(torch.Size(shape).numel() for shape in self.shapes.values())


def shapes_text(shapes: Mapping[str, tuple[int, ...]]) -> str:
    return ", ".join(f"{name}[{', '.join(map(str, shape))}]" for name, shape in shapes.items())


def examples_of(data: object, targets: object | None, batch_dim: int) -> list[tuple[object, object | None]]:
    """One example batch of each length with its target, if that is given apart: of a list of batches, or of one pass
    of a DataLoader."""
    if not isinstance(data, (list, DataLoader)):
        return [(data, targets)]
    if targets is None:
        targets = itertools.repeat(None)
    elif not isinstance(data, list) or not isinstance(targets, list) or len(targets) != len(data):
        raise ExportError("with several example batches targets= is a list with a target for each of them")
    found: dict[object, tuple[object, object | None]] = {}
    with torch.random.fork_rng(devices=[]):  # A loader that shuffles draws its seed.
        for example in zip(data, targets):
            found.setdefault(_layout(example, batch_dim), example)
    if not found:
        raise ExportError(f"the {type(data).__name__} holds no batch")
    return list(found.values())


def _layout(example: object, batch_dim: int) -> tuple:
    return tuple(
        (*shape_of_sample(leaf, batch_dim), leaf.dtype) if isinstance(leaf, torch.Tensor) else ()
        for leaf in pytree.tree_leaves(example)
    )


def shape_of_sample(tensor: torch.Tensor, batch_dim: int = 0) -> tuple[int, ...]:
    return tuple(size for dim, size in enumerate(tensor.shape) if dim != batch_dim)


def check_number(count: int) -> None:
    if count > MOST:
        raise ExportError(
            f"the data has samples of {count} different shapes, each of which would be a graph of its own; {MOST} are "
            "taken: pad samples to a few lengths"
        )


# What may change, as torch.export's dynamic_shapes says it.


def check_dynamic(dynamic_shapes: object, calls: list[tuple[tuple, dict]], model: nn.Module, batch_dim: int) -> None:
    """ExportError unless what differs between the arguments of `calls` is what `dynamic_shapes` names."""
    if isinstance(dynamic_shapes, _DimHint) and not _is_static(dynamic_shapes):
        return
    bound = [inspect.signature(model.forward).bind(*args, **kwargs).arguments for args, kwargs in calls]
    named = _by_argument(dynamic_shapes, list(bound[0]))
    known = [{} for _ in calls]  # Sizes by name of a Dim, for each call.
    for name in bound[0]:
        leaves = [list(_leaves(name, arguments[name], named.get(name))) for arguments in bound]
        for of_calls in zip(*leaves, strict=True):
            _check_tensor([(path, tensor) for path, tensor, _ in of_calls], of_calls[0][2], batch_dim, known)


def _by_argument(dynamic_shapes: object, names: list[str]) -> Mapping:
    if isinstance(dynamic_shapes, Mapping):
        unknown = [name for name in dynamic_shapes if name not in names]
        if unknown:
            raise ExportError(f"dynamic_shapes names '{unknown[0]}', which is no argument of forward")
        return dynamic_shapes
    if isinstance(dynamic_shapes, (tuple, list)) and len(dynamic_shapes) <= len(names):
        return dict(zip(names, dynamic_shapes))
    raise ExportError(
        "dynamic_shapes is, as torch.export takes it, a dict by argument of forward or a tuple with an entry for each; "
        f"forward has {', '.join(names)}"
    )


def _leaves(path: str, value: object, spec: object) -> Iterator[tuple[str, torch.Tensor, object]]:
    """Every tensor of an argument with what dynamic_shapes says of it."""
    if isinstance(value, torch.Tensor):
        yield path, value, spec
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(f"{path}.{key}", item, spec.get(key) if isinstance(spec, Mapping) else None)
    elif isinstance(value, (tuple, list)):
        specs = spec if isinstance(spec, (tuple, list)) else [None] * len(value)
        for number, (item, of_item) in enumerate(zip(value, specs)):
            yield from _leaves(f"{path}.{number}", item, of_item)


def _check_tensor(
    tensors: list[tuple[str, torch.Tensor]], spec: object, batch_dim: int, known: list[dict[str, int]]
) -> None:
    name, first = tensors[0]
    for dim in range(first.dim()):
        sizes = [tensor.shape[dim] for _, tensor in tensors]
        if dim == batch_dim:
            continue
        wanted = spec.get(dim) if isinstance(spec, Mapping) else spec[dim] if isinstance(spec, (tuple, list)) else None
        where = f"dimension {dim} of '{name}'"
        if _is_static(wanted):
            if len(set(sizes)) > 1:
                shown = " and ".join(map(str, sorted(set(sizes))[:2]))
                raise ExportError(f"{where} has sizes {shown}, but dynamic_shapes does not let it change")
            continue
        for size, values in zip(sizes, known):
            _check_size(size, wanted, values, where)


def _is_static(wanted: object) -> bool:
    if isinstance(wanted, _DimHint):
        return wanted.type is _DimHintType.STATIC
    return wanted is None or isinstance(wanted, int)


def _check_size(size: int, wanted: object, known: dict[str, int], where: str) -> None:
    least, most = getattr(wanted, "min", None), getattr(wanted, "max", None)
    if isinstance(wanted, _DerivedDim):
        root = known.get(wanted.root.__name__)
        if root is not None and wanted.fn(root) != size:
            raise ExportError(f"{where} is {size}, not {wanted.__name__} with {wanted.root.__name__} = {root}")
        return
    if isinstance(wanted, Dim) and known.setdefault(wanted.__name__, size) != size:
        raise ExportError(f"{where} is {size}, but {wanted.__name__} is {known[wanted.__name__]} elsewhere in the batch")
    if (least is not None and size < least) or (most is not None and size > most):
        raise ExportError(f"{where} is {size}, outside the range of {wanted}")


# Whether graphs are the same but for sizes.


def joined(lengths: list[OfLength]) -> "pb.Graph":
    """The graph of the longest samples, with those of the others. ExportError, naming the operator and the user's line,
    if they differ in more than sizes and numbers."""
    first, *others = sorted(lengths, key=lambda length: -length.size)
    taken = [_samples(first.graph)]
    for other in others:
        _check_same(first, other)
        if _samples(other.graph) not in taken:  # What differs may be an input that nothing reads.
            taken.append(_samples(other.graph))
            first.graph.lengths.append(other.graph)
    return first.graph


def _samples(graph: "pb.Graph") -> list[bytes]:
    """The inputs that are read, with their shapes."""
    return [entry.SerializeToString(deterministic=True) for entry in graph.inputs]


def _check_same(first: OfLength, other: OfLength) -> None:
    for nodes, others in ((first.graph.totals.nodes, other.graph.totals.nodes), (first.graph.nodes, other.graph.nodes)):
        for node, its in itertools.zip_longest(nodes, others):
            if node is None or its is None or not _same_operator(node, its):
                longer = first if node is not None and (its is None or len(nodes) >= len(others)) else other
                raise _differs(first, other, longer.describe.get((node if longer is first else its).name, ""))
    one, two = _rest(first.graph), _rest(other.graph)
    for field in one:
        if one[field] != two[field]:
            raise _differs(first, other, field)


def _differs(first: OfLength, other: OfLength, what: str) -> ExportError:
    return ExportError(
        f"the model is another graph for samples of {other} than of {first}: {what} is not the same there. A Python loop "
        "or a branch over the length makes one operator for every turn; write it for the whole tensor, or pad all samples "
        "to one length"
    )


def _same_operator(node: "pb.Node", other: "pb.Node") -> bool:
    return (
        node.target == other.target
        and node.module == other.module
        and node.batch_dependent == other.batch_dependent
        and [_kind(meta) for meta in node.outputs] == [_kind(meta) for meta in other.outputs]
        and [entry.name for entry in node.kwargs] == [entry.name for entry in other.kwargs]
        and _same_all(node.args, other.args)
        and _same_all([entry.value for entry in node.kwargs], [entry.value for entry in other.kwargs])
    )


def _kind(meta: "pb.TensorMeta") -> tuple:
    return meta.dtype, len(meta.shape)


def _same_all(arguments: list["pb.Argument"], others: list["pb.Argument"]) -> bool:
    return len(arguments) == len(others) and all(map(_same_argument, arguments, others))


def _same_argument(argument: "pb.Argument", other: "pb.Argument") -> bool:
    kind = argument.WhichOneof("kind")
    if kind != other.WhichOneof("kind"):
        return False
    if kind == "list":
        return _same_all(argument.list.items, other.list.items)
    return kind in _NUMBERS or argument == other


def _rest(graph: "pb.Graph") -> dict[str, object]:
    """All that is not of one operator, by what a message calls it."""
    rest: dict[str, object] = {}
    for parameter in graph.parameters:
        rest[f"'{parameter.name}'"] = parameter.SerializeToString(deterministic=True)
    rest["the number of parameters and constants"] = len(graph.parameters)
    for entry in graph.inputs:
        rest[f"the input '{entry.name}'"] = (entry.name, entry.role, _kind(entry.meta))
    rest["the inputs that are read"] = [entry.name for entry in graph.inputs]
    rest["the loss"] = (graph.loss.node, graph.loss.output, graph.loss_reduction)
    rest["the prediction"] = graph.prediction.SerializeToString(deterministic=True)
    rest["what is summed over a mini-batch"] = [(value.node, value.output) for value in graph.totals.values]
    rest["how buffers change"] = [update.SerializeToString(deterministic=True) for update in graph.state_updates]
    return rest


def by_layout(layout: Callable[[object], object], samples: list, keep_order: bool) -> list[list]:
    """Samples that have the same layout together; with `keep_order` only those that follow each other."""
    if keep_order:
        return [list(group) for _, group in itertools.groupby(samples, key=layout)]
    groups: dict[object, list] = {}
    for sample in samples:
        groups.setdefault(layout(sample), []).append(sample)
    return list(groups.values())
