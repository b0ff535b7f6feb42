"""Python that no graph records is refused with its line, not dropped."""

import random

import numpy
import pytest
import torch
from torch import nn
from torch.nn.utils import rnn

import stagewright


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.inner, self.head, self.step = nn.Linear(4, 4), nn.Linear(4, 4), step

    def forward(self, x):
        return self.head(self.step(self.inner(x)))


def hooked(y):
    y.register_hook(lambda gradient: gradient * 3)
    return y


def on_a_module(y):
    layer = nn.Linear(4, 4).requires_grad_(False)
    layer.register_full_backward_hook(lambda module, inner, outer: (3 * inner[0],))
    return layer(y)


def after_accumulation(y):
    nn.Parameter(torch.ones(4)).register_post_accumulate_grad_hook(print)
    return y


def kept_halved(y):
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept / 2, lambda kept: kept):
        return y.tanh()


def skipped(y):
    return y if random.random() < 0.5 else y * 2


def noisy(y):
    return y * torch.from_numpy((numpy.random.rand(4) > 0.5).astype(numpy.float32))


def packed(y):
    sequences = rnn.pack_padded_sequence(y[..., None], torch.full((len(y),), 4), batch_first=True)
    return nn.LSTM(1, 4, batch_first=True)(sequences)[1][0][-1]


def penalised(y):
    z = y.detach().requires_grad_(True)
    slope, = torch.autograd.grad(z.square().sum(1).exp().sum(), z, create_graph=True)
    return y + slope


def going_back(y):
    y.sum().backward(retain_graph=True)
    return y


def with_other_data(y):
    y.data = y.data * 0.5
    return y


def through_data(y):
    z = y * 1
    z.data.clamp_(-0.1, 0.1)
    return z


@pytest.mark.parametrize(
    "step, message",
    [
        (penalised, r"gradients with torch.autograd.grad \(.*test_unrecorded.py:\d+: slope, = .*gradient penalties.*cannot be captured"),
        (going_back, r"backward pass of its own \(.*test_unrecorded.py:\d+: y.sum\(\).backward"),
        (with_other_data, r"puts other data in the place of a tensor's \(.*test_unrecorded.py:\d+: y.data = .*only the optimizer"),
        (through_data, r"works on the .data of a tensor \(.*test_unrecorded.py:\d+: z.data.clamp_.*x.detach\(\)"),
        (lambda y: torch.func.vmap(torch.tanh)(y), r"transforms of torch.func .*test_unrecorded.py:\d+"),
        (hooked, r"hook on a gradient \(.*test_unrecorded.py:\d+: y.register_hook"),
        (on_a_module, r"hook on a gradient \(.*test_unrecorded.py:\d+: layer.register_full_backward_hook"),
        (after_accumulation, r"hook on a gradient \(.*test_unrecorded.py:\d+: .*register_post_accumulate_grad_hook"),
        (kept_halved, r"what the backward pass keeps \(.*test_unrecorded.py:\d+: with torch.*leave them out"),
        (skipped, r"from Python's random \(.*test_unrecorded.py:\d+: return y if random.random.*as an input"),
        (packed, r"packs sequences \(.*test_unrecorded.py:\d+: sequences = rnn.pack.*over the padded sequences"),
        (noisy, r"from numpy.random \(.*test_unrecorded.py:\d+: return y \* torch.from_numpy.*as an input"),
    ],
)
def test_what_forward_does_beside_the_graph(step, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(Body(step), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert not list(tmp_path.iterdir())


def scaled_by_gradient(model, y):
    gradient = model.inner.weight.grad
    return y if gradient is None else y * gradient.norm()


def scaled_by_all_gradients(model, y):
    return y * (1 + nn.utils.clip_grad_norm_(model.parameters(), 1.0))


def starting_gradient(model, y):
    model.inner.weight.grad = torch.ones(4, 4)
    return y


@pytest.mark.parametrize(
    "step, code",
    [
        (scaled_by_gradient, "gradient = model.inner.weight.grad"),
        (scaled_by_all_gradients, r"return y \* .*clip_grad_norm_"),
        (starting_gradient, "model.inner.weight.grad = "),
    ],
)
def test_gradients_of_earlier_steps(step, code, tmp_path):
    """Whether there are some when forward runs depends on when the training loop clears them."""
    model = Body(lambda y: step(model, y))
    message = rf"reads or sets the .grad of a tensor \(.*test_unrecorded.py:\d+: {code}.*as an input"
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert model.inner.weight.grad is None


def test_the_gradients_of_a_model_that_was_trained_before(tmp_path):
    model = Body(torch.tanh)
    model(torch.randn(4, 4)).sum().backward()
    before = model.inner.weight.grad.clone()
    stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert torch.equal(model.inner.weight.grad, before)


def test_activations_that_are_kept_elsewhere(tmp_path):
    def elsewhere(y):
        with torch.autograd.graph.save_on_cpu():
            return y.tanh()

    stagewright.export(Body(elsewhere), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")


def test_a_hook_that_all_modules_have(tmp_path):
    handle = nn.modules.module.register_module_full_backward_hook(lambda *_: None)
    try:
        with pytest.raises(stagewright.ExportError, match="all modules have a backward hook"):
            stagewright.export(Body(torch.tanh), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    finally:
        handle.remove()


def test_a_hook_of_the_loss(tmp_path):
    loss = nn.MSELoss()
    loss.register_full_backward_hook(lambda *_: None)
    with pytest.raises(stagewright.ExportError, match="has a backward hook"):
        stagewright.export(Body(torch.tanh), torch.randn(4, 4), loss=loss, path=tmp_path / "m.swg")


def test_a_hook_that_a_parameter_runs_after_its_gradient(tmp_path):
    model = Body(lambda y: y)
    model.head.weight.register_post_accumulate_grad_hook(lambda parameter: None)
    with pytest.raises(stagewright.ExportError, match="'head.weight' has a backward hook"):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")


def test_generators_that_forward_leaves_alone_are_left_alone(tmp_path):
    before, of_numpy = random.getstate(), numpy.random.get_state()[1].copy()
    stagewright.export(Body(torch.tanh), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert random.getstate() == before and (numpy.random.get_state()[1] == of_numpy).all()
