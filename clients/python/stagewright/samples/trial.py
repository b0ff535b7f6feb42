"""Runs a captured graph on a small batch and on two parts of it, and says how each value follows from the parts.

The trial is made in double precision, with random parameters and random inputs (parameters that start as zeros would
hide what they multiply), without dropout and with batch normalisation in evaluation mode. At such a point two
expressions that agree to ten digits agree everywhere.
"""

import functools
import itertools
from collections.abc import Iterator

import torch
from torch import fx
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from ..tracing.capture import Captured, is_virtual
from .double_precision import IN_DOUBLE
from .pieces import Pieces, settled_in_single_precision
from .sample_kinds import (
    BATCH_STATISTICS,
    KEYED_DROPOUT,
    Found,
    Kind,
    Kinds,
    Layout,
    ancestors,
    batch_total,
    live_nodes,
    roots,
)
from .sample_rules import kinds_by_rules
from .trial_data import Draw, Effort, draws_that_tell, grouping_inputs, trial_inputs

aten = torch.ops.aten

# More parameters than these are tried in single precision, and more than those, which takes minutes, not at all.
_MOST_IN_DOUBLE = 50_000_000
_MOST_PARAMETERS = 500_000_000
# So often integers are drawn at most.
_MOST_DRAWS = 8
# So many steps later models are tried again that change their buffers: what began as nothing then weighs something, and a
# warm-up is over.
_LATER = (1, 1_000_000)
_FLOATING = {torch.float16, torch.bfloat16, torch.float32, torch.float64}


