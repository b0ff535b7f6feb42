"""Whether a captured graph computes what its module does.

A tracer shows a model other objects than it will see: symbols in the place of sizes, tensors without data, parameters in
the place of its own. Code that asks for a type, makes text of a size, or reads a parameter by a tensor that was made of
it before, is captured as something else. So graph and module run on the same batches, of two sizes, and must agree in
loss, new buffers and gradients.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator

import torch
from torch import fx, nn
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import ExportError
from .capture import Captured, in_mode, is_virtual, public_name
from .held_state import HeldState
from .places import line_here, line_of_node
from .repeated_calls import ModelAndLoss, same_random_numbers, silent

aten = torch.ops.aten

# Larger models would take minutes, and memory for their gradients.
_MOST_PARAMETERS = 500_000_000
_MOST_WITH_GRADIENTS = 100_000_000
# How far results may be apart, relative to their size, that two orders of the same sums have made.
_TOLERANCE = 1e-3
# Changes of parameters by rounding errors, and by how much more than these make results may be apart.
_ROUNDING, _AMPLIFIED = 8.0, 50.0
# Gradients that cancel to less than this part of the largest are rounding errors.
_NEGLIGIBLE = 1e-3


def refuse_other_results(captured: Captured, model: nn.Module, loss: Callable, state: dict[str, torch.Tensor]) -> bool:
    """ExportError, naming what differs, unless graph and module give the same for the example and for another number of
    samples. The module is left as it was. False where it is not judged: it has no data, is very large, or fails."""
    count = sum(tensor.numel() for tensor in state.values())
    if count > _MOST_PARAMETERS or any(is_virtual(t) or t.device.type != "cpu" for t in state.values()):
        return False
    both = _Both(captured, ModelAndLoss(model, loss), state, with_gradients=count <= _MOST_WITH_GRADIENTS)
    try:
        with silent():
            for samples in _sizes(captured):
                difference = both.difference(samples)
                if difference is not None:
                    raise _refusal(difference, both.line(samples) if difference.kind == "loss" else "")
    except ExportError:
        raise
    except Exception:
        return False  # Batches of such a size do not suit the module, or its loss is no number.
    return True


def _sizes(captured: Captured) -> list[int]:
    """The example's, and a small one that is another."""
    example = next(iter(captured.example.values())).shape[0]
    least, most = max(2, captured.batch.least), captured.batch.most or 2 * example + 3
    others = [size for size in (3, 2, least, least + 1) if size != example and least <= size <= most]
    return [example, *others[:1]]


@dataclasses.dataclass(frozen=True)
class Difference:
    """What is not the same: 'loss', or a buffer or a parameter with its name. None where there is no gradient."""

    kind: str
    name: str
    samples: int
    of_graph: torch.Tensor | None
    of_module: torch.Tensor | None


# By kind and name.
_Results = dict[tuple[str, str], torch.Tensor | None]


