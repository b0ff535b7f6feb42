"""From a module and example inputs to a pure FX graph of ATen operators with one symbolic batch size."""

import collections
import contextlib
import dataclasses
import inspect
import io
import itertools
import logging
import re
import sys
import warnings
from collections.abc import Callable

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from ..errors import ExportError
from .autograd_functions import FunctionCalls, plain_functions
from .ctc import traceable_ctc
from .diagnosis import explain, fixed_sizes, reading_of, refuse_what_fails_by_itself
from .functionalize import make_functional
from .held_state import kept_state
from .losses import derive_target
from .outputs import prediction_of
from .places import exact_lines
from .regions import marked_regions
from .repeated_calls import refuse_hidden_state
from .replaced_tensors import replaced_tensors
from .shared_memory import read_as_state
from .symbols import Batch
from .traceable import (
    ForAnyBatch,
    KeptSlices,
    cumulative_averages,
    idle_conversions,
    masks_as_given,
    settled_minima,
    unchecked_distributions,
)
from .unrecorded import (
    noted_escapes,
    refuse_backward_hooks,
    refuse_own_randomness,
    refused_backward,
    refused_gradients,
    refused_hooks,
    refused_packing,
)
from .unsuitable import refused_members


@dataclasses.dataclass(frozen=True)
class Captured:
    """A traced model with its loss. The graph returns the new values of `states`, then loss and prediction or None."""

    program: ExportedProgram
    batch: Batch
    # Names of the graph's tensor inputs in the order of their placeholders, and whether only the loss reads them.
    input_names: list[tuple[str, bool]]
    # What the model returned while it was traced; sizes are symbolic.
    output: object
    # The symbolic example target.
    target: object
    # Names of the buffers that forward changes, as the traced module has them.
    states: list[str]
    # The example's inputs by name, as data files hold them: samples first. Without data where the example has none.
    example: dict[str, torch.Tensor]
    # The same as arguments, keyword arguments and target, and the dimension in which these have the samples.
    call: tuple
    batch_dim: int


_PLAIN_CONTAINERS = (dict, list, tuple, collections.deque)


class ModelWithLoss(nn.Module):
    """The module that is traced: the model, then the loss. Its inputs have the samples in the first dimension."""

    def __init__(self, model: nn.Module, loss: Callable, batch_dim: int, observe: Callable, keep_slices: bool):
        super().__init__()
        self.model = model
        # A plain callable is kept away from nn.Module's registry.
        self.loss = loss if isinstance(loss, nn.Module) else None
        object.__setattr__(self, "_loss", loss)
        object.__setattr__(self, "_observe", observe)
        # Plain tensor attributes that forward sets before it reads them.
        self.set_by_forward: list[str] = []
        self.batch_dim = batch_dim
        self.keep_slices = keep_slices

    def forward(self, args, kwargs, target):
        if self.batch_dim != 0:
            args, kwargs, target = pytree.tree_map_only(
                torch.Tensor, lambda tensor: tensor.movedim(0, self.batch_dim), (args, kwargs, target)
            )
        for name in _held_tensors(self.model).keys() & self.set_by_forward:  # A tracer may call forward more than once.
            _delete(self.model, name)
        before, buffers = _held_tensors(self.model), _held_buffers(self)
        with ForAnyBatch(), KeptSlices() if self.keep_slices else contextlib.nullcontext():
            output = self.model(*args, **kwargs)
            after = _held_tensors(self.model)
            changed = [name for name in sorted(before) if before[name] is not after.get(name)]
            changed += [name for name in sorted(after.keys() - before.keys()) if name not in self.set_by_forward]
            if changed:
                raise AssignedAttributes(changed)
            loss = self._loss(output, target)
        _write_back(buffers)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ExportError(f"the loss must be a scalar tensor, but it is {shape}; reduce it with a mean or a sum")
        self._observe((output, target))
        prediction = prediction_of(output)
        if self.batch_dim != 0 and prediction is not None and prediction.dim() > self.batch_dim:
            prediction = prediction.movedim(self.batch_dim, 0)
        return loss, prediction


def public_name(name: str) -> str:
    """The model's own name of a tensor of ModelWithLoss; the loss's tensors keep the prefix `loss.`."""
    return name.removeprefix("model.")


class AssignedAttributes(ExportError):
    """Forward assigns tensors to attributes that are no buffers: state, unless it sets them before it reads them."""

    def __init__(self, names: list[str]):
        super().__init__(
            f"forward assigns the tensor '{names[0]}' to the module, which is no buffer of it; state that a module "
            f'carries from one step to the next must be one: self.register_buffer("{names[0].split(".")[-1]}", ...)'
        )
        self.names = names


