"""Buffers that forward writes, in whatever way, become what eager mode leaves in them."""


import pytest
import torch
from torch import nn

import stagewright

from three_steps import compare


class Average(nn.Module):
    """A running mean of activations, kept in one of several ways."""

    def __init__(self, keep):
        super().__init__()
        self.body, self.keep = nn.Linear(4, 4), keep
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("steps", torch.zeros((), dtype=torch.int64))

    def forward(self, x):
        y = self.body(x)
        with torch.no_grad():
            self.keep(self, y.detach())
        return y - self.mean


def in_place(module, y):
    module.mean.mul_(0.9).add_(0.1 * y.mean(0))
    module.steps += 1


def by_assignment(module, y):
    module.mean = 0.9 * module.mean + 0.1 * y.mean(0)
    module.steps = module.steps + 1


def by_copy(module, y):
    module.mean.copy_(0.9 * module.mean + 0.1 * y.mean(0))
    module.steps.add_(1)


def by_lerp(module, y):
    module.mean.lerp_(y.mean(0), 0.1)
    module.steps.add_(1)


def through_out(module, y):
    torch.add(0.9 * module.mean, y.mean(0), alpha=0.1, out=module.mean)
    module.steps.add_(1)


def through_a_view(module, y):
    module.mean[:2] = 0.5 * y.mean(0)[:2]
    module.steps.add_(1)


class Inside(nn.Module):
    """The same, a level down."""

    def __init__(self, keep):
        super().__init__()
        self.average = Average(keep)

    def forward(self, x):
        return self.average(x)


WAYS = [in_place, by_assignment, by_copy, by_lerp, through_out, through_a_view]


@pytest.mark.parametrize("keep", WAYS, ids=lambda way: way.__name__)
@pytest.mark.parametrize("make", [Average, Inside])
def test_own_state(make, keep, tmp_path):
    model = make(keep)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), whole_batch=True, path=tmp_path / "m.swg")
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, before[name]), f"export changed {name}"
    assert len(exported.graph.state_updates) == 2
    assert any(node.batch_dependent for node in exported.graph.nodes), "a mean over the batch needs the whole of it"
    compare(model, exported)


def test_state_that_no_sample_touches_needs_no_whole_batch(tmp_path):
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)
            self.register_buffer("steps", torch.zeros((), dtype=torch.int64))
            self.register_buffer("warm", torch.ones(()))

        def forward(self, x):
            self.steps += 1
            self.warm.mul_(0.9)
            return self.body(x) * self.warm

    exported = stagewright.export(Counting(), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert not any(node.batch_dependent for node in exported.graph.nodes)
    compare(_same_weights(Counting(), exported), exported)


def _same_weights(model, exported):
    stagewright.load_checkpoint(model, exported.weights_path)
    return model


def test_spectral_norm(tmp_path):
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(4, 6)), nn.Tanh(), nn.Linear(6, 4))
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert {exported.graph.parameters[update.parameter].name for update in exported.graph.state_updates} == {
        "0.parametrizations.weight.0._u", "0.parametrizations.weight.0._v",
    }  # fmt: skip
    assert not any(node.batch_dependent for node in exported.graph.nodes)
    compare(model, exported, name="input")


def test_batch_norm_counts_its_batches(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4))
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    updated = [exported.graph.parameters[update.parameter].name for update in exported.graph.state_updates]
    assert updated == ["1.num_batches_tracked"]
    compare(model, exported, name="input")


def test_instance_norm_averages_over_the_whole_batch(tmp_path):
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.InstanceNorm1d(2, affine=True, track_running_stats=True)

        def forward(self, x):
            return self.norm(self.norm(x.view(-1, 2, 2)).exp()).flatten(1)

    model = Twice()
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    updated = [exported.graph.parameters[update.parameter].name for update in exported.graph.state_updates]
    assert sorted(updated) == ["norm.running_mean", "norm.running_var"]
    norms = [node for node in exported.graph.nodes if "instance_norm" in node.target]
    assert len(norms) == 2
    for node in norms:
        assert node.args[3].none and node.args[4].none, "the operator itself would go on by every micro-batch"
    assert any(node.batch_dependent for node in exported.graph.nodes), "a mean over the batch needs the whole of it"
    compare(model, exported)
