"""Steps of an exported graph beside those of its module."""

import copy

import torch
import torch.nn.functional as F

from graph_interpreter import Interpreter


def compare(model, exported, name="", samples=5):
    """Three steps of forward passes: outputs, losses and buffers as the module's own."""
    interpreter, model = Interpreter.load(exported), copy.deepcopy(model).train()
    names = [parameter.name for parameter in interpreter.graph.parameters]
    for _ in range(3):
        x, target = torch.randn(samples, 4), torch.randn(samples, 4)
        expected = F.mse_loss(model(x), target)
        found, _ = interpreter.run({name or "x": x, "target": target}, samples)
        torch.testing.assert_close(found, expected)
        for state, value in interpreter.new_states.items():
            interpreter.parameters[names.index(state)] = value
        for state, value in model.named_buffers():
            torch.testing.assert_close(interpreter.parameters[names.index(state)], value, msg=lambda m, s=state: f"{s}: {m}")