def _held_tensors(model: nn.Module) -> dict[str, torch.Tensor]:
    """Plain tensor attributes of a module and its children, by name."""
    held = {}
    for path, module in model.named_modules():
        for name, value in vars(module).items():
            if isinstance(value, torch.Tensor):
                held[f"{path}.{name}" if path else name] = value
    return held


def _delete(model: nn.Module, name: str) -> None:
    path, _, attribute = name.rpartition(".")
    delattr(model.get_submodule(path), attribute)


def _held_buffers(model: nn.Module) -> list[tuple[dict, str, torch.Tensor]]:
    """The buffers of a module and its children: where each is kept, and what it is."""
    return [
        (module._buffers, name, value)
        for module in model.modules()
        for name, value in module._buffers.items()
        if value is not None
    ]


def _write_back(buffers: list[tuple[dict, str, torch.Tensor]]) -> None:
    """Writes what forward has put in a buffer's place to the buffer: the tracer sees no assignment to a child's."""
    with torch.no_grad():
        for registry, name, tensor in buffers:
            if registry.get(name) is not tensor:
                tensor.copy_(registry[name])
                registry[name] = tensor


def is_virtual(tensor: torch.Tensor) -> bool:
    """True for tensors that have a shape but no data."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def capture(
    model: nn.Module,
    args: tuple,
    kwargs: dict,
    loss: Callable,
    targets: object | None,
    batch_dim: int,
    keep_slices: bool = False,
) -> Captured:
    """Traces `model` and `loss` in training mode. The module is left as it was.

    keep_slices: for graphs of several lengths, which have a slice to a length where that is the whole, too.
    """
    calls = FunctionCalls()
    try:
        return _capture(model, args, kwargs, loss, targets, batch_dim, calls, keep_slices)
    finally:
        calls.refuse_other_derivatives()  # Also where it failed: their forward may be nothing that can be traced.


def _capture(
    model: nn.Module,
    args: tuple,
    kwargs: dict,
    loss: Callable,
    targets: object | None,
    batch_dim: int,
    calls: FunctionCalls,
    keep_slices: bool,
) -> Captured:
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    refuse_backward_hooks(model, *([loss] if isinstance(loss, nn.Module) else []))
    with _traceable(model, _modules(model, loss), mode, calls), kept_state(_modules(model, loss)):
        names = _input_names(model, args, kwargs)
        _check_batch(names, pytree.tree_leaves((args, kwargs)), batch_dim)
        if targets is None:
            targets = derive_target(loss, _example_output(model, mode, args, kwargs))
        names += _target_names(targets, names)
        _check_batch(names, pytree.tree_leaves((args, kwargs, targets)), batch_dim)
        example = _stored_form((args, kwargs, targets), batch_dim)
        refuse_hidden_state(model, loss, example, batch_dim)
        seen: list[tuple] = []
        wrapper = ModelWithLoss(model, loss, batch_dim, seen.append, keep_slices)
        program, bounds = refuse_own_randomness(lambda: _trace_with_attributes(wrapper, example))
    output, target = seen[-1]
    leaves = [
        (name, leaf) for name, leaf in zip(names, pytree.tree_leaves(example)) if isinstance(leaf, torch.Tensor)
    ]
    batch = _batch_symbol(program, bounds)
    read_as_state(program, dict(itertools.chain(wrapper.named_parameters(), wrapper.named_buffers())))
    program, states = make_functional(program, batch.shape_env, keep_slices)
    inputs = {name: leaf for (name, _), leaf in leaves}
    return Captured(program, batch, [name for name, _ in leaves], output, target, states, inputs, example, batch_dim)


def runs(model: nn.Module, args: tuple, kwargs: dict) -> bool:
    """Whether the model gives an output for these arguments, as far as shapes can tell."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    calls = FunctionCalls()
    with _traceable(model, [*model.modules()], mode, calls):
        try:
            _example_output(model, mode, args, kwargs)
        except ExportError:
            return bool(calls)  # It got so far; what those compute may ask for values.
    return True


