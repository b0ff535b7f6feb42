"""Data sets as PyTorch users have them, written as the files that workers read."""

import dataclasses
import glob
import inspect
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Mapping

import numpy
import torch
from safetensors import safe_open
from torch import nn
from torch.utils import _pytree as pytree
from torch.utils.data import DataLoader, Dataset, default_collate

from .errors import DatasetError
from .tensor_file import write_tensors
from .tracing.capture import _input_names, _target_names
from .tracing.lengths import MOST, by_layout, shapes_text

TARGET = "target"
_EXAMPLES = 8  # Samples that a model is captured with.
_SHARD_BYTES = 1 << 28
_BATCH = 256


@dataclasses.dataclass(frozen=True)
class Example:
    """A few samples, as `export` takes them."""

    inputs: tuple | dict
    target: object | None


@dataclasses.dataclass(frozen=True)
class Length:
    """The samples of one shape."""

    shapes: str
    samples: int
    example: Example


@dataclasses.dataclass(frozen=True)
class TrainingData:
    """Where workers find a data set, and what samples it has: by shape, in the order in which shapes come first."""

    path: str
    lengths: list[Length]

    @property
    def samples(self) -> int:
        return sum(length.samples for length in self.lengths)

    @property
    def example(self) -> Example:
        return self.lengths[0].example


def prepare(dataset: object, model: nn.Module, directory: pathlib.Path, keep_order: bool = False) -> TrainingData:
    """Writes a data set into `directory`, unless it is files already.

    dataset: a dict of tensors or arrays with samples first, named as forward's arguments, and "target"; a torch Dataset
    of such dicts, or of tuples whose last item is the target; a DataLoader, of which one pass is the data set; or the
    path of files (docs/training.md). Samples of a Dataset and batches of a DataLoader may have several lengths; with
    `keep_order` all samples keep their order, otherwise those of each length do.
    """
    if isinstance(dataset, (str, os.PathLike)):
        return _from_files(os.fspath(dataset), model)
    if isinstance(dataset, Mapping):
        batches: Iterable = [{name: torch.as_tensor(array) for name, array in dataset.items()}]
    elif isinstance(dataset, DataLoader):
        batches = dataset
    elif isinstance(dataset, Dataset) or hasattr(dataset, "__getitem__"):
        batches = _collated(dataset, keep_order)
    else:
        raise DatasetError(
            f"a {type(dataset).__name__} is no data set; give a dict of tensors, a torch Dataset or DataLoader, or a "
            "path"
        )
    return _write(batches, model, directory, keep_order)


def _collated(dataset: object, keep_order: bool) -> Iterator[object]:
    """Batches of samples of one shape."""
    for samples in DataLoader(dataset, batch_size=_BATCH, collate_fn=list):
        for alike in by_layout(_shapes, samples, keep_order):
            yield default_collate(alike)


def _shapes(sample: object) -> tuple:
    return tuple(tuple(getattr(leaf, "shape", ())) for leaf in pytree.tree_leaves(sample))


def example_of(batch: object, model: nn.Module, samples: int = _EXAMPLES) -> Example:
    """The first samples of a batch, apart in what the model and what the loss reads."""
    inputs, target = _split(batch, model)
    inputs, target = pytree.tree_map_only(torch.Tensor, lambda tensor: tensor[:samples], (inputs, target))
    return Example(inputs, target)


def _split(batch: object, model: nn.Module) -> tuple[tuple | dict, object | None]:
    if isinstance(batch, (tuple, list)) and len(batch) > 1:
        return tuple(batch[:-1]), batch[-1]
    if not isinstance(batch, Mapping):
        return (batch[0] if isinstance(batch, (tuple, list)) else batch,), None
    parameters = inspect.signature(model.forward).parameters
    anything = any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values())
    inputs = {name: value for name, value in batch.items() if name in parameters or (anything and name != TARGET)}
    targets = {name: value for name, value in batch.items() if name not in inputs}
    if not inputs:
        raise DatasetError(f"none of {', '.join(map(str, batch))} is an argument of {type(model).__name__}.forward")
    if len(targets) < 2:
        return inputs, next(iter(targets.values()), None)
    return inputs, {name.removeprefix(f"{TARGET}."): value for name, value in targets.items()}


