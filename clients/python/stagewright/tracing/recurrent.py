"""Recurrent networks of several layers, written as one operator a layer.

PyTorch has one operator for the whole network. Layer by layer it can be cut into stages, and the dropout between layers
is an operator of its own, which the engine keys by sample.
"""

import dataclasses
import operator

import torch
from torch import fx

from .rewrites import add_call

aten = torch.ops.aten

# How many states an operator carries from step to step: hidden, and the cells of an LSTM.
_STATES = {aten.lstm.input: 2, aten.gru.input: 1, aten.rnn_tanh.input: 1, aten.rnn_relu.input: 1}


@dataclasses.dataclass(frozen=True)
class _Call:
    """The arguments of one of the operators."""

    input: fx.Node
    states: list[fx.Node]
    weights: list[fx.Node]
    biases: bool
    layers: int
    dropout: float
    train: bool
    bidirectional: bool
    batch_first: bool

    @classmethod
    def of(cls, node: fx.Node) -> "_Call":
        source, states, *rest = node.args
        return cls(source, list(states) if isinstance(states, (list, tuple)) else [states], *rest)

    def weights_of(self, layer: int) -> list[fx.Node]:
        count = len(self.weights) // self.layers
        return self.weights[layer * count : (layer + 1) * count]


def split_recurrent_layers(graph: fx.Graph) -> None:
    """Replaces every recurrent operator of several layers, or with dropout, by one operator per layer."""
    for node in list(graph.nodes):
        if node.target in _STATES:
            call = _Call.of(node)
            if call.layers > 1 or call.dropout != 0:
                with graph.inserting_before(node):
                    results = _layers(graph, node, call)
                for user in list(node.users):
                    user.replace_all_uses_with(results[user.args[1]])
                    graph.erase_node(user)
                graph.erase_node(node)


def _layers(graph: fx.Graph, node: fx.Node, call: _Call) -> list[fx.Node]:
    """The outputs of the last layer, then for each state those of all layers. Samples come first in between."""

    def emit(op: torch._ops.OpOverload, *args: object) -> fx.Node:
        return add_call(graph, node, op, args)

    directions = 2 if call.bidirectional else 1
    output = call.input if call.batch_first else emit(aten.transpose.int, call.input, 0, 1)
    last: list[list[fx.Node]] = [[] for _ in call.states]
    for layer in range(call.layers):
        first = [emit(aten.slice.Tensor, s, 0, layer * directions, (layer + 1) * directions) for s in call.states]
        results = _layer(graph, node, call, output, first, call.weights_of(layer))
        output = results[0]
        for collected, state in zip(last, results[1:]):
            collected.append(state)
        if layer + 1 < call.layers and call.train and call.dropout != 0:
            output = emit(aten.dropout.default, output, call.dropout, True)
    if not call.batch_first:
        output = emit(aten.transpose.int, output, 0, 1)
    return [output, *(emit(aten.cat.default, states, 0) for states in last)]


def _layer(
    graph: fx.Graph, node: fx.Node, call: _Call, source: fx.Node, states: list[fx.Node], weights: list[fx.Node]
) -> list[fx.Node]:
    """One layer and its results. Their shapes follow from the arguments: running the operator on shapes would take as
    many steps as the sequence has."""
    arguments = (weights, call.biases, 1, 0.0, call.train, call.bidirectional, True)
    result = graph.call_function(node.target, (source, states if len(states) > 1 else states[0], *arguments))
    result.meta = {key: node.meta[key] for key in ("nn_module_stack", "stack_trace") if key in node.meta}
    values = [state.meta["val"] for state in states]
    samples, length = source.meta["val"].shape[:2]
    with source.meta["val"].fake_mode:
        width = values[0].shape[0] * values[0].shape[2]
        output = torch.empty((samples, length, width), dtype=source.meta["val"].dtype)
        outputs = [output, *map(torch.empty_like, values)]
    result.meta["val"] = tuple(outputs)
    parts = []
    for index, value in enumerate(outputs):
        part = graph.call_function(operator.getitem, (result, index))
        part.meta = {**result.meta, "val": value}
        parts.append(part)
    return parts
