"""Runs an exported graph node by node with nothing but torch.ops: what a correct engine must compute."""

import pathlib
import re

import torch

import stagewright
from stagewright.lowering import DTYPES
from stagewright.proto import pb

TORCH_DTYPES = {code: dtype for dtype, code in DTYPES.items()}
MEMORY_FORMATS = {
    "contiguous_format": torch.contiguous_format,
    "preserve_format": torch.preserve_format,
    "channels_last": torch.channels_last,
}
_LIST = pathlib.Path(__file__).parents[4] / "common" / "graph" / "operators" / "allowed_operators.cc"
# What planner and workers take.
ALLOWED = set(" ".join(re.findall(r'^    "(.*)"', _LIST.read_text(), re.MULTILINE)).split())


def parameters_of(graph: "pb.Graph", stored: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """The tensors of the graph's parameters: constants from the graph, all others from a weights file."""
    parameters = []
    for parameter in graph.parameters:
        if parameter.HasField("data"):
            elements = torch.frombuffer(bytearray(parameter.data), dtype=TORCH_DTYPES[parameter.dtype])
            parameters.append(elements.reshape(list(parameter.shape)))
            continue
        tensor = stored[parameter.name]
        assert tensor.dtype == TORCH_DTYPES[parameter.dtype]
        assert list(tensor.shape) == list(parameter.shape)
        parameters.append(tensor.requires_grad_(parameter.trainable))
    return parameters


class Interpreter:
    """One graph and the tensors of its parameters (index for index)."""

    def __init__(self, graph: "pb.Graph", parameters: list[torch.Tensor]):
        self.graph = graph
        self.parameters = parameters

    @classmethod
    def load(cls, exported: stagewright.Exported) -> "Interpreter":
        """From the files alone, as an engine would."""
        from safetensors.torch import load_file

        graph = stagewright.load_graph(exported.path)
        stored = load_file(exported.weights_path)
        return cls(graph, parameters_of(graph, stored))

    def totals(self, inputs: dict[str, torch.Tensor], samples: int) -> list[torch.Tensor]:
        """The totals of a mini-batch."""
        values = self._evaluate(self.graph.totals.nodes, inputs, samples, [])
        return [values[total.node][total.output] for total in self.graph.totals.values]

    def run(
        self, inputs: dict[str, torch.Tensor], samples: int, totals: list[torch.Tensor] | None = None
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(loss, prediction) of a micro-batch, whose totals are its own unless given. Checks every output against the
        graph's metadata. `new_states` holds the new values of buffers afterwards, by name."""
        totals = self.totals(inputs, samples) if totals is None else totals
        for entry in self.graph.inputs:
            self._check(entry.name, entry.meta, inputs[entry.name], samples)
        values = self._evaluate(self.graph.nodes, inputs, samples, totals)
        self.new_states = {
            self.graph.parameters[update.parameter].name: values[update.value.node][update.value.output].detach()
            for update in self.graph.state_updates
        }
        loss = values[self.graph.loss.node][self.graph.loss.output]
        prediction = None
        if self.graph.HasField("prediction"):
            prediction = values[self.graph.prediction.node][self.graph.prediction.output]
        return loss, prediction

    def run_in_parts(
        self, inputs: dict[str, torch.Tensor], sizes: list[int]
    ) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """(loss, gradients) of a mini-batch, cut in micro-batches of these sizes."""
        samples = sum(sizes)
        totals = self.totals(inputs, samples)
        begin, loss = 0, 0.0
        for size in sizes:
            part = {name: tensor[begin : begin + size] for name, tensor in inputs.items()}
            mean = self.graph.loss_reduction == pb.LOSS_REDUCTION_MEAN
            loss = loss + self.run(part, size, totals)[0] * (size / samples if mean else 1)
            begin += size
        return loss, self.gradients(loss)

    def _evaluate(
        self, nodes: list["pb.Node"], inputs: dict[str, torch.Tensor], samples: int, totals: list[torch.Tensor]
    ) -> list[list[torch.Tensor]]:
        values: list[list[torch.Tensor]] = []
        feeds = [inputs.get(entry.name) for entry in self.graph.inputs]

        def resolve(argument: "pb.Argument") -> object:
            kind = argument.WhichOneof("kind")
            if kind == "value":
                return values[argument.value.node][argument.value.output]
            if kind == "total":
                return totals[argument.total]
            if kind == "parameter":
                return self.parameters[argument.parameter]
            if kind == "input":
                return feeds[argument.input]
            if kind == "integer":
                return argument.integer.scale * samples + argument.integer.offset
            if kind == "none":
                return None
            if kind == "list":
                return [resolve(item) for item in argument.list.items]
            if kind == "dtype":
                return TORCH_DTYPES[argument.dtype]
            if kind == "memory_format":
                return MEMORY_FORMATS[argument.memory_format]
            assert kind is not None, "an argument without a kind"
            return getattr(argument, kind)

        for node in nodes:
            namespace, name, overload = node.target.split(".")
            assert f"{name}.{overload}" in ALLOWED, f"{node.name}: {node.target} is not allowed in graphs"
            op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
            result = op(*map(resolve, node.args), **{entry.name: resolve(entry.value) for entry in node.kwargs})
            outputs = [result] if isinstance(result, torch.Tensor) else list(result)
            assert len(outputs) == len(node.outputs), node.name
            for meta, output in zip(node.outputs, outputs):
                self._check(node.name, meta, output, samples)
            values.append(outputs)
        return values

    def gradients(self, loss: torch.Tensor) -> dict[str, torch.Tensor]:
        """Gradients of trainable parameters by every name they have."""
        trainable = [i for i, parameter in enumerate(self.graph.parameters) if parameter.trainable]
        found = torch.autograd.grad(loss, [self.parameters[i] for i in trainable], allow_unused=True)
        result = {}
        for index, gradient in zip(trainable, found):
            parameter = self.graph.parameters[index]
            for name in [parameter.name, *parameter.aliases]:
                result[name] = gradient
        return result

    @staticmethod
    def _check(name: str, meta: "pb.TensorMeta", tensor: torch.Tensor, samples: int) -> None:
        expected = [size.scale * samples + size.offset for size in meta.shape]
        assert list(tensor.shape) == expected, f"{name}: {list(tensor.shape)}, the graph says {expected}"
        assert tensor.dtype == TORCH_DTYPES[meta.dtype], f"{name}: {tensor.dtype}"
