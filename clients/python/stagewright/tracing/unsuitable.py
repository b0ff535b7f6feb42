"""Parts of a model that no tracer follows, refused by their name before it runs, and parts that forward adds to it."""

import contextlib
import sys
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn.modules import module as registration
from torch.nn.parameter import is_lazy
from torch.nn.utils import _named_member_accessor as accessor

from ..errors import ExportError
from .places import line_here
from .wrappers import PARALLEL


def refuse_unsuitable_parts(*modules: nn.Module) -> None:
    """modules: a model, and its loss if it is one."""
    for module in modules:
        for name, part in module.named_modules():
            where = f"the module '{name}'" if name else f"the {getattr(module, 'original_name', type(module).__name__)}"
            _refuse_module(where, part)
            for kind, tensors in (("parameter", part._parameters), ("buffer", part._buffers)):
                for key, tensor in tensors.items():
                    _refuse_tensor(f"the {kind} '{f'{name}.' if name else ''}{key}'", tensor)


def _refuse_module(where: str, module: nn.Module) -> None:
    if isinstance(module, PARALLEL):
        raise ExportError(
            f"{where} is wrapped in {type(module).__name__}; plans decide how many replicas train a part: put the module "
            "inside, `.module`, in its place"
        )
    if isinstance(module, torch.jit.RecursiveScriptModule) and not isinstance(module, torch.jit.TopLevelTracedModule):
        raise ExportError(f"{where} is compiled by torch.jit.script and has no Python code; use the module it was made from")
    if any(kind.__name__ == "FakeQuantizeBase" for kind in type(module).__mro__):
        raise ExportError(
            f"{where} quantizes values for training ({type(module).__name__}), which has no form in a graph; train "
            "without it and quantize afterwards"
        )


def _refuse_tensor(where: str, tensor: torch.Tensor | None) -> None:
    if tensor is None:
        return
    if is_lazy(tensor):
        raise ExportError(f"{where} of a lazy module has no shape yet; call the model once on a batch before it is exported")
    if tensor.layout is not torch.strided:
        raise ExportError(f"{where} is sparse, which workers do not compute with; keep a dense one (.to_dense())")


def refuse_unsettled_mode(model: nn.Module) -> None:
    """ExportError for a model in training mode of which train() would freeze more: it was made so, and a training loop that
    calls train() would train another. What was put in evaluation mode by hand stays so."""
    if not model.training or all(type(module).train is nn.Module.train for module in model.modules()):
        return
    modes = {name: (module, module.training) for name, module in model.named_modules()}
    trained = {name: (parameter, parameter.requires_grad) for name, parameter in model.named_parameters()}
    try:
        model.train()
        frozen = [name for name, (module, before) in modes.items() if before and not module.training]
        frozen += [name for name, (parameter, before) in trained.items() if before and not parameter.requires_grad]
    finally:
        for module, before in modes.values():
            module.training = before
        for parameter, before in trained.values():
            parameter.requires_grad_(before)
    if frozen:
        raise ExportError(
            f"train() of {type(model).__name__} freezes '{frozen[0]}', but has not been called; call model.train() before "
            "export, as before training"
        )


@contextlib.contextmanager
def refused_members(modules: list[nn.Module]) -> Iterator[None]:
    """While open, none of the modules gets parameters, buffers or modules that it had not, nor other parameters in the
    place of its own: an optimizer would not know them. Modules that hold no tensors may come and go."""
    own = {id(module) for module in modules}

    def refuse(module: nn.Module, kind: str, name: str, value: object) -> None:
        held = getattr(module, f"_{kind}s")
        if id(module) not in own or (name in held and (kind == "buffer" or held[name] is value)) or _by_pytorch():
            return
        if isinstance(value, nn.Module) and not [*value.parameters(), *value.buffers()]:
            own.update(map(id, value.modules()))
            return
        raise ExportError(
            f"forward gives its module another {kind}, '{name}'{line_here()}; what a module has is settled when training "
            "begins: make it in __init__"
        )

    def of_kind(kind: str) -> Callable:
        return lambda module, name, value: refuse(module, kind, name, value)

    with contextlib.ExitStack() as stack:
        for kind in ("parameter", "buffer", "module"):
            register = getattr(registration, f"register_module_{kind}_registration_hook")
            stack.callback(register(of_kind(kind)).remove)
        yield


def _by_pytorch() -> bool:
    """Whether PyTorch puts other tensors in the place of a module's own for a call of it, or takes them away."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_globals.get("__name__") in (__name__, registration.__name__):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__") == accessor.__name__
