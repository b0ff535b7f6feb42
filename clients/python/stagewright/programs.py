"""Programs written by torch.export, as modules that can be captured again with a loss."""

import functools
import inspect
import os
import pathlib
import warnings

import torch
from torch import fx, nn
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind
from torch.utils import _pytree as pytree

from .errors import ExportError

# Operators that carry a flag for training, and the position of that flag.
_TRAINING_FLAG = {
    torch.ops.aten.dropout.default: 2,
    torch.ops.aten.feature_dropout.default: 2,
    torch.ops.aten.batch_norm.default: 5,
}


def open_program(
    source: "ExportedProgram | str | os.PathLike", example_inputs: object | None, batch_dim: int
) -> tuple[nn.Module, object]:
    """The module of a program, or of a `.pt2` file, and example inputs: its own unless others are given."""
    program = source if isinstance(source, ExportedProgram) else _read(source)
    module = _as_module(program, batch_dim)
    return module, _example_of(program, module) if example_inputs is None else example_inputs


def _read(path: str | os.PathLike) -> ExportedProgram:
    """Reads a `.pt2` file."""
    try:
        pathlib.Path(path).open("rb").close()
        return torch.export.load(path)
    except OSError as error:
        raise ExportError(f"{path}: {error.strerror}") from error
    except Exception as error:
        reason = (str(error) or repr(error)).splitlines()[0]
        raise ExportError(f"{path}: not a program of torch.export.save that this PyTorch can read: {reason}") from error


def _as_module(program: ExportedProgram, batch_dim: int) -> nn.Module:
    """The program as a module with its own parameter names, whose operators know the modules they came from.

    Raises ExportError unless every tensor input has the batch, of any size, in dimension `batch_dim`.
    """
    _check_batch(program, batch_dim)
    _warn_if_frozen(program)
    module = program.module()
    module._forward_pre_hooks.clear()  # They insist on how arguments were passed, and on sizes that tracing finds out.
    module._forward_pre_hooks_with_kwargs.clear()
    _tie(module)
    for node in module.graph.nodes:
        stack = node.meta.get("nn_module_stack")
        if stack:  # Capture knows the module as "model".
            node.meta["nn_module_stack"] = {
                key: (f"model.{path}" if path else "model", kind) for key, (path, kind) in stack.items()
            }
    signature = inspect.signature(module.forward)
    forward = functools.partial(_interpret, module)
    forward.__signature__ = _with_keywords(signature, program)
    module.forward = forward
    module.train = lambda mode=True: module  # What training changes is written in the graph.
    return module


def _interpret(module: fx.GraphModule, *args: object, **kwargs: object) -> object:
    """Runs the program node by node, so that a tracer sees which module each operator came from."""
    names = list(module.forward.__signature__.parameters)
    ordered = [*args, *(kwargs[name] for name in names[len(args) :])]
    with fx.traceback.preserve_node_meta():
        return fx.Interpreter(module).run(*ordered)


def _with_keywords(signature: inspect.Signature, program: ExportedProgram) -> inspect.Signature:
    """Arguments that were given by name when the program was made are given by name again."""
    keywords = set(program.call_spec.in_spec.child(1).context or ())
    parameters = [
        parameter.replace(kind=parameter.KEYWORD_ONLY) if parameter.name in keywords else parameter
        for parameter in signature.parameters.values()
    ]
    return signature.replace(parameters=parameters)


def _tie(module: nn.Module) -> None:
    """Makes parameters that share their memory one object again; files keep the memory alone."""
    seen: dict[tuple, torch.Tensor] = {}
    for owner in module.modules():
        for registry in (owner._parameters, owner._buffers):
            for name, tensor in registry.items():
                if tensor is not None and tensor.device.type == "cpu" and tensor.data_ptr():
                    key = (tensor.data_ptr(), tensor.shape, tensor.stride(), tensor.dtype)
                    registry[name] = seen.setdefault(key, tensor)


def _check_batch(program: ExportedProgram, batch_dim: int) -> None:
    placeholders = program.graph.find_nodes(op="placeholder")
    for spec, node in zip(program.graph_signature.input_specs, placeholders):
        value = node.meta.get("val")
        if spec.kind is not InputKind.USER_INPUT or not isinstance(value, torch.Tensor):
            continue
        size = value.shape[batch_dim] if value.dim() > batch_dim else None
        if not isinstance(size, torch.SymInt):
            found = "no samples" if size is None else f"{size} samples, as it was exported,"
            raise ExportError(
                f"input '{node.name}' of the program has {found} in dimension {batch_dim}; export it with "
                f'dynamic_shapes that give every input {{{batch_dim}: torch.export.Dim("batch")}}'
            )


def _warn_if_frozen(program: ExportedProgram) -> None:
    for node in program.graph.nodes:
        position = _TRAINING_FLAG.get(node.target)
        if position is not None and node.args[position] is False:
            warnings.warn(
                f"node '{node.name}' ({node.target}): the program was exported in evaluation mode and trains as such; "
                "call model.train() before torch.export.export",
                stacklevel=4,
            )
            return


def _example_of(program: ExportedProgram, module: nn.Module) -> object:
    """The example inputs that the program was made from, as a dictionary where any had a name."""
    if program.example_inputs is None:
        raise ExportError("the program holds no example inputs; pass example_inputs")
    args, kwargs = program.example_inputs
    names = list(inspect.signature(module.forward).parameters)
    return dict(zip(names, args)) | dict(kwargs) if kwargs else tuple(args)
