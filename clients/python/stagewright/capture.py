"""From a module and example inputs to a pure FX graph of ATen operators with one symbolic batch size."""

import contextlib
import dataclasses
import inspect
from collections.abc import Callable

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.export import Dim, ExportedProgram
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils import _pytree as pytree

from .errors import ExportError
from .functionalize import make_functional
from .losses import derive_target
from .symbols import Batch


@dataclasses.dataclass(frozen=True)
class Captured:
    """A traced model with its loss. The graph returns (loss, prediction or None)."""

    program: ExportedProgram
    batch: Batch
    # Names of the graph's tensor inputs in the order of their placeholders, and whether only the loss reads them.
    input_names: list[tuple[str, bool]]
    # What the model returned while it was traced; sizes are symbolic.
    output: object
    # The symbolic example target.
    target: object


class ModelWithLoss(nn.Module):
    """The module that is traced: the model, then the loss."""

    def __init__(self, model: nn.Module, loss: Callable, observe: Callable):
        super().__init__()
        self.model = model
        # A plain callable is kept away from nn.Module's registry.
        self.loss = loss if isinstance(loss, nn.Module) else None
        object.__setattr__(self, "_loss", loss)
        object.__setattr__(self, "_observe", observe)

    def forward(self, args, kwargs, target):
        output = self.model(*args, **kwargs)
        loss = self._loss(output, target)
        if not isinstance(loss, torch.Tensor) or loss.dim() != 0:
            shape = tuple(loss.shape) if isinstance(loss, torch.Tensor) else type(loss).__name__
            raise ExportError(f"the loss must be a scalar tensor, but it is {shape}; reduce it with a mean or a sum")
        self._observe((output, target))
        return loss, first_tensor(output)


def first_tensor(output: object) -> torch.Tensor | None:
    """The model's prediction: its output, or the first tensor in it (`logits` if it has one)."""
    if isinstance(output, dict) and isinstance(output.get("logits"), torch.Tensor):
        return output["logits"]
    return next((leaf for leaf in pytree.tree_leaves(output) if isinstance(leaf, torch.Tensor)), None)


def is_virtual(tensor: torch.Tensor) -> bool:
    """True for tensors that have a shape but no data."""
    return tensor.is_meta or isinstance(tensor, FakeTensor)


def capture(
    model: nn.Module, args: tuple, kwargs: dict, loss: Callable, targets: object | None, batch_dim: int
) -> Captured:
    """Traces `model` and `loss` in training mode. The module is left as it was."""
    mode = FakeTensorMode(shape_env=ShapeEnv(), allow_non_fake_inputs=True)
    args, kwargs = _fresh(args, batch_dim), _fresh(kwargs, batch_dim)
    with _training(model), _fake_state(model, mode):
        if targets is None:
            with mode, torch.no_grad(), _forked_rng():
                fakes = pytree.tree_map_only(torch.Tensor, lambda t: _fake_like(t, mode), (args, kwargs))
                output = _with_fake_state(model, mode, fakes)
                targets = derive_target(loss, output)
            targets = torch.zeros(targets.shape, dtype=targets.dtype)
        else:
            targets = _fresh(targets, batch_dim)
        names = _input_names(model, args, kwargs, targets)
        _check_batch(names, pytree.tree_leaves((args, kwargs, targets)), batch_dim)
        seen: list[tuple] = []
        wrapper = ModelWithLoss(model, loss, seen.append)
        program = _trace(wrapper, (args, kwargs, targets), batch_dim)
    output, target = seen[-1]
    tensor_names = [
        (name, is_target)
        for (name, is_target), leaf in zip(names, pytree.tree_leaves((args, kwargs, targets)))
        if isinstance(leaf, torch.Tensor)
    ]
    batch = _batch_symbol(program, batch_dim)
    return Captured(make_functional(program), batch, tensor_names, output, target)


def _trace(wrapper: ModelWithLoss, example: tuple, batch_dim: int) -> ExportedProgram:
    dim = Dim("batch", min=1)
    shapes = pytree.tree_map(lambda x: {batch_dim: dim} if isinstance(x, torch.Tensor) else None, example)
    try:
        return torch.export.export(wrapper, example, dynamic_shapes=shapes, strict=False)
    except ExportError:
        raise
    except Exception as error:
        raise ExportError(f"torch.export cannot trace the model: {_explain(error)}") from error


def _explain(error: Exception) -> str:
    text = str(error).strip()
    if "onstraint" in text and "batch" in text:
        text = "the model fixes or restricts the batch size. " + text
    return text.split("\n\nFrom user code")[0][:2000]


