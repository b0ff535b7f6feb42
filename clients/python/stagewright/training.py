"""`train`: from a module and a data set to trained weights, on the workers of a planner, in one call."""

import dataclasses
import os
import pathlib
import re
import shutil
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.export import Dim

from .checkpoint import load_checkpoint
from .client import Client
from .errors import DatasetError, JobError, StagewrightError
from .exporting import Exported, export
from .history import History
from .jobs import Job
from .optimizers import check_torch, from_torch, named_optimizer
from .plans import Plan
from .progress import ProgressLine
from .proto import jobs_pb
from .settings import JobSettings, LearningRateSchedule
from .training_data import TrainingData, prepare


@dataclasses.dataclass(frozen=True)
class Trained:
    """What came of `train`: the job at its end, what its steps were like, and where its files are."""

    job: Job
    history: History
    directory: pathlib.Path

    @property
    def plan(self) -> Plan:
        return self.job.plan

    @property
    def checkpoint(self) -> pathlib.Path:
        """The trained weights, also those in the module."""
        return self.job.checkpoint_path


def train(
    model: nn.Module,
    dataset: object,
    *,
    loss: Callable,
    mini_batch: int | None = None,
    steps: int | None = None,
    epochs: int | None = None,
    optimizer: str | torch.optim.Optimizer = "adam",
    lr: float | None = None,
    schedule: LearningRateSchedule | None = None,
    clip_norm: float = 0.0,
    evaluation: object | None = None,
    address: str | None = None,
    directory: str | os.PathLike | None = None,
    name: str | None = None,
    progress: bool = True,
    dynamic_shapes: object = Dim.AUTO,
    **settings: Any,
) -> Trained:
    """Trains `model` in place on the workers of a running planner.

    dataset, evaluation: a dict of tensors, samples first, named as forward's arguments, and "target"; a torch Dataset
        or DataLoader (one pass of it is the data set); or the path of files (docs/training.md). Samples may have several
        lengths: each step takes samples of one.
    loss: as for `export`.
    mini_batch: samples per step; a DataLoader's batch size unless given.
    steps, epochs: one of them.
    optimizer: SGD, Adam or AdamW of torch.optim over the model's parameters, with its groups; or "sgd", "momentum",
        "adam", "adamw" with `lr`.
    address: the planner's; else $STAGEWRIGHT_PLANNER, else 127.0.0.1:7070.
    directory: where graph, data and checkpoints go, as the workers see it, too; a new one below stagewright-runs/
        unless given.
    dynamic_shapes: which dimensions may differ from sample to sample, as torch.export takes it; whatever does unless
        given.
    settings: the fields of JobSettings: `checkpoint_every=100`, `options=PlanOptions(stages=2)` and so on.

    Interrupting the call cancels the job. Raises JobError if the job fails; the model is then as it was.
    """
    model = getattr(model, "_orig_mod", model)  # The module inside torch.compile's wrapper.
    mini_batch = mini_batch or getattr(dataset, "batch_size", None)
    _check(mini_batch, steps, epochs, optimizer, lr, settings)
    name = name or re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "-", type(model).__name__).lower()
    with Client(address) as client:
        _check_workers(client)
        folder = pathlib.Path(directory) if directory else _fresh_directory(name)
        made = not folder.exists()
        try:
            data = _data(dataset, model, folder / "data", mini_batch, keep_order=not settings.get("shuffle", True))
            if evaluation is not None:
                settings["evaluation_data"] = prepare(evaluation, model, folder / "evaluation").path
            exported = _export(model, data, loss, folder / "export" / f"{name}.swg", dynamic_shapes)
            config = _optimizer(optimizer, lr, model, exported)
            options = dict(steps=steps, epochs=epochs, schedule=schedule, clip_norm=clip_norm, name=name, **settings)
            job = client.submit(
                exported, data=data.path, out=folder, mini_batch=mini_batch, optimizer=config, **options
            )
        except BaseException:
            if made:
                shutil.rmtree(folder, ignore_errors=True)
            raise
        job = _follow(client, job, progress)
        load_checkpoint(model, job.checkpoint_path)
        return Trained(job, client.history(job.name), folder)


def _check(
    mini_batch: int | None,
    steps: int | None,
    epochs: int | None,
    optimizer: str | torch.optim.Optimizer,
    lr: float | None,
    settings: dict[str, Any],
) -> None:
    """What is wrong whatever model and data are is told before anything is written."""
    if mini_batch is None:
        raise ValueError("give mini_batch, the samples per step")
    if (steps is None) == (epochs is None):
        raise ValueError("give either steps or epochs")
    if isinstance(optimizer, torch.optim.Optimizer):
        check_torch(optimizer)
    else:
        named_optimizer(optimizer, lr)
    JobSettings(**settings).apply(jobs_pb.JobSpec())


def _check_workers(client: Client) -> None:
    if not client.workers():
        raise StagewrightError(
            f"no worker is connected to the planner at {client.address}; start stagewright-worker --planner "
            f"{client.address}"
        )


def _fresh_directory(name: str) -> pathlib.Path:
    stem = pathlib.Path("stagewright-runs", f"{name}-{time.strftime('%Y%m%d-%H%M%S')}")
    taken = 0
    folder = stem
    while folder.exists():
        taken += 1
        folder = stem.with_name(f"{stem.name}-{taken}")
    return folder


def _data(dataset: object, model: nn.Module, folder: pathlib.Path, mini_batch: int, keep_order: bool) -> TrainingData:
    data = prepare(dataset, model, folder, keep_order)
    for length in data.lengths:
        if length.samples < mini_batch:
            of_shape = f" of {length.shapes}" if len(data.lengths) > 1 else ""
            raise DatasetError(
                f"the data set has {length.samples} samples{of_shape}, fewer than a mini-batch of {mini_batch}"
            )
    return data


def _export(
    model: nn.Module, data: TrainingData, loss: Callable, path: pathlib.Path, dynamic_shapes: object
) -> Exported:
    path.parent.mkdir(parents=True, exist_ok=True)
    if len(data.lengths) == 1:
        return export(model, data.example.inputs, loss=loss, targets=data.example.target, path=path)
    examples = [length.example for length in data.lengths]
    targets = [example.target for example in examples]
    return export(
        model,
        [example.inputs for example in examples],
        loss=loss,
        targets=None if targets[0] is None else targets,
        path=path,
        dynamic_shapes=dynamic_shapes,
    )


def _optimizer(
    optimizer: str | torch.optim.Optimizer, lr: float | None, model: nn.Module, exported: Exported
) -> "jobs_pb.OptimizerConfig":
    if isinstance(optimizer, torch.optim.Optimizer):
        return from_torch(optimizer, model, exported.graph)
    return named_optimizer(optimizer, lr)


def _follow(client: Client, job: Job, progress: bool) -> Job:
    """The job at its end, if that is a good one."""
    line = ProgressLine() if progress else None
    try:
        for state in client.watch(job.name):
            if line is not None:
                line.show(state)
    except KeyboardInterrupt:
        client.cancel(job.name)
        raise
    finally:
        if line is not None:
            line.end()
    job = client.job(job.name)
    if not job.succeeded:
        raise JobError(f"{job.name} {job.state}: {job.message}", job)
    return job