class _Both:
    def __init__(self, captured: Captured, module: ModelAndLoss, state: dict[str, torch.Tensor], with_gradients: bool):
        self.module = module
        self._captured, self._state, self._with_gradients = captured, state, with_gradients
        self._trained = {name: t for name, t in state.items() if t.requires_grad}
        self._held = HeldState([*module.modules()])

    def difference(self, samples: int) -> Difference | None:
        """The first of what differs by more than rounding explains."""
        module = self._of_module(samples)
        if not torch.isfinite(module["loss", ""]):
            raise ArithmeticError("the loss of the example is no number")
        graph = self._of_graph(samples)
        apart = _apart(graph, module)
        if not apart:
            return None
        with self._rounded():
            rounding = _distances(self._of_module(samples), module)
        for (kind, name), distance in apart.items():
            if not distance <= _AMPLIFIED * rounding[kind, name]:
                return Difference(kind, name, samples, graph[kind, name], module[kind, name])
        return None

    def line(self, samples: int) -> str:
        """The first line of the user's code at which the graph has a value that the module has not."""
        with _ByLine() as seen:
            self._of_module(samples)
        values: dict[fx.Node, object] = {}
        self._of_graph(samples, values)
        for node, value in values.items():
            line = line_of_node(node)
            if line and isinstance(value, torch.Tensor) and value.is_floating_point():
                if not any(_alike(value, other) for other in seen.results.get(line, ())):
                    return line
        return ""

    def _of_module(self, samples: int) -> _Results:
        batch = pytree.tree_map_only(torch.Tensor, lambda t: _rows(t, samples), self._captured.call)
        if self._captured.batch_dim:
            batch = pytree.tree_map_only(torch.Tensor, lambda t: t.movedim(0, self._captured.batch_dim), batch)
        try:
            with self._evaluating(), in_mode(self.module.model, training=True):
                loss = self.module(*batch)[1]
                buffers = {public_name(name): tensor.detach().clone() for name, tensor in self.module.named_buffers()}
                return self._results(loss, buffers)
        finally:
            self._held.restore()

    def _of_graph(self, samples: int, kept: dict[fx.Node, object] | None = None) -> _Results:
        """kept: takes all values, if given."""
        graph = self._captured.program.graph_module.graph
        uses = {node: len(node.users) for node in graph.nodes}
        with self._evaluating():
            values: dict[fx.Node, object] = dict(self._placeholders(samples))
            for node in graph.nodes:
                if node.op == "call_function":
                    args, kwargs = torch.fx.map_arg((node.args, dict(node.kwargs)), values.__getitem__)
                    values[node] = node.target(*args, **kwargs)
                    if kept is not None:
                        kept[node] = values[node]
                    for source in node.all_input_nodes:
                        uses[source] -= 1
                        if not uses[source]:
                            del values[source]
            # Batch normalisation writes its statistics by itself.
            buffers = {public_name(name): tensor.detach().clone() for name, tensor in self.module.named_buffers()}
            *states, loss, _ = graph.output_node().args[0]
            first_names = {id(tensor): public_name(name) for name, tensor in self.module.named_buffers()}
            for name, node in zip(self._captured.states, states):
                buffers[first_names[id(self._state[public_name(name)])]] = values[node].detach()
            return self._results(values[loss], buffers)

    def _placeholders(self, samples: int) -> Iterator[tuple[fx.Node, object]]:
        program, inputs = self._captured.program, iter(self._captured.example.values())
        for spec, node in zip(program.graph_signature.input_specs, program.graph_module.graph.find_nodes(op="placeholder")):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                yield node, self._state[public_name(spec.target)]
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                yield node, program.constants[spec.target].detach()
            else:
                yield node, _rows(next(inputs), samples) if isinstance(node.meta.get("val"), torch.Tensor) else None

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        with _kept_tensors(self.module), torch.set_grad_enabled(self._with_gradients):
            with same_random_numbers(), _MeanDropout(), torch.compiler.set_stance("force_eager"):
                yield

    def _results(self, loss: torch.Tensor, buffers: dict[str, torch.Tensor]) -> _Results:
        found: _Results = {("loss", ""): loss.detach(), **{("buffer", name): value for name, value in buffers.items()}}
        if not self._with_gradients:
            return found
        found |= {("gradient", name): None for name in self._trained}
        asked = {name: tensor for name, tensor in self._trained.items() if tensor.requires_grad}
        if asked and loss.requires_grad:
            gradients = torch.autograd.grad(loss, list(asked.values()), allow_unused=True)
            found |= {("gradient", name): gradient for name, gradient in zip(asked, gradients)}
        return found

    @contextlib.contextmanager
    def _rounded(self) -> Iterator[None]:
        """While open, parameters are off by some rounding errors."""
        before = {name: tensor.detach().clone() for name, tensor in self._trained.items()}
        generator = torch.Generator().manual_seed(0)
        try:
            with torch.no_grad():
                for tensor in self._trained.values():
                    if tensor.is_floating_point():
                        noise = torch.randn(tensor.shape, generator=generator).to(tensor.dtype)
                        tensor.mul_(1 + _ROUNDING * torch.finfo(tensor.dtype).eps * noise)
            yield
        finally:
            with torch.no_grad():
                for name, tensor in self._trained.items():
                    tensor.copy_(before[name])


class _ByLine(TorchDispatchMode):
    """Keeps the results of operators by the user's line."""

    def __init__(self):
        super().__init__()
        self.results: dict[str, list[torch.Tensor]] = {}

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        result = func(*args, **(kwargs or {}))
        tensors = [t.detach().clone() for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor)]
        self.results.setdefault(line_here(), []).extend(t for t in tensors if t.is_floating_point())
        return result


