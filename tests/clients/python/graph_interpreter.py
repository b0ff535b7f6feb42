"""Runs an exported graph node by node with nothing but torch.ops: what a correct engine must compute."""

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
        parameters = []
        for parameter in graph.parameters:
            tensor = stored[parameter.name]
            assert tensor.dtype == TORCH_DTYPES[parameter.dtype]
            assert list(tensor.shape) == list(parameter.shape)
            parameters.append(tensor.requires_grad_(parameter.trainable))
        return cls(graph, parameters)

    def run(self, inputs: dict[str, torch.Tensor], samples: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        """(loss, prediction) of a micro-batch. Checks every output against the graph's metadata."""
        values: list[list[torch.Tensor]] = []
        feeds = [inputs[entry.name] for entry in self.graph.inputs]
        for entry, feed in zip(self.graph.inputs, feeds):
            self._check(entry.name, entry.meta, feed, samples)

        def resolve(argument: "pb.Argument") -> object:
            kind = argument.WhichOneof("kind")
            if kind == "value":
                return values[argument.value.node][argument.value.output]
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

        for node in self.graph.nodes:
            namespace, name, overload = node.target.split(".")
            op = getattr(getattr(getattr(torch.ops, namespace), name), overload)
            result = op(*map(resolve, node.args), **{entry.name: resolve(entry.value) for entry in node.kwargs})
            outputs = [result] if isinstance(result, torch.Tensor) else list(result)
            assert len(outputs) == len(node.outputs), node.name
            for meta, output in zip(node.outputs, outputs):
                self._check(node.name, meta, output, samples)
            values.append(outputs)
        loss = values[self.graph.loss.node][self.graph.loss.output]
        prediction = None
        if self.graph.HasField("prediction"):
            prediction = values[self.graph.prediction.node][self.graph.prediction.output]
        return loss, prediction

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
