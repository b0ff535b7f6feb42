"""The public `export`: capture, find out how samples lie and the loss adds up, lower, write the files."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.export import ExportedProgram

from .branches import assumed_branches
from .capture import capture, is_virtual, runs
from .errors import ExportError
from .example_batches import read_example
from .graph_file import save_graph
from .loss_forms import takes_target, with_two_arguments
from .loss_terms import CoupledSamples, separate_loss
from .lowering import Lowering, refuse_randomness, wrapper_state
from .programs import open_program
from .proto import pb
from .tensor_file import write_tensors
from .version import __version__
from .wrappers import unwrapped

_REDUCTIONS = ("mean", "sum")


@dataclasses.dataclass(frozen=True)
class Exported:
    """What `export` made. `weights_path` is None when no weights file was written."""

    graph: "pb.Graph"
    path: pathlib.Path
    weights_path: pathlib.Path | None
    # The tensors of the example batch by the names that data files have for them, in the batch's order, and the target
    # if it was given apart. The graph reads some of them.
    batch_names: tuple[str, ...] = ()


def export(
    model: "nn.Module | ExportedProgram | str | os.PathLike",
    example_inputs: object = None,
    *,
    loss: Callable | None = None,
    targets: object | None = None,
    batch_dim: int = 0,
    weights: bool = True,
    path: str | os.PathLike | None = None,
    name: str | None = None,
    reduction: str | None = None,
    whole_batch: bool = False,
    assume: Mapping[str, bool] | None = None,
) -> Exported:
    """Writes `model` and its loss as a graph file (`.swg`), and its weights as `.safetensors` beside it.

    model: any nn.Module that torch.export can trace. It is captured in training mode and left unchanged. Or a program
        that torch.export has made, or its `.pt2` file: with its weights, and by default with its example inputs.
    example_inputs: a tensor, a tuple of positional arguments, or a dict of keyword arguments of `forward`; or a batch
        whose last element, or whose entry "target" or "labels", is the target and no argument of `forward`; or a
        DataLoader or Dataset of such. Shapes and dtypes matter; values only tell what numbers are usual. The graph's
        inputs are named as the arguments of `forward`.
    loss: `loss(output, target)` giving a scalar, or `loss(output)`; a function or an nn.Module. None for a model that
        returns its loss: alone, as `loss`, or as the one scalar of a tuple. Means and sums over samples, tokens that
        count, class weights or masks, and sums of several of them, give the same whatever the micro-batches.
    targets: an example target. Derived for PyTorch's usual losses where the batch holds none.
    batch_dim: the dimension of every input and target that counts samples. In the graph, and in data files, it is the
        first one.
    weights: False to leave the weights out; the model may then be on the meta device and larger than memory.
    path: the graph file; `<name>.swg` in the working directory unless given.
    name: the graph's name; the file's stem, or the class's name in lower case, unless given.
    reduction: "mean" or "sum": what the loss is over samples. Found out by trying it unless given, and held to that.
    whole_batch: True for a model or a loss that compares the samples of a batch with each other: plans then run what
        does on one device, the whole mini-batch at once.
    assume: for branches on the values of tensors that always go one way: by "file.py:line", or a part of the line, the
        truth value that is asked for there. The graph is right for no other; its `producer` says what was assumed.

    Raises ExportError, before any file is written, naming what cannot be captured.
    """
    if isinstance(model, (str, os.PathLike, ExportedProgram)):
        name = name or (None if path is not None or isinstance(model, ExportedProgram) else pathlib.Path(model).stem)
        model, example_inputs = open_program(model, example_inputs, batch_dim)
    model = unwrapped(model)
    if not isinstance(model, nn.Module):
        raise ExportError(f"the model is a {type(model).__name__}, not a torch.nn.Module")
    name = name or (pathlib.Path(path).stem if path is not None else _default_name(model))
    target_path = _checked_path(pathlib.Path(path) if path is not None else pathlib.Path(f"{name}.swg"))
    if reduction is not None and reduction not in _REDUCTIONS:
        raise ExportError(f'reduction is "mean" or "sum", not {reduction!r}')
    reads_target = takes_target(loss, targets)
    loss = with_two_arguments(loss, reads_target)
    state = wrapper_state(model, loss)
    virtual = next((key for key, tensor in state.items() if is_virtual(tensor)), None)
    if weights and virtual is not None:
        raise ExportError(f"'{virtual}' has no data (meta or fake tensor); pass weights=False")

    kept = frozenset(model.state_dict(keep_vars=True))
    with assumed_branches(assume or {}) as assumed:
        example = read_example(
            example_inputs, model, reads_target, targets, lambda args, kwargs: runs(model, args, kwargs)
        )
        captured = capture(model, example.args, example.kwargs, loss, example.targets, batch_dim)
    refuse_randomness(captured.program.graph)
    try:
        separated = separate_loss(captured, state, reduction, whole_batch)
    except CoupledSamples as error:
        Lowering(captured, error.separated, state, kept, name).run()  # May know a reason that says more.
        raise
    lowering = Lowering(captured, separated, state, kept, name)
    graph = lowering.run()
    graph.producer = "; assumed ".join([_producer(), *([", ".join(assumed)] if assumed else [])])
    weights_path = _write(graph, lowering.tensors if weights else {}, target_path)
    return Exported(graph, target_path, weights_path, example.names([name for name, _ in captured.input_names]))


def _checked_path(path: pathlib.Path) -> pathlib.Path:
    if path.suffix == ".safetensors":
        raise ExportError(f"{path}: the graph file's name must not end in .safetensors, the weights file's does")
    if not path.parent.is_dir():
        raise ExportError(f"{path.parent}: no such directory")
    return path


def _write(graph: "pb.Graph", tensors: dict[str, torch.Tensor], path: pathlib.Path) -> pathlib.Path | None:
    """Writes both files; the weights file's path, None without tensors."""
    weights_path = path.with_suffix(".safetensors") if tensors else None
    if weights_path is not None:
        write_tensors(weights_path, tensors)
    save_graph(graph, path)
    return weights_path


def _producer() -> str:
    return f"stagewright {__version__}, torch {torch.__version__.split('+')[0]}"


def _default_name(model: nn.Module) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(model).__name__).lower()