class _MeanDropout(TorchDispatchMode):
    """Draws, for every entry of a mask, its mean: dropout is then the same however its operators are written."""

    def __torch_dispatch__(self, func: Callable, types: object, args: tuple = (), kwargs: dict | None = None) -> object:
        if func is aten.bernoulli_.float:
            return args[0].fill_(args[1] if len(args) > 1 else 0.5)
        return func(*args, **(kwargs or {}))


@contextlib.contextmanager
def _kept_tensors(module: nn.Module) -> Iterator[None]:
    """Puts buffers back afterwards, those that forward has put others in the place of, too, and what is trained."""
    trained = [(parameter, parameter.requires_grad) for parameter in module.parameters()]
    kept = [
        (m._buffers, name, tensor, tensor.clone())
        for m in module.modules()
        for name, tensor in m._buffers.items()
        if tensor is not None
    ]
    try:
        yield
    finally:
        with torch.no_grad():
            for registry, name, tensor, content in kept:
                tensor.copy_(content)
                registry[name] = tensor
        for parameter, requires_grad in trained:
            parameter.requires_grad_(requires_grad)


def _rows(tensor: torch.Tensor, samples: int) -> torch.Tensor:
    return tensor[torch.arange(samples) % tensor.shape[0]]


def _apart(found: _Results, expected: _Results) -> dict[tuple[str, str], float]:
    """What differs by more than the order of sums makes, and by how much of its size."""
    distances = _distances(found, expected)
    return {key: d for key, d in distances.items() if not d <= max(_TOLERANCE, 16 * _epsilon(expected[key], found[key]))}


def _distances(found: _Results, expected: _Results) -> dict[tuple[str, str], float]:
    largest = max((_finite_size(value) for key, value in expected.items() if key[0] == "gradient"), default=0.0)
    distances = {}
    for key, right in expected.items():
        value = found[key]
        least = _NEGLIGIBLE * largest if key[0] == "gradient" else 1e-6
        off = _size(_difference(value, right))
        distances[key] = off / max(_finite_size(right), least, 1e-30)
    return distances


def _difference(a: torch.Tensor | None, b: torch.Tensor | None) -> torch.Tensor | None:
    if a is None or b is None:
        return b if a is None else a
    if a.shape != b.shape:
        return torch.tensor(float("inf"))
    a, b = (t.to_dense() if t.is_sparse else t for t in (a, b))
    same = (a == b) | (a.isnan() & b.isnan())
    return (a.to(torch.float64) - b.to(torch.float64)).masked_fill(same, 0.0)


def _size(tensor: torch.Tensor | None) -> float:
    """The largest number in it; infinite for a difference between a number and none."""
    if tensor is None or not tensor.numel():
        return 0.0
    return float((tensor.to_dense() if tensor.is_sparse else tensor).detach().to(torch.float64).abs().max())


def _finite_size(tensor: torch.Tensor | None) -> float:
    return 0.0 if tensor is None else _size(tensor[tensor.isfinite()] if not tensor.is_sparse else tensor)


def _epsilon(*tensors: torch.Tensor | None) -> float:
    return max((torch.finfo(t.dtype).eps for t in tensors if t is not None and t.is_floating_point()), default=0.0)


def _alike(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.numel() != b.numel():
        return False
    a, b = a.detach().reshape(-1).to(torch.float64), b.reshape(-1).to(torch.float64)
    return torch.allclose(a, b, rtol=1e-3, atol=1e-3 * _size(b[b.isfinite()]), equal_nan=True)


def _refusal(difference: Difference, line: str) -> ExportError:
    what = {"loss": "another loss", "buffer": "another value of the buffer", "gradient": "another gradient of the parameter"}
    name = f" '{difference.name}'" if difference.name else ""
    shown = ""
    if difference.kind == "loss":
        shown = f", {float(difference.of_graph):.6g} instead of {float(difference.of_module):.6g},"
    found = f"the graph has {what[difference.kind]}{name}{shown} than the model itself for {difference.samples} samples"
    if difference.kind == "loss":
        return ExportError(
            f"{found}{line}: while a model is traced, sizes are symbols and tensors have no data, so that code which asks "
            "for a type, makes text of a size, catches errors, or asks whether it is compiled takes another course; write "
            "it without asking"
        )
    return ExportError(
        f"{found}: forward or the loss reads it also by a tensor that shares its memory (detach(), .data, one kept from "
        "before), switches its requires_grad, puts a hook on a grad_fn, or writes to values under no_grad that gradients "
        "pass through; read the parameter itself as the module's attribute, and compute new tensors"
    )