@contextlib.contextmanager
def _traceable(model: nn.Module, modules: list[nn.Module], mode: FakeTensorMode, calls: FunctionCalls):
    """While open, the model is in training mode, and does in ways that can be traced what it does in others."""
    with (
        in_mode(model, training=True),
        _fake_state(modules, mode),
        plain_functions(model, calls),
        cumulative_averages(),
        idle_conversions(),
        unchecked_distributions(),
        masks_as_given(),
        settled_minima(),
        traceable_ctc(),
        refused_hooks(),
        refused_gradients(),
        refused_backward(),
        refused_packing(),
        refused_members(modules),
        torch.compiler.set_stance("force_eager"),  # For calls that try it: compiling would take minutes.
    ):
        yield


def _trace_with_attributes(
    wrapper: ModelWithLoss, example: tuple
) -> tuple[ExportedProgram, tuple[int, int | None]]:
    """A trace; if forward assigns attributes, one without their old values: what a hook computes anew is no state."""
    try:
        with kept_state([*wrapper.model.modules()]):
            return _trace(wrapper, example)
    except AssignedAttributes as error:
        held = _held_tensors(wrapper.model)
        wrapper.set_by_forward = error.names
        try:
            with kept_state([*wrapper.model.modules()], without=[name for name in error.names if name in held]):
                return _trace(wrapper, example)
        except Exception:
            raise error from None


def _trace(wrapper: ModelWithLoss, example: tuple) -> tuple[ExportedProgram, tuple[int, int | None]]:
    """The program, and how many samples it takes at least and at most."""
    bounds: tuple[int, int | None] = (1, None)
    while True:
        dim = Dim("batch", min=bounds[0], max=bounds[1])
        shapes = _dynamic_shapes(example, dim)
        try:
            with _quiet(), exact_lines(), marked_regions(), fixed_sizes() as fixed, noted_escapes() as escapes:
                return torch.export.export(wrapper, example, dynamic_shapes=shapes, strict=False), bounds
        except ExportError:
            raise
        except Exception as error:
            narrower = suggested_bounds(str(error), bounds)
            if narrower is None:
                refuse_what_fails_by_itself(wrapper, example)
                raise ExportError(f"torch.export cannot trace the model: {explain(error, fixed, escapes)}") from error
            bounds = narrower


def _dynamic_shapes(example: object, dim: Dim) -> object:
    """What torch.export takes for `example`: of containers that are none of Python's own, a list for their contents."""

    def is_own(value: object) -> bool:
        return type(value) in pytree.SUPPORTED_NODES and not isinstance(value, _PLAIN_CONTAINERS)

    def shape(value: object) -> object:
        if is_own(value):
            contents = pytree.SUPPORTED_NODES[type(value)].flatten_fn(value)[0]
            return [_dynamic_shapes(item, dim) for item in contents]
        return {0: dim} if isinstance(value, torch.Tensor) else None

    return pytree.tree_map(shape, example, is_leaf=is_own)


def suggested_bounds(message: str, bounds: tuple[int, int | None]) -> tuple[int, int | None] | None:
    """The range of the batch that PyTorch suggests for a model that takes other ways outside it; None unless it is
    narrower than `bounds` and holds more than one number."""
    suggested = re.search(r"^\s*batch = Dim\('batch'((?:, \w+=\d+)+)\)", message, re.MULTILINE)
    if suggested is None:
        return None
    given = {name: int(value) for name, value in re.findall(r"(min|max)=(\d+)", suggested[1])}
    least, most = given.get("min", bounds[0]), given.get("max", bounds[1])
    if (least, most) == bounds or (most is not None and most <= least):
        return None
    return least, most


@contextlib.contextmanager
def _quiet():
    """Keeps the tracer from printing what the error or our own checks say better."""
    logger = logging.getLogger("torch.fx.experimental.symbolic_shapes")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    said = io.StringIO()
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(said):
            warnings.filterwarnings("ignore", message="The tensor attribute", category=UserWarning)
            yield
    finally:
        logger.setLevel(level)
    sys.stderr.write(said.getvalue())


@contextlib.contextmanager
def in_mode(model: nn.Module, training: bool):
    """While open, the model is in training or evaluation mode; modes that children were set to on their own stay if
    the model itself is in that mode already."""
    before = [(module, module.training) for module in model.modules()]
    if model.training != training:
        model.train(training)
    try:
        yield
    finally:
        for module, mode in before:
            module.training = mode


def _modules(model: nn.Module, loss: Callable) -> list[nn.Module]:
    return [*model.modules(), *(loss.modules() if isinstance(loss, nn.Module) else ())]


