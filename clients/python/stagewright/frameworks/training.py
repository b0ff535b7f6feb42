"""Training with torch.distributed.pipelining what `pipelining.express` wrote."""

import dataclasses
import os
import pathlib
from collections.abc import Iterator

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.microbatch import TensorChunkSpec, _Replicate
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from ..errors import CheckpointError, DatasetError
from ..graph_file import load_graph
from ..proto import pb
from .chain import Chain
from .graph_values import TORCH_DTYPES, size_at
from .pipelining import STAGES_SUFFIX, read_stages
from .stage_module import StageModule, Tensors, keyword, make_tensors, parameters_of, sample_dim


class Pipeline:
    """This process's stages of a planned pipeline, and the schedule that runs them.

    schedule: the CSV file; `.stages.json` beside it says what the stages are.
    graph: the graph file that was planned.
    weights: a `.safetensors` file with the values to start from; without one, parameters are not a number until the
        state dicts of `modules` are loaded.
    group: the processes of one pipeline, one per rank of the schedule; all processes unless given.
    data_parallel_group: the processes that hold the same stages, one per replica of the plan.
    """

    def __init__(
        self,
        schedule: str | os.PathLike,
        graph: str | os.PathLike,
        *,
        weights: str | os.PathLike | None = None,
        device: torch.device | str = "cpu",
        group: "dist.ProcessGroup | None" = None,
        data_parallel_group: "dist.ProcessGroup | None" = None,
    ):
        self.graph = load_graph(graph)
        self.chain: Chain = read_stages(pathlib.Path(schedule).with_suffix(STAGES_SUFFIX), self.graph)
        self._group, self._replicas = group, data_parallel_group
        self._device = torch.device(device)
        self._check_groups()
        rank = dist.get_rank(group)
        self._mine = [s for s, stage in enumerate(self.chain.stages) if stage.rank == rank]
        self._held = [parameters_of(self.graph, self.chain, s) for s in range(len(self.chain.stages))]
        self._tensors: Tensors = make_tensors(self.graph, set().union(*(self._held[s] for s in self._mine)), device)
        if weights is not None:
            self.load_weights(weights)
        else:
            self._forget_weights()
        self.modules = [StageModule(self.graph, self.chain, s, self._tensors) for s in self._mine]
        self.inputs = sorted({name for module in self.modules for name in module.reads})
        self._has_loss = len(self.chain.stages) - 1 in self._mine
        self.schedule = self._load_schedule(schedule)

    def step(self, batch: dict[str, torch.Tensor]) -> float | None:
        """Runs one mini-batch forward and backward and returns its loss where the last stage is, None elsewhere.

        `batch` has a tensor for each name in `inputs`, with the samples of this replica. Gradients are added to what
        `.grad` holds; the optimizer step is the caller's.
        """
        self._check_batch(batch)
        mine = {name: batch[name].to(self._device) for name in self.inputs}
        for module in self.modules:
            module.begin_step(mine, self._replicas)
        before = self._take_gradients()
        losses: list[torch.Tensor] = []
        self.schedule.step(
            **{keyword(name): tensor for name, tensor in mine.items()},
            target=torch.zeros(self.chain.micro_batches, device=self._device) if self._has_loss else None,
            losses=losses if self._has_loss else None,
            return_outputs=False,
        )
        self._reduce_gradients()
        self._add_gradients(before)
        for module in self.modules:
            module.finish_step()
        if not self._has_loss:
            return None
        loss = torch.stack([loss.detach() for loss in losses]).sum()
        if self._replicas is not None:
            dist.all_reduce(loss, group=self._replicas)
        return loss.item()

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Parameters of this process's stages, each once, by the model's own names."""
        for index, tensor in self._tensors.items():
            if isinstance(tensor, nn.Parameter):
                yield self.graph.parameters[index].name, tensor

    def parameters(self) -> list[nn.Parameter]:
        """What an optimizer of this process is given."""
        return [parameter for _, parameter in self.named_parameters() if parameter.requires_grad]

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Of this process's stages; those of all processes together are the model's."""
        return {name: tensor for module in self.modules for name, tensor in module.state_dict().items()}

    def load_weights(self, path: str | os.PathLike) -> None:
        """Copies this process's tensors from a `.safetensors` file, the one that `stagewright.export` writes or any."""
        stored = load_file(path)
        with torch.no_grad():
            for index, tensor in self._tensors.items():
                parameter = self.graph.parameters[index]
                if parameter.HasField("data"):
                    continue
                name = next((name for name in [parameter.name, *parameter.aliases] if name in stored), None)
                if name is None:
                    raise CheckpointError(f"{path}: no tensor '{parameter.name}'")
                if stored[name].shape != tensor.shape:
                    raise CheckpointError(
                        f"{path}: '{name}' has shape {tuple(stored[name].shape)}, the graph's is {tuple(tensor.shape)}"
                    )
                tensor.copy_(stored[name])

    def _forget_weights(self) -> None:
        with torch.no_grad():
            for index, tensor in self._tensors.items():
                if tensor.is_floating_point() and not self.graph.parameters[index].HasField("data"):
                    tensor.fill_(torch.nan)

    def _check_groups(self) -> None:
        if dist.get_world_size(self._group) != len(self.chain.ranks):
            raise ValueError(
                f"group: {dist.get_world_size(self._group)} processes, the schedule has {len(self.chain.ranks)} ranks"
            )
        replicas = 1 if self._replicas is None else dist.get_world_size(self._replicas)
        if replicas != self.chain.replicas:
            raise ValueError(f"data_parallel_group: {replicas} processes, the plan has {self.chain.replicas} replicas")

    def _load_schedule(self, path: str | os.PathLike) -> _PipelineScheduleRuntime:
        replicas, batches = self.chain.replicas, self.chain.micro_batches
        # The schedule sums micro-batches; a mean over the mini-batch is the mean of their means.
        is_mean = self.graph.loss_reduction == pb.LOSS_REDUCTION_MEAN
        factor = 1 / (batches * replicas) if is_mean else 1.0
        tensors = stage_tensors(self.graph, self.chain)
        stages = [
            PipelineStage(
                module, s, len(self.chain.stages), self._device, tensors[s].received, tensors[s].handed_on,
                group=self._group,
                # The first half is then the whole backward pass. The first stage does without: its second half is.
                dw_builder=None if s == 0 or tensors[s].halves else lambda: lambda: None,
            )
            for s, module in zip(self._mine, self.modules, strict=True)
        ]  # fmt: skip
        schedule = _PipelineScheduleRuntime(
            stages,
            n_microbatches=batches,
            loss_fn=lambda loss, _: loss * factor,
            kwargs_chunk_spec={keyword(name): self._chunks(name) for name in self.inputs},
            scale_grads=False,
        )
        schedule._load_csv(os.fspath(path))
        for s, module in zip(self._mine, self.modules, strict=True):
            rows = schedule.pipeline_order.values()
            halves = any(action.stage_index == s and action.computation_type.value == "I" for r in rows for action in r)
            module.results_are_detached = halves
        return schedule

    def _entry(self, name: str) -> "pb.Input":
        return next(entry for entry in self.graph.inputs if entry.name == name)

    def _chunks(self, name: str) -> TensorChunkSpec | _Replicate:
        dim = sample_dim(self._entry(name))
        return _Replicate() if dim is None else TensorChunkSpec(dim)

    def _check_batch(self, batch: dict[str, torch.Tensor]) -> None:
        samples = self.chain.mini_batch // self.chain.replicas
        for name in self.inputs:
            if name not in batch:
                raise DatasetError(f"the batch has no tensor '{name}'; this process reads {', '.join(self.inputs)}")
            entry, tensor = self._entry(name), batch[name]
            shape = [size_at(size, samples) for size in entry.meta.shape]
            if list(tensor.shape) != shape or tensor.dtype != TORCH_DTYPES[entry.meta.dtype]:
                raise DatasetError(
                    f"'{name}' is {tensor.dtype} {list(tensor.shape)}; a step of this plan takes "
                    f"{TORCH_DTYPES[entry.meta.dtype]} {shape}"
                )

    def _take_gradients(self) -> dict[int, torch.Tensor | None]:
        """Sets gradients aside, so that sums over processes count those of this step only."""
        taken = {}
        for index, tensor in self._tensors.items():
            taken[index], tensor.grad = tensor.grad, None
        return taken

    def _add_gradients(self, before: dict[int, torch.Tensor | None]) -> None:
        for index, gradient in before.items():
            tensor = self._tensors[index]
            if gradient is not None:
                tensor.grad = gradient if tensor.grad is None else gradient.add_(tensor.grad)

    def _reduce_gradients(self) -> None:
        """Sums gradients of parameters that several ranks hold, then those of all parameters over replicas."""
        for index, parameter in enumerate(self.graph.parameters):
            ranks = {stage.rank for stage, held in zip(self.chain.stages, self._held, strict=True) if index in held}
            mine = self._tensors.get(index)
            if not parameter.trainable or not ranks:
                continue
            if len(ranks) > 1:
                gradient = self._gradient_or_zero(index)
                dist.all_reduce(gradient, group=self._group)
                if mine is not None:
                    mine.grad = gradient
            if self._replicas is not None and mine is not None:
                gradient = self._gradient_or_zero(index)
                dist.all_reduce(gradient, group=self._replicas)
                mine.grad = gradient

    def _gradient_or_zero(self, index: int) -> torch.Tensor:
        mine, parameter = self._tensors.get(index), self.graph.parameters[index]
        if mine is not None and mine.grad is not None:
            return mine.grad
        return torch.zeros(list(parameter.shape), dtype=TORCH_DTYPES[parameter.dtype], device=self._device)


