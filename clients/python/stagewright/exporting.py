"""The public `export`: capture, find out how samples lie and the loss adds up, lower, write the files."""

import dataclasses
import os
import pathlib
import re
from collections.abc import Callable, Mapping

import torch
from torch import nn
from torch.export import ExportedProgram

from .errors import ExportError
from .example_batches import Example, read_example
from .graph_file import save_graph
from .lowering import Lowering, refuse_randomness, wrapper_state
from .programs import open_program
from .proto import pb
from .samples.loss_forms import takes_target, with_two_arguments
from .samples.loss_terms import CoupledSamples, separate_loss
from .tensor_file import write_tensors
from .tracing.agreement import refuse_other_results
from .tracing.branches import assumed_branches
from .tracing.capture import Captured, capture, is_virtual, runs
from .tracing.lengths import OfLength, check_dynamic, check_number, examples_of, joined, shape_of_sample
from .tracing.places import describe
from .tracing.shared_memory import refuse_shared_memory
from .tracing.unsuitable import refuse_unsettled_mode, refuse_unsuitable_parts
from .tracing.wrappers import unwrapped
from .version import __version__

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
    dynamic_shapes: "Mapping | tuple | list | None" = None,
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
    dynamic_shapes: for samples of several lengths, which dimensions differ, as torch.export takes it, or Dim.AUTO for whatever does. `example_inputs`
        is then a list with a batch of every length (and `targets`, if given, one with a target for each), or a
        DataLoader that yields some of every length. The model is captured for each; it must be the same operators.

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
    examples = [(example_inputs, targets)]
    if dynamic_shapes is not None:
        examples = examples_of(example_inputs, targets, batch_dim)
        check_number(len(examples))
    reads_target = takes_target(loss, examples[0][1])
    loss = with_two_arguments(loss, reads_target)
    refuse_unsuitable_parts(model, *([loss] if isinstance(loss, nn.Module) else []))
    refuse_unsettled_mode(model)
    state = wrapper_state(model, loss)
    refuse_shared_memory(state)
    virtual = next((key for key, tensor in state.items() if is_virtual(tensor)), None)
    if weights and virtual is not None:
        raise ExportError(f"'{virtual}' has no data (meta or fake tensor); pass weights=False")

    capturing = _Capturing(model, loss, reads_target, batch_dim, reduction, whole_batch, assume or {}, state, name)
    lengths = [capturing.run(inputs, target, several=len(examples) > 1) for inputs, target in examples]
    if dynamic_shapes is not None:
        calls = [(length.example.args, length.example.kwargs) for length in lengths]
        check_dynamic(dynamic_shapes, calls, model, batch_dim)
    graph = joined([length.of_length() for length in lengths])
    weights_path = _write(graph, lengths[0].tensors if weights else {}, target_path)
    return Exported(graph, target_path, weights_path, lengths[0].names())


@dataclasses.dataclass(frozen=True)
class _OneLength:
    """What one example batch is captured as."""

    example: Example
    captured: Captured
    graph: "pb.Graph"
    tensors: dict[str, torch.Tensor]

    def names(self) -> tuple[str, ...]:
        return self.example.names([name for name, _ in self.captured.input_names])

    def of_length(self) -> OfLength:
        described = {node.name: describe(node) for node in self.captured.program.graph.nodes}
        shapes = {name: shape_of_sample(tensor) for name, tensor in self.captured.example.items()}
        return OfLength(self.graph, described, shapes)


@dataclasses.dataclass(frozen=True)
class _Capturing:
    """From an example batch to its graph; all else is the same for every batch."""

    model: nn.Module
    loss: Callable
    reads_target: bool
    batch_dim: int
    reduction: str | None
    whole_batch: bool
    assume: Mapping[str, bool]
    state: dict[str, torch.Tensor]
    name: str

    def run(self, inputs: object, targets: object | None, several: bool) -> _OneLength:
        kept = frozenset(self.model.state_dict(keep_vars=True))
        with assumed_branches(self.assume) as assumed:
            example = read_example(
                inputs, self.model, self.reads_target, targets, lambda args, kwargs: runs(self.model, args, kwargs)
            )
            captured = capture(
                self.model, example.args, example.kwargs, self.loss, example.targets, self.batch_dim, several
            )
        refuse_randomness(captured.program.graph)
        try:
            separated = separate_loss(captured, self.state, self.reduction, self.whole_batch)
        except CoupledSamples as error:
            Lowering(captured, error.separated, self.state, kept, self.name).run()  # May know a reason that says more.
            raise
        lowering = Lowering(captured, separated, self.state, kept, self.name)
        graph = lowering.run()
        compared = refuse_other_results(captured, self.model, self.loss, self.state)
        has_data = not any(is_virtual(tensor) for tensor in self.state.values())
        graph.producer = "; assumed ".join([_producer(), *([", ".join(assumed)] if assumed else [])])
        graph.producer += "; not compared with the module" if has_data and not compared else ""
        return _OneLength(example, captured, graph, lowering.tensors)


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