class Trial:
    """One run of a graph: a whole batch and its two parts, node by node."""

    def __init__(
        self,
        captured: Captured,
        state: dict[str, torch.Tensor],
        effort: Effort,
        dtype: torch.dtype,
        draw: Draw = Draw(),
    ):
        self._captured = captured
        graph = captured.program.graph_module.graph
        self._graph = graph
        self._live = live_nodes(graph)
        self._dtype = dtype
        self._tolerance = 1e-10 if dtype is torch.float64 else 1e-4
        first = max(2, captured.batch.least)
        self._parts = (first, max(1, captured.batch.least))
        self._generator = torch.Generator().manual_seed(draw.number)
        self._inputs = trial_inputs(captured, self._parts, effort, self._generator, draw)
        self._state = state
        self._later = draw.later
        self._pieces = Pieces(captured)

    def fits(self) -> bool:
        """The model takes batches of this size."""
        most = self._captured.batch.most
        return most is None or sum(self._parts) <= most

    def run(self) -> tuple[Kinds, bool]:
        """What each live node is, and whether that can be believed: the loss was a number, and not always the same."""
        kinds: Kinds = {}
        values: dict[fx.Node, tuple] = {}
        uses = {node: sum(user in self._live or _is_size(user) for user in node.users) for node in self._graph.nodes}
        results = {node for node in (*roots(self._graph)[0], *roots(self._graph)[1:]) if node is not None}
        given = dict(self._placeholders())
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            for node in self._graph.nodes:
                if node not in self._live and not _is_size(node):
                    continue
                values[node] = given[node] if node.op == "placeholder" else self._evaluate(node, values)
                kinds[node] = self._certain(node, self._classify(node, values[node]), kinds, values[node])
                for source in node.all_input_nodes:
                    uses[source] -= 1
                    if uses[source] <= 0 and source not in results:
                        values.pop(source, None)
        loss = roots(self._graph)[1]
        return kinds, bool(torch.isfinite(values[loss][0])) and self._tells_samples_apart(kinds[loss], loss)

    def _certain(self, node: fx.Node, found: Found | None, kinds: Kinds, values: tuple) -> Found | None:
        """What is true of more than this point, and of gradients."""
        if self._dtype is not torch.float64:
            found = settled_in_single_precision(node, found, kinds)
        return self._pieces.settle(node, found, kinds, lambda: not any(map(torch.count_nonzero, pytree.tree_leaves(values))))

    def _tells_samples_apart(self, loss_kind: Found | None, loss: fx.Node) -> bool:
        """The samples differ, and so does the loss, if it reads any: else the trial has seen nothing."""
        reads = {node for node in ancestors([loss]) if node.name in self._captured.program.graph_signature.user_inputs}
        differ = any(not torch.equal(t[0], t[1]) or not torch.equal(t[0], t[-1]) for t in self._inputs.values())
        return not reads or (differ and loss_kind is not Kind.CONSTANT)

    def _placeholders(self) -> Iterator[tuple[fx.Node, tuple]]:
        program, names = self._captured.program, iter(self._captured.input_names)
        first, second = self._parts
        for spec, node in zip(program.graph_signature.input_specs, self._graph.find_nodes(op="placeholder")):
            if spec.kind in (InputKind.PARAMETER, InputKind.BUFFER):
                name = spec.target.removeprefix("model.")
                tensor = self._some_state(self._state[name], spec.kind is InputKind.PARAMETER)
                tensor = self._some_later_state(tensor) if spec.target in self._captured.states else tensor
                yield node, (tensor, tensor, tensor)
            elif spec.kind is InputKind.CONSTANT_TENSOR:
                tensor = self._cast(program.constants[spec.target].detach())
                yield node, (tensor, tensor, tensor)
            elif isinstance(node.meta.get("val"), torch.Tensor):
                whole = self._cast(self._inputs[next(names)[0]])
                yield node, (whole, whole[:first], whole[first : first + second])
            else:
                yield node, (None, None, None)

    def _some_state(self, tensor: torch.Tensor, random: bool) -> torch.Tensor:
        if is_virtual(tensor):
            tensor = torch.ones(tuple(tensor.shape), dtype=tensor.dtype)
            random = tensor.is_floating_point()
        tensor = self._cast(tensor.detach().cpu())
        if not random or not tensor.is_floating_point():
            return tensor
        spread = float(tensor.std()) if tensor.numel() > 1 else 0.0
        noise = torch.randn(tensor.shape, generator=self._generator, dtype=torch.float32).to(tensor.dtype)
        return tensor + noise * 0.2 * (spread if spread > 1e-3 else 0.3)

    def _some_later_state(self, tensor: torch.Tensor) -> torch.Tensor:
        """What a buffer may hold after so many steps: a counter has counted them."""
        if not self._later:
            return tensor
        if tensor.dtype is torch.bool:
            return ~tensor
        if not tensor.is_floating_point():
            return tensor + self._later
        return tensor + torch.rand(tensor.shape, generator=self._generator, dtype=torch.float32).to(tensor.dtype)

    def _cast(self, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(self._dtype) if tensor.dtype in _FLOATING else tensor

    def _evaluate(self, node: fx.Node, values: dict[fx.Node, tuple]) -> tuple:
        if node.target is batch_total:
            return (values[node.args[0]][0],) * 3
        if all(isinstance(source.meta.get("val"), torch.Tensor) for source in node.all_input_nodes):
            read = [values[source] for source in node.all_input_nodes]
            if all(whole is a and whole is b for whole, a, b in read) and not _names_sizes(node):
                return (self._call(node, values, 0),) * 3
        return tuple(self._call(node, values, part) for part in range(3))

    def _call(self, node: fx.Node, values: dict[fx.Node, tuple], part: int) -> object:
        def resolve(value: object) -> object:
            if isinstance(value, torch.dtype) and value in _FLOATING:
                return self._dtype
            return value

        args = fx.map_arg(node.args, lambda source: values[source][part])
        kwargs = fx.map_arg(node.kwargs, lambda source: values[source][part])
        args = tuple(map(resolve, args))
        kwargs = {name: resolve(value) for name, value in kwargs.items()}
        if node.target in KEYED_DROPOUT:
            return args[0]
        if node.target in BATCH_STATISTICS:
            args = _with_kept_statistics(*args)
        target = IN_DOUBLE.get(node.target, node.target) if self._dtype is torch.float64 else node.target
        result = target(*args, **kwargs)
        if isinstance(result, torch.Tensor) and result.dtype in _FLOATING and result.dtype is not self._dtype:
            result = result.to(self._dtype)  # A factory that takes the default type.
        return result

    def _classify(self, node: fx.Node, values: tuple) -> Found | None:
        traced = node.meta.get("val")
        if isinstance(traced, torch.Tensor):
            return self._classify_tensor(node, None, traced, *values)
        if isinstance(traced, (list, tuple)) and all(isinstance(item, torch.Tensor) for item in traced):
            return [
                self._classify_tensor(node, i, item, *(value[i] for value in values)) for i, item in enumerate(traced)
            ]
        return None

    def _classify_tensor(
        self,
        node: fx.Node,
        output: int | None,
        traced: torch.Tensor,
        whole: torch.Tensor,
        a: torch.Tensor,
        b: torch.Tensor,
    ) -> Layout | Kind:
        if whole is a and whole is b:
            return Kind.CONSTANT
        sizes = [self._captured.batch.affine_or_none(size) for size in traced.shape]
        samples = (sum(self._parts), *self._parts)
        for tensor, count in zip((whole, a, b), samples):
            if None in sizes or list(tensor.shape) != [scale * count + offset for scale, offset in sizes]:
                return Kind.MIXED
        batched = [(dim, scale, offset) for dim, (scale, offset) in enumerate(sizes) if scale]
        if not batched:
            return self._classify_batchless(whole, a, b)
        dim, scale, offset = batched[0]
        if len(batched) > 1 or offset:
            return Kind.MIXED
        outers = [outer for outer in range(1, scale + 1) if scale % outer == 0]
        fitting = [Layout(dim, o) for o in outers if self._lies(whole, (a, b), dim, o, scale // o)]
        if len(fitting) == 1:
            return fitting[0]
        # Equal rows fit several ways.
        ruled = self._rules.get(node) if fitting else None
        ruled = ruled[output] if isinstance(ruled, list) else ruled
        return ruled if ruled in fitting else Kind.MIXED

    @functools.cached_property
    def _rules(self) -> Kinds:
        return kinds_by_rules(self._captured)

    def _lies(self, whole: torch.Tensor, parts: tuple, dim: int, outer: int, inner: int) -> bool:
        wide = whole.unflatten(dim, (outer, sum(self._parts), inner))
        begin = 0
        for part, samples in zip(parts, self._parts):
            if not self._equal(wide.narrow(dim + 1, begin, samples), part.unflatten(dim, (outer, samples, inner))):
                return False
            begin += samples
        return True

    def _classify_batchless(self, whole: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> Kind:
        if self._equal(whole, a) and self._equal(whole, b):
            return Kind.CONSTANT
        if whole.dtype is torch.bool:
            return Kind.MIXED
        if self._equal(whole, a + b):
            return Kind.SUM
        first, second = self._parts
        if whole.is_floating_point() and self._equal(whole, (a * first + b * second) / (first + second)):
            return Kind.MEAN
        return Kind.MIXED

    def _equal(self, x: torch.Tensor, y: torch.Tensor) -> bool:
        if x.shape != y.shape or x.dtype != y.dtype:
            return False
        if not x.is_floating_point():
            return torch.equal(x, y)
        if x.numel():
            most, differ = (torch.linalg.vector_norm(t, torch.inf) for t in (x, x - y))
            if torch.isfinite(differ) and differ <= self._tolerance * most:
                return True  # Nearly always, and several times as quick as element by element.
        finite = x[x.isfinite()].abs()
        scale = float(finite.max()) if finite.numel() else 0.0
        return torch.allclose(x, y, rtol=self._tolerance, atol=self._tolerance * scale, equal_nan=True)


def _names_sizes(node: fx.Node) -> bool:
    return any(isinstance(source.meta.get("val"), (int, torch.SymInt)) for source in node.all_input_nodes)


def _is_size(node: fx.Node) -> bool:
    return isinstance(node.meta.get("val"), (int, torch.SymInt, bool, torch.SymBool, float, torch.SymFloat)) and (
        node.op == "call_function"
    )


def _with_kept_statistics(
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor | None,
    variance: torch.Tensor | None,
    training: bool,
    *rest: object,
) -> tuple:
    """Batch normalisation with the statistics it keeps; those of the standard distribution where it keeps none."""
    if mean is None:
        mean, variance = x.new_zeros(x.shape[1]), x.new_ones(x.shape[1])
    return (x, weight, bias, mean, variance, False, *rest)


def find_kinds(captured: Captured, state: dict[str, torch.Tensor]) -> tuple[Kinds, Effort] | None:
    """The kinds of all live nodes and the effort that found them; None where no trial tells: the model is too large,
    runs on no batch of three samples, or gives no number, or always the same.

    Efforts that ask less of the inputs follow those that fail: first random tokens with ignored targets among them,
    then random tokens, then the example's own.
    """
    floating = sum(tensor.numel() for tensor in state.values() if tensor.is_floating_point())
    if floating > _MOST_PARAMETERS or any(is_virtual(tensor) for tensor in state.values()) and floating > _MOST_IN_DOUBLE:
        return None
    dtypes = [torch.float64, torch.float32] if floating <= _MOST_IN_DOUBLE else [torch.float32]
    for dtype, effort in itertools.product(dtypes, Effort):  # Some operators have no double precision.
        try:
            trial = Trial(captured, state, effort, dtype)
            if not trial.fits():
                return None
            kinds, believed = trial.run()
        except Exception:  # These inputs do not suit the model; that it runs at all, tracing has shown.
            continue
        if believed:
            return _of_other_draws(captured, state, effort, dtype, kinds), effort
    return None


def _of_other_draws(
    captured: Captured, state: dict[str, torch.Tensor], effort: Effort, dtype: torch.dtype, kinds: Kinds
) -> Kinds:
    """What is also true of other integers: where a batch has so few values that samples have the same ones, and where
    it has so many that no two have. And of buffers as they are later."""
    most = _MOST_DRAWS if dtype is torch.float64 else _MOST_DRAWS // 2
    draws = [Draw(number) for number in range(1, min(most, draws_that_tell(captured)))]
    draws += [Draw(alike=name) for name in grouping_inputs(captured)[:most]]
    draws += [Draw(later=later) for later in _LATER if captured.states]
    for draw in draws:
        try:
            others, believed = Trial(captured, state, effort, dtype, draw).run()
        except Exception:  # These do not suit the model.
            continue
        if believed:
            kinds = {node: _joined(found, others[node]) for node, found in kinds.items()}
    return kinds


def _joined(found: Found | None, other: Found | None) -> Found | None:
    """What two trials have shown; a value that none of the samples of one has changed may be a sum or a mean."""
    if isinstance(found, list):
        return [_joined(*pair) for pair in zip(found, other)]
    if found == other:
        return found
    if Kind.CONSTANT in (found, other):
        found = other if found is Kind.CONSTANT else found
        return found if found in (Kind.SUM, Kind.MEAN) else Kind.MIXED
    return Kind.MIXED