@dataclasses.dataclass(frozen=True)
class StageTensors:
    """What a stage is handed and hands on for a micro-batch, as tensors without data.

    `halves`: every result with a gradient comes from something received with one. Then each parameter's gradient passes
    an operator whose gradient the input half of a backward pass computes; PyTorch's weight half finds no others.
    """

    received: tuple[torch.Tensor, ...]
    handed_on: tuple[torch.Tensor, ...]
    halves: bool


def _comes_from(result: torch.Tensor, leaves: tuple[torch.Tensor, ...]) -> bool:
    if any(result is leaf for leaf in leaves):
        return True
    seen, frontier = set(), [result.grad_fn]
    while frontier:
        function = frontier.pop()
        if function is None or function in seen:
            continue
        seen.add(function)
        if any(getattr(function, "variable", None) is leaf for leaf in leaves):
            return True
        frontier += [following for following, _ in function.next_functions]
    return False


def stage_tensors(graph: "pb.Graph", chain: Chain) -> list[StageTensors]:
    """Of every stage, found by a run of all without data."""
    tensors = make_tensors(graph, set(range(len(graph.parameters))), "meta")
    samples = chain.micro_batch // chain.replicas
    batch = {
        entry.name: torch.empty(
            [size_at(size, samples) for size in entry.meta.shape], dtype=TORCH_DTYPES[entry.meta.dtype], device="meta"
        )
        for entry in graph.inputs
    }
    inputs = {keyword(name): tensor for name, tensor in batch.items()}
    result, received = [], ()
    for stage in range(len(chain.stages)):
        module = StageModule(graph, chain, stage, tensors)
        module.begin_step(batch)
        handed_on = module(*received, **inputs)
        handed_on = (handed_on,) if isinstance(handed_on, torch.Tensor) else handed_on
        leaves = tuple(tensor for tensor in received if tensor.requires_grad)
        halves = all(_comes_from(tensor, leaves) for tensor in handed_on if tensor.requires_grad)
        handed_on = tuple(torch.empty_like(t).requires_grad_(t.requires_grad) for t in handed_on)
        result.append(StageTensors(received, handed_on, halves))
        received = handed_on
    return result
