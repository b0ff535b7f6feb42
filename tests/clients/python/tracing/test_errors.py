"""What cannot be captured is refused with one message that names it."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright


class Body(nn.Module):
    """A linear layer, then `step(module, x)`."""

    def __init__(self, step):
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), step
        self.register_buffer("state", torch.ones(4))

    def forward(self, x):
        return self.step(self, self.linear(x))


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


def parameter_in_place(module, x):
    with torch.no_grad():
        module.linear.weight.mul_(0.9)
    return module.linear(x)


@pytest.mark.parametrize(
    "step, message",
    [
        (lambda m, x: Reversed.apply(x), "autograd function Reversed has its own backward"),
        (parameter_in_place, "changes the parameter 'linear.weight' in place"),
        (lambda m, x: x + torch.randn_like(x), r"node 'randn_like' \(aten.randn_like.default\) .*: random numbers"),
        (lambda m, x: torch.bernoulli(torch.sigmoid(x)), "bernoulli.*use nn.Dropout"),
        (lambda m, x: F.rrelu(x, training=True), "rrelu"),
        (lambda m, x: x.view(4, 2, 2).flatten(1), "fixes or restricts the batch size"),
        (lambda m, x: x / math.sqrt(x.shape[0]), r"restricts the batch size \(.*test_errors.py:\d+: .*math.sqrt"),
        (lambda m, x: x * int(x.shape[0] * 0.5), r"restricts the batch size \(.*test_errors.py:\d+: .*int"),
        (lambda m, x: sum(row.sum() for row in x) + x, r"restricts the batch size \(.*test_errors.py:\d+: .*row"),
        (lambda m, x: x / len(x), r"restricts the batch size \(.*test_errors.py:\d+: .*len\(x\).*Take it as x.shape\[0\]"),
        (lambda m, x: x * {4: 1.0}.get(x.shape[0], 2.0), r"in a dictionary, a set or a cache \(.*test_errors.py:\d+"),
        (lambda m, x: x * x.shape[0] ** 0.5, r"test_errors.py:\d+: .*a number computed from data or from the batch size"),
        (lambda m, x: x * (1 / x.shape[0]), r"test_errors.py:\d+: .*a number computed from data or from the batch size"),
        (lambda m, x: x * 2 if x.sum() > 0 else x, r"values of a tensor \(.*test_errors.py:\d+"),
        (lambda m, x: x * x.sum().item(), "node 'item'.*computed from data"),
        (lambda m, x: torch.fft.fft(x).sinc().real, "node 'sinc'.*complex numbers in this operator"),
        (lambda m, x: x + torch.ones(x.shape[0] // 2, 1).sum(), r"node 'ones' .*the size .*batch//2"),
        (lambda m, x: x + torch.ones(x.shape[0] // 2 + 3).sum(), r"node 'ones' .*the size .*batch//2.* \+ 3 is not"),
        (lambda m, x: x + torch.ones(x.shape[0] * x.shape[0]).sum(), r"node 'ones' .*batch\*\*2 is not of the form"),
    ],
)
def test_model(step, message, tmp_path, capfd):
    path = tmp_path / "model.swg"
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(Body(step), torch.randn(4, 4), loss=nn.MSELoss(), targets=torch.randn(4, 4), path=path)
    assert not list(tmp_path.iterdir()), "an export that failed left files"
    assert "def forward" not in capfd.readouterr().err, "the tracer's own output shows"


@pytest.mark.parametrize(
    "loss, targets, message",
    [
        (nn.MSELoss(reduction="none"), torch.randn(4, 4), "must be a scalar tensor"),
        (lambda o, t: F.cross_entropy(o @ o.T, torch.arange(o.shape[0])), torch.zeros(4), "other samples.*'matmul'"),
        (lambda o, t: (o - t).square().sum().sqrt(), torch.randn(4, 4), "other samples of its batch, by 'sum'"),
        (lambda o, t: (o - t).square().mean(), None, "pass targets="),
        (lambda o, t: 3.0, torch.randn(4, 4), "must be a scalar tensor, but it is float"),
    ],
)
def test_loss(loss, targets, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(nn.Linear(4, 4), torch.randn(4, 4), loss=loss, targets=targets, path=tmp_path / "model.swg")


@pytest.mark.parametrize(
    "inputs, message",
    [
        ((torch.randn(4, 4), torch.randn(3, 4)), "differ in dimension 0.*'input1': 4, 'input2': 3"),
        ((torch.randn(4, 4),), "do not fit Bilinear.forward: missing"),
        ((torch.randn(4, 5), torch.randn(4, 5)), "Bilinear fails on the example inputs"),
        ((torch.tensor(1.0), torch.randn(4, 4)), r"'input1' has shape \(\), without a batch dimension 0"),
        ({"input1": torch.randn(4, 4), "other": torch.randn(4, 4)}, "do not fit Bilinear.forward"),
    ],
)
def test_inputs(inputs, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(nn.Bilinear(4, 4, 2), inputs, loss=nn.CrossEntropyLoss(), path=tmp_path / "model.swg")


def test_weights_of_a_model_without_data(tmp_path):
    model = nn.Linear(4, 4, device="meta")
    with pytest.raises(stagewright.ExportError, match="'weight' has no data.*weights=False"):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")


def test_backward_hook(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4))
    model[0].register_full_backward_hook(lambda *_: None)
    with pytest.raises(stagewright.ExportError, match="'0' has a backward hook"):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")


def test_a_failed_export_leaves_the_model_as_it_was(tmp_path):
    model = Body(lambda m, x: x + torch.randn_like(x)).eval()
    with pytest.raises(stagewright.ExportError):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")
    assert not model.training and not model.linear.training
    assert type(torch.autograd.Function.__dict__["apply"]) is classmethod
    assert Reversed.apply(torch.ones(1)).item() == 1.0


def test_arguments(tmp_path):
    example = {"example_inputs": torch.randn(4, 4), "loss": nn.MSELoss()}
    with pytest.raises(stagewright.ExportError, match="missing: no such directory"):
        stagewright.export(nn.Linear(4, 4), **example, path=tmp_path / "missing" / "model.swg")
    with pytest.raises(stagewright.ExportError, match="is a function, not a torch.nn.Module"):
        stagewright.export(lambda x: x, **example, path=tmp_path / "model.swg")
    with pytest.raises(stagewright.ExportError, match="must not end in .safetensors"):
        stagewright.export(nn.Linear(4, 4), **example, path=tmp_path / "model.safetensors")
    with pytest.raises(stagewright.ExportError, match='reduction is "mean" or "sum", not \'max\''):
        stagewright.export(nn.Linear(4, 4), **example, reduction="max", path=tmp_path / "model.swg")
    with pytest.raises(stagewright.DatasetError, match="missing: no such directory"):
        stagewright.save_dataset(tmp_path / "missing" / "data.safetensors", x=torch.ones(1))


def test_verifying_needs_the_command_line(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(stagewright.StagewrightError, match="there is no program 'stagewright' on the PATH"):
        stagewright.verify("m.swg", weights="w", data="d", out="o", mini_batch=4, lr=0.1)
