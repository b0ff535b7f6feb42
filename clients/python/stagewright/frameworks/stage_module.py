"""One stage of a chain as an nn.Module: the stage's operators in order, parameters under the model's own names."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.checkpoint import checkpoint

from ..errors import FrameworkError
from ..proto import pb
from .chain import Chain, crossing_values, replicated_nodes
from .graph_values import TORCH_DTYPES, Value, arguments, operator_of, resolve

# Tensors of a graph by index in Graph.parameters; stages of one process share what both read.
Tensors = dict[int, torch.Tensor]


def make_tensors(graph: "pb.Graph", indices: set[int], device: torch.device | str) -> Tensors:
    """Parameters and buffers of a graph, uninitialised but for the constants that it carries."""
    tensors: Tensors = {}
    for index in sorted(indices):
        parameter = graph.parameters[index]
        dtype = TORCH_DTYPES[parameter.dtype]
        if parameter.HasField("data"):
            flat = torch.frombuffer(bytearray(parameter.data), dtype=dtype) if parameter.data else torch.empty(0)
            tensors[index] = flat.to(dtype).reshape(list(parameter.shape)).to(device)
            continue
        tensor = torch.empty(list(parameter.shape), dtype=dtype, device=device)
        tensors[index] = tensor if parameter.buffer else nn.Parameter(tensor, requires_grad=parameter.trainable)
    return tensors


def parameters_of(graph: "pb.Graph", chain: Chain, stage: int) -> set[int]:
    """Indices of the parameters that a stage holds. What no stage reads belongs to the first one."""

    def read(nodes: list[int]) -> set[int]:
        used = {a.parameter for n in nodes for a in arguments(graph.nodes[n]) if a.HasField("parameter")}
        updated = {update.parameter for update in graph.state_updates if update.value.node in set(nodes)}
        return used | updated

    nodes = [[*own.nodes, *copies] for own, copies in zip(chain.stages, replicated_nodes(graph, chain), strict=True)]
    mine = read(nodes[stage])
    if stage == 0:
        mine |= set(range(len(graph.parameters))) - read([node for each in nodes for node in each])
    return mine


def keyword(name: str) -> str:
    """The keyword of an input. Schedules have arguments of their own, `target` among them."""
    return f"input_{name}"


class StageModule(nn.Module):
    """Runs the operators of one stage of a chain on one micro-batch.

    Positional arguments are what the stage before hands over. Keyword arguments are the inputs of the graph, by
    `keyword(name)`; those that the stage does not read are ignored. The result is what the next stage takes, a tuple;
    of the last stage it is the loss of the micro-batch. Parameters and buffers have the names that they have in the
    model, so that the state dicts of all stages together are the model's.
    """

    def __init__(self, graph: "pb.Graph", chain: Chain, stage: int, tensors: Tensors):
        super().__init__()
        self._graph = graph
        self._samples = chain.micro_batch // chain.replicas
        self._nodes = sorted([*replicated_nodes(graph, chain)[stage], *chain.stages[stage].nodes])
        # A second forward pass would count running statistics twice.
        counts = any(graph.nodes[node].batch_dependent for node in self._nodes)
        self._recompute = chain.stages[stage].recompute and not counts
        crossing = crossing_values(graph, chain)
        self._received: list[Value] = crossing[stage - 1] if stage else []
        self._handed_on: list[Value] = crossing[stage]
        self._is_last = stage == len(chain.stages) - 1
        self._updates = {u.parameter: (u.value.node, u.value.output) for u in graph.state_updates}
        self._updates = {p: value for p, value in self._updates.items() if value[0] in set(self._nodes)}
        self._next_state: Tensors = {}
        self._totals: dict[int, torch.Tensor] = {}
        # Results that may be detached in place, as zero-bubble schedules do it, must not be views.
        self.results_are_detached = False
        self._places: dict[int, tuple[nn.Module, str]] = {}
        for index in sorted(parameters_of(graph, chain, stage)):
            self._hold(index, tensors[index])

    @property
    def reads(self) -> list[str]:
        """Names of the inputs that the stage reads, those of its totals among them."""
        nodes = [self._graph.nodes[node] for node in self._nodes]
        if any(argument.HasField("total") for node in nodes for argument in arguments(node)):
            nodes += self._graph.totals.nodes
        found = {argument.input for node in nodes for argument in arguments(node) if argument.HasField("input")}
        return [self._graph.inputs[index].name for index in sorted(found)]

    def begin_step(self, batch: dict[str, torch.Tensor], group: "dist.ProcessGroup | None" = None) -> None:
        """Computes what losses divide by, over the mini-batch: this replica's share, `batch`, then all of `group`."""
        totals = self._graph.totals
        nodes = [self._graph.nodes[node] for node in self._nodes]
        if not any(argument.HasField("total") for node in nodes for argument in arguments(node)):
            return
        self._totals = {}
        samples = self._samples_of(batch)
        with torch.no_grad():
            inputs = {keyword(name): tensor for name, tensor in batch.items()}
            results = self._run_nodes(list(enumerate(totals.nodes)), {}, inputs, samples)
        for index, value in enumerate(totals.values):
            total = results[(value.node, value.output)]
            if group is not None:
                dist.all_reduce(total, group=group)
            self._totals[index] = total

    def finish_step(self) -> None:
        """Gives buffers that training changes their new values."""
        with torch.no_grad():
            for index, value in self._next_state.items():
                self._tensor(index).copy_(value)
        self._next_state = {}

    def forward(self, *received: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        for tensor in received:
            _make_gradient_contiguous(tensor)
        if self._recompute and torch.is_grad_enabled():
            return checkpoint(lambda *tensors: self._run(*tensors, **inputs), *received, use_reentrant=False)
        return self._run(*received, **inputs)

    def _run(self, *received: torch.Tensor, **inputs: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        given = dict(zip(self._received, received, strict=True))
        nodes = [(node, self._graph.nodes[node]) for node in self._nodes]
        values = self._run_nodes(nodes, given, inputs, self._samples)
        self._next_state = {index: values[value].detach() for index, value in self._updates.items()}
        if self._is_last:
            return values[(self._graph.loss.node, self._graph.loss.output)]
        return tuple(self._result(values[value]) for value in self._handed_on)

    def _result(self, tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.contiguous()
        return tensor.clone() if self.results_are_detached and tensor._is_view() else tensor

    def _run_nodes(
        self, nodes: list[tuple[int, "pb.Node"]], given: dict[Value, torch.Tensor], inputs: dict, samples: int
    ) -> dict[Value, torch.Tensor]:
        values = dict(given)

        def tensors(argument: "pb.Argument") -> torch.Tensor:
            kind = argument.WhichOneof("kind")
            if kind == "value":
                return values[(argument.value.node, argument.value.output)]
            if kind == "parameter":
                return self._tensor(argument.parameter)
            if kind == "total":
                return self._totals[argument.total]
            return inputs[keyword(self._graph.inputs[argument.input].name)]

        for index, node in nodes:
            result = self._call(node, tensors, samples)
            outputs = [result] if isinstance(result, torch.Tensor) else result
            values.update({(index, output): tensor for output, tensor in enumerate(outputs)})
        return values

    def _call(self, node: "pb.Node", tensors: Callable[["pb.Argument"], torch.Tensor], samples: int) -> object:
        operator = operator_of(node)
        args = [resolve(argument, tensors, samples) for argument in node.args]
        kwargs = {entry.name: resolve(entry.value, tensors, samples) for entry in node.kwargs}
        # The graph leaves devices out. Operators without a tensor to follow take the stage's.
        if not any(a.WhichOneof("kind") in ("value", "parameter", "input", "total") for a in arguments(node)):
            if any(argument.name == "device" for argument in operator._schema.arguments):
                kwargs["device"] = self.device
        return operator(*args, **kwargs)

    @property
    def device(self) -> torch.device:
        """Of the stage's tensors; the CPU for a stage without any."""
        return next((self._tensor(index).device for index in self._places), torch.device("cpu"))

    def _samples_of(self, batch: dict[str, torch.Tensor]) -> int:
        for entry in self._graph.inputs:
            if entry.name in batch:
                dim = sample_dim(entry)
                if dim is not None:
                    return batch[entry.name].shape[dim] // entry.meta.shape[dim].scale
        return self._samples

    def _tensor(self, index: int) -> torch.Tensor:
        holder, name = self._places[index]
        return getattr(holder, name)

    def _hold(self, index: int, tensor: torch.Tensor) -> None:
        parameter = self._graph.parameters[index]
        for name in [parameter.name, *parameter.aliases]:
            *path, leaf = name.split(".")
            holder: nn.Module = self
            for part in path:
                if part not in holder._modules:
                    holder.add_module(part, nn.Module())
                holder = holder._modules[part]
            if isinstance(tensor, nn.Parameter):
                holder.register_parameter(leaf, tensor)
            else:
                holder.register_buffer(leaf, tensor, persistent=not parameter.HasField("data"))
            self._places.setdefault(index, (holder, leaf))


def sample_dim(entry: "pb.Input") -> int | None:
    """The dimension of an input that counts samples; None of one that is the same for all micro-batches."""
    meta = entry.meta
    if not any(size.scale for size in meta.shape):
        return None
    if meta.mixed or (meta.HasField("layout") and meta.layout.outer != 1):
        raise FrameworkError(f"input '{entry.name}' cannot be cut into micro-batches: its samples do not lie in a row")
    if meta.HasField("layout"):
        return meta.layout.dim
    return next(dim for dim, size in enumerate(meta.shape) if size.scale)


def _make_gradient_contiguous(tensor: torch.Tensor) -> None:
    """Gradients are sent as they are, and only contiguous tensors can be sent."""
    if tensor.requires_grad and tensor.is_leaf and not hasattr(tensor, "_stagewright_hook"):
        tensor._stagewright_hook = tensor.register_hook(torch.Tensor.contiguous)