def _columns(batch: object, model: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a batch by the names that the graph's inputs have."""
    inputs, target = _split(batch, model)
    args, kwargs = ((), inputs) if isinstance(inputs, dict) else (inputs, {})
    names = _input_names(model, args, kwargs)
    names += _target_names(target, names) if target is not None else []
    leaves = pytree.tree_leaves((args, kwargs)) + (pytree.tree_leaves(target) if target is not None else [])
    columns = {}
    for (name, _), leaf in zip(names, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor) or leaf.dim() == 0:
            raise DatasetError(f"the data set's '{name}' is a {type(leaf).__name__} without a dimension of samples")
        columns[name] = leaf
    sizes = {name: len(column) for name, column in columns.items()}
    if len(set(sizes.values())) > 1:
        raise DatasetError(f"the tensors of the data set differ in their number of samples: {sizes}")
    return columns


def _write(batches: Iterable, model: nn.Module, directory: pathlib.Path, keep_order: bool) -> TrainingData:
    found: dict[tuple, Length] = {}
    shards = 0
    directory.mkdir(parents=True, exist_ok=True)
    for old in directory.glob("part-*.safetensors"):
        old.unlink()  # Of an earlier run; workers would read them, too.
    for shard, first_batch in _shards(batches, model, keep_order):
        write_tensors(directory / f"part-{shards:05}.safetensors", shard)
        shards += 1
        _count(found, shard, lambda batch=first_batch: example_of(batch, model))
    if not found:
        raise DatasetError("the data set has no samples")
    return TrainingData(str(directory), list(found.values()))


def _count(found: dict[tuple, Length], columns: dict[str, torch.Tensor], example: Callable[[], Example]) -> None:
    """Adds samples to those of their shape, which must be that of the others but for its sizes."""
    layout = _layout(columns)
    samples = len(next(iter(columns.values())))
    if samples == 0:
        return
    if layout in found:
        found[layout] = dataclasses.replace(found[layout], samples=found[layout].samples + samples)
        return
    shapes = shapes_text({name: tuple(column.shape[1:]) for name, column in columns.items()})
    if found and _ranks(layout) != _ranks(next(iter(found))):
        raise DatasetError(
            f"batches of the data set differ: {next(iter(found.values())).shapes} and {shapes} per sample; a job needs "
            "samples of one type and number of dimensions"
        )
    if len(found) == MOST:
        raise DatasetError(
            f"the data set has samples of more than {MOST} different shapes, each of which is a graph of its own; pad "
            "them to a few lengths"
        )
    found[layout] = Length(shapes, samples, example())


def _shards(
    batches: Iterable, model: nn.Module, keep_order: bool
) -> Iterator[tuple[dict[str, torch.Tensor], object]]:
    """Batches of one shape put together to files of bounded size, each with its first batch."""
    held: dict[tuple, list[dict[str, torch.Tensor]]] = {}
    firsts: dict[tuple, object] = {}
    size = 0
    for batch in batches:
        columns = _columns(batch, model)
        layout = _layout(columns)
        if size >= _SHARD_BYTES or (keep_order and held and layout not in held):
            yield from ((_join(parts), firsts[layout]) for layout, parts in held.items())
            held, size = {}, 0
        held.setdefault(layout, []).append(columns)
        firsts.setdefault(layout, batch)
        size += sum(column.nbytes for column in columns.values())
    yield from ((_join(parts), firsts[layout]) for layout, parts in held.items())


def _layout(columns: dict[str, torch.Tensor]) -> tuple:
    return tuple((name, tuple(column.shape[1:]), str(column.dtype)) for name, column in sorted(columns.items()))


def _ranks(layout: tuple) -> list[tuple]:
    return [(name, len(shape), dtype) for name, shape, dtype in layout]


def _join(held: list[dict[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    return {name: torch.cat([columns[name].detach().cpu() for columns in held]) for name in held[0]}


def _from_files(path: str, model: nn.Module) -> TrainingData:
    found: dict[tuple, Length] = {}
    for columns, samples in _read_safetensors(path) or [_read_npy(path)]:
        layout = _layout(columns)
        _count(found, columns, lambda batch=dict(columns): example_of(batch, model))
        held = len(next(iter(columns.values())))
        found[layout] = dataclasses.replace(found[layout], samples=found[layout].samples + samples - held)
    return TrainingData(path, list(found.values()))


def _read_safetensors(path: str) -> list[tuple[dict[str, torch.Tensor], int]]:
    """The first samples of each file of a directory or a glob, and how many it has."""
    files = sorted(glob.glob(os.path.join(path, "*.safetensors") if os.path.isdir(path) else path))
    found = []
    for file in files:
        if not file.endswith(".safetensors"):
            continue
        with safe_open(file, "pt") as tensors:
            slices = {name: tensors.get_slice(name) for name in tensors.keys()}
            if slices:
                samples = next(iter(slices.values())).get_shape()[0]
                found.append(({name: part[:_EXAMPLES] for name, part in slices.items()}, samples))
    return found


def _read_npy(path: str) -> tuple[dict[str, torch.Tensor], int]:
    """The same of "x=a.npy,target=b.npy", or of a directory with a file per input."""
    if os.path.isdir(path):
        files = {file.stem: str(file) for file in sorted(pathlib.Path(path).glob("*.npy"))}
    else:
        files = {name: file for name, _, file in (part.partition("=") for part in path.split(",")) if file}
    if not files or not all(os.path.isfile(file) for file in files.values()):
        raise DatasetError(
            f"{path}: no data files that can be read here; give .safetensors files, a .npy file per input, or the data "
            "itself"
        )
    arrays = {name: numpy.load(file, mmap_mode="r") for name, file in files.items()}
    columns = {name: torch.from_numpy(numpy.array(array[:_EXAMPLES])) for name, array in arrays.items()}
    return columns, len(next(iter(arrays.values())))