@contextlib.contextmanager
def _training(model: nn.Module):
    """Traces a model that is in evaluation mode as training would run it; mixed modes stay as the user set them."""
    if model.training:
        yield
        return
    before = [(module, module.training) for module in model.modules()]
    model.train()
    try:
        yield
    finally:
        for module, training in before:
            module.training = training


@contextlib.contextmanager
def _forked_rng():
    with torch.random.fork_rng(devices=[]):
        yield


@contextlib.contextmanager
def _fake_state(model: nn.Module, mode: FakeTensorMode):
    """While open, parameters and buffers without data are fake CPU tensors, so that mixed devices do not matter."""
    replaced: list[tuple[dict, str, torch.Tensor]] = []
    fakes: dict[int, torch.Tensor] = {}
    for module in model.modules():
        for registry in (module._parameters, module._buffers):
            for name, tensor in registry.items():
                if tensor is None or not is_virtual(tensor):
                    continue
                if id(tensor) not in fakes:
                    fake = _fake_like(tensor, mode)
                    if isinstance(tensor, nn.Parameter):
                        fake = nn.Parameter(fake, requires_grad=tensor.requires_grad)
                    fakes[id(tensor)] = fake
                replaced.append((registry, name, tensor))
                registry[name] = fakes[id(tensor)]
    try:
        yield
    finally:
        for registry, name, tensor in replaced:
            registry[name] = tensor


def _fake_like(tensor: torch.Tensor, mode: FakeTensorMode) -> torch.Tensor:
    with mode:
        return torch.empty(tuple(tensor.shape), dtype=tensor.dtype)


def _with_fake_state(model: nn.Module, mode: FakeTensorMode, inputs: tuple) -> object:
    """Runs the model on shapes only."""
    args, kwargs = inputs
    state = {}
    for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
        state[name] = tensor if isinstance(tensor, FakeTensor) else _fake_like(tensor, mode)
    return torch.func.functional_call(model, state, args, kwargs)


def _fresh(tree: object, batch_dim: int) -> object:
    """Copies of the example tensors: distinct objects (tracing merges equal ones), real, with two samples or more.

    Tracing would take a size of 1 for a constant.
    """

    def copy(tensor: torch.Tensor) -> torch.Tensor:
        if is_virtual(tensor):
            tensor = torch.zeros(tuple(tensor.shape), dtype=tensor.dtype)
        tensor = tensor.detach().cpu()
        if tensor.dim() > batch_dim and tensor.shape[batch_dim] == 1:
            return torch.cat([tensor, tensor], dim=batch_dim)
        return tensor.clone()

    return pytree.tree_map_only(torch.Tensor, copy, tree)


def _input_names(model: nn.Module, args: tuple, kwargs: dict, targets: object) -> list[tuple[str, bool]]:
    """(name, only for the loss) of every leaf of (args, kwargs, targets): forward argument names, and `target`."""
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
    for name, value in [*zip(positional, args), *kwargs.items(), ("target", targets)]:
        for path, _ in pytree.tree_flatten_with_path(value)[0]:
            names.append(".".join([name, *(_key_text(key) for key in path)]))
    leaves = pytree.tree_leaves((args, kwargs))
    if len(set(names)) != len(names):
        raise ExportError(f"two inputs have the same name: {sorted(names)}")
    return [(name, position >= len(leaves)) for position, name in enumerate(names)]


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
                raise ExportError(f"input '{name}' has shape {tuple(leaf.shape)}, without a batch dimension {batch_dim}")
            sizes[name] = leaf.shape[batch_dim]
    if not sizes:
        raise ExportError("the example inputs contain no tensor")
    if len(set(sizes.values())) > 1:
        raise ExportError(
            f"the example inputs differ in dimension {batch_dim}, the batch: {sizes}; "
            "a tensor that is the same for all samples belongs in a buffer of the module"
        )


def _batch_symbol(program: ExportedProgram, batch_dim: int) -> Batch:
    for spec, node in zip(program.graph_signature.input_specs, program.graph.find_nodes(op="placeholder")):
        value = node.meta.get("val")
        if spec.kind is torch.export.graph_signature.InputKind.USER_INPUT and isinstance(value, torch.Tensor):
            size = value.shape[batch_dim]
            if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol:
                return Batch(size.node.expr, size.node.shape_env)
    raise ExportError("the model fixes the batch size: no input has a symbolic batch dimension after tracing")
