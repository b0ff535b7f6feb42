"""The key check of capture: the exported graph computes the module's loss and gradients, at any batch size."""

import copy

import torch

import stagewright

from graph_interpreter import Interpreter


def export_and_compare(model, make_batch, loss, tmp_path, batch_sizes=(1, 2, 3, 7), **options):
    """Exports `model` from a batch of 4 and compares loss, prediction and gradients with it at other batch sizes.

    make_batch(samples) returns (example inputs by forward argument, target). Returns the export.
    """
    before = copy.deepcopy({name: t.clone() for name, t in model.state_dict().items()})
    inputs, target = make_batch(4)
    options.setdefault("targets", target)
    exported = stagewright.export(model, inputs, loss=loss, path=tmp_path / "model.swg", **options)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), f"export changed {name}"
    for samples in batch_sizes:
        compare(model, exported, make_batch(samples), loss, samples)
    return exported


def compare(model, exported, batch, loss, samples):
    inputs, target = batch
    model = copy.deepcopy(model)
    torch.manual_seed(samples)
    output = model(**inputs)
    expected = loss(output, target)
    named = {name: p for name, p in model.named_parameters(remove_duplicate=False) if p.requires_grad}
    gradients = torch.autograd.grad(expected, list(named.values()), allow_unused=True) if named else []

    interpreter = Interpreter.load(exported)
    torch.manual_seed(samples)
    actual, prediction = interpreter.run({**inputs, "target": target}, samples)
    torch.testing.assert_close(actual, expected)
    if isinstance(output, torch.Tensor):
        torch.testing.assert_close(prediction, output)
    found = interpreter.gradients(actual)
    for name, gradient in zip(named, gradients):
        if gradient is None:
            assert found.get(name) is None, f"{name} has a gradient in the graph only"
        else:
            assert name in found, f"{name} has no gradient in the graph"
            torch.testing.assert_close(found[name], gradient, msg=lambda m, n=name: f"{n} at batch {samples}: {m}")