@contextlib.contextmanager
def _fake_state(modules: list[nn.Module], mode: FakeTensorMode):
    """While open, parameters and buffers without data, or on another device, are fake CPU tensors: tracing needs all
    tensors on one device, and no data."""

    def replacement(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.device.type == "cpu" and not is_virtual(tensor):
            return tensor
        fake = _fake_like(tensor, mode)
        return nn.Parameter(fake, requires_grad=tensor.requires_grad) if isinstance(tensor, nn.Parameter) else fake

    with replaced_tensors(modules, replacement):
        yield


def _fake_like(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)


def _example_output(model: nn.Module, mode: FakeTensorMode, args: tuple, kwargs: dict) -> object:
    """What the model returns, as shapes."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: _fake_like(t, mode), (args, kwargs))
    fakes = replaced_tensors(model.modules(), lambda t: t if isinstance(t, FakeTensor) else _fake_like(t, mode))
    try:
        with fakes, mode, torch.enable_grad(), torch.random.fork_rng(devices=[]):  # Forward may ask for gradients.
            return model(*args, **kwargs)
    except ExportError:
        raise
    except Exception as error:
        reading = reading_of(model, args)
        raise ExportError(f"{type(model).__name__} fails on the example inputs: {explain(error)}{reading}") from error


def _stored_form(tree: object, batch_dim: int) -> object:
    """Copies of the example tensors as a data file holds them: samples along the first dimension.

    The copies are distinct objects, because tracing merges equal ones, real, and have two samples or more, because
    tracing takes a size of 1 for a constant.
    """

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if is_virtual(tensor):
            tensor = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
        tensor = tensor.detach().cpu().movedim(batch_dim, 0)
        return torch.cat([tensor, tensor]) if tensor.shape[0] == 1 else tensor.clone()

    return pytree.tree_map_only(torch.Tensor, copy, tree)


def _input_names(model: nn.Module, args: tuple, kwargs: dict) -> list[tuple[str, bool]]:
    """(name, False) of every leaf of (args, kwargs): the forward argument, and the path inside it."""
    try:
        bound = inspect.signature(model.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise ExportError(f"the example inputs do not fit {type(model).__name__}.forward: {error}") from error
    names: list[str] = []
    positional: list[str] = []
    for name, parameter in inspect.signature(model.forward).parameters.items():
        if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
            positional += [f"{name}.{i}" for i in range(len(bound.arguments.get(name, ())))]
        else:
            positional.append(name)
    for name, value in [*zip(positional, args), *kwargs.items()]:
        names += _leaf_names(name, value)
    return [(name, False) for name in names]


def _target_names(targets: object, inputs: list[tuple[str, bool]]) -> list[tuple[str, bool]]:
    names = _leaf_names("target", targets)
    if set(names) & {name for name, _ in inputs}:
        raise ExportError("'target' names the loss's input, so forward cannot have an argument of that name")
    return [(name, True) for name in names]


def _leaf_names(name: str, value: object) -> list[str]:
    return [".".join([name, *map(_key_text, path)]) for path, _ in pytree.tree_flatten_with_path(value)[0]]


def _key_text(key: object) -> str:
    for attribute in ("idx", "key", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def _check_batch(names: list[tuple[str, bool]], leaves: list, batch_dim: int) -> None:
    sizes = {}
    for (name, _), leaf in zip(names, leaves):
        if isinstance(leaf, torch.Tensor):
            if leaf.dim() <= batch_dim:
                raise ExportError(
                    f"input '{name}' has shape {tuple(leaf.shape)}, without a batch dimension {batch_dim}"
                )
            if leaf.is_complex():
                raise ExportError(
                    f"input '{name}' is complex, which data files of real types cannot hold; pass torch.view_as_real of "
                    "it, and read it in forward with torch.view_as_complex"
                )
            sizes[name] = leaf.shape[batch_dim]
        elif dataclasses.is_dataclass(leaf):
            kind = type(leaf).__name__
            raise ExportError(
                f"input '{name}' is a {kind}, a dataclass that PyTorch does not look into; tell it to, "
                f"torch.export.register_dataclass({kind}), before export"
            )
    if not sizes:
        raise ExportError("the example inputs contain no tensor")
    if len(set(sizes.values())) > 1:
        raise ExportError(
            f"the example inputs differ in dimension {batch_dim}, the batch: {sizes}; "
            "a tensor that is the same for all samples belongs in a buffer of the module"
        )


def _batch_symbol(program: ExportedProgram, bounds: tuple[int, int | None]) -> Batch:
    for spec, node in zip(program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT and isinstance(value, torch.Tensor):
            size = value.shape[0]
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                return Batch(size.node.expr, size.node.shape_env, *bounds)
    raise ExportError("the model fixes the batch size: no input has a symbolic batch dimension after tracing")
