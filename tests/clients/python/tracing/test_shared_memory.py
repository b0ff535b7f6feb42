"""What shares memory with a parameter is read as the parameter, or refused."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrize

import stagewright
from faithful import export_and_compare
from graph_interpreter import Interpreter


class Pair(nn.Module):
    def __init__(self, prepare=None, read=None):
        super().__init__()
        self.first, self.second, self.read = nn.Linear(6, 6), nn.Linear(6, 6), read
        if prepare:
            prepare(self)

    def forward(self, x):
        x = self.first(x).tanh()
        return self.second(x) + (self.read(self, x) if self.read else 0)


def batch(samples):
    return {"x": torch.randn(samples, 6)}, torch.randn(samples, 6)


def in_a_list(model):
    model.kept = [model.second.weight]


def in_a_partial(model):
    model.layer = functools.partial(F.linear, weight=model.second.weight)


@pytest.mark.parametrize(
    "prepare, read",
    [(in_a_list, lambda m, x: F.linear(x, m.kept[0])), (in_a_partial, lambda m, x: m.layer(x))],
)
def test_a_parameter_by_another_way_is_the_parameter(prepare, read, tmp_path):
    export_and_compare(Pair(prepare, read), batch, nn.MSELoss(), tmp_path)


def test_parameters_that_the_loss_holds(tmp_path):
    model = Pair()
    weights = [parameter for name, parameter in model.named_parameters() if "weight" in name]

    def loss(output, target):
        return F.mse_loss(output, target) + 0.1 * sum(weight.square().sum() for weight in weights)

    inputs, target = batch(4)
    exported = stagewright.export(model, inputs, loss=loss, targets=target, path=tmp_path / "m.swg")
    inputs, target = batch(5)
    expected = loss(model(**inputs), target)
    interpreter = Interpreter.load(exported)
    found, _ = interpreter.run({**inputs, "target": target}, 5)
    gradients = interpreter.gradients(found)
    for name, gradient in zip(dict(model.named_parameters()), torch.autograd.grad(expected, list(model.parameters()))):
        torch.testing.assert_close(gradients[name], gradient)


def a_view(model):
    model.kept = model.second.weight.view(36)[:6]


def a_part_without_gradient(model):
    model.kept = model.second.weight.data[0]


@pytest.mark.parametrize("prepare", [a_view, a_part_without_gradient])
def test_a_tensor_that_was_made_of_a_parameter_is_refused_with_its_line(prepare, tmp_path):
    message = r"over the memory of 'second.weight' that was made before \(.*test_shared_memory.py:\d+: .*in forward"
    with pytest.raises(stagewright.ExportError, match=message):
        export_and_compare(Pair(prepare, lambda m, x: x * m.kept), batch, nn.MSELoss(), tmp_path)


def detached(model):
    model.kept = model.second.weight.detach()


def test_a_parameter_without_its_gradient_is_refused(tmp_path):
    with pytest.raises(stagewright.ExportError, match="another gradient of the parameter 'second.weight'"):
        export_and_compare(Pair(detached, lambda m, x: F.linear(x, m.kept)), batch, nn.MSELoss(), tmp_path)


def tied_by_data(model):
    model.second.weight.data = model.first.weight.data


def a_buffer_of_it(model):
    model.register_buffer("kept", model.second.weight.data[:3])


@pytest.mark.parametrize("prepare, names", [(tied_by_data, "'first.weight' and 'second.weight'"), (a_buffer_of_it, "'second.weight' and 'kept'")])
def test_two_tensors_over_the_same_memory_are_refused(prepare, names, tmp_path):
    with pytest.raises(stagewright.ExportError, match=f"{names} are two tensors over the same memory"):
        stagewright.export(Pair(prepare), torch.randn(4, 6), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert not list(tmp_path.iterdir())


def beside_each_other(model):
    both = torch.randn(12, 6)
    model.first.weight, model.second.weight = nn.Parameter(both[:6]), nn.Parameter(both[6:])


def side_by_side(model):
    both = torch.randn(6, 12)
    model.first.weight, model.second.weight = nn.Parameter(both[:, :6]), nn.Parameter(both[:, 6:])


def frozen(model):
    model.second.weight.data = model.first.weight.data
    model.requires_grad_(False)
    model.first.bias.requires_grad_(True)


@pytest.mark.parametrize("prepare", [beside_each_other, side_by_side, frozen])
def test_parts_of_one_memory_may_lie_beside_each_other(prepare, tmp_path):
    export_and_compare(Pair(prepare), batch, nn.MSELoss(), tmp_path)


class Shared(nn.Module):
    """Every module of it has two names, one of them inside another module."""

    def __init__(self, tie=lambda model: None):
        super().__init__()
        self.first, self.norm = nn.Linear(6, 6), nn.BatchNorm1d(6)
        self.body = nn.Sequential(self.first, self.norm, nn.Tanh())
        self.again = nn.ModuleDict({"body": nn.Sequential(nn.Linear(6, 6), self.first)})
        tie(self)

    def forward(self, x):
        return self.again["body"](self.body(x))


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(0.5))

    def forward(self, weight):
        return weight * self.scale


def one_parametrization(model):
    scaled = Scaled()
    for layer in (model.first, model.again["body"][0]):
        parametrize.register_parametrization(layer, "weight", scaled)


@pytest.mark.parametrize("tie", [lambda model: None, one_parametrization])
def test_a_module_of_two_names_is_one(tie, tmp_path):
    model = Shared(tie)
    before = {name: id(t) for name, t in [*model.named_parameters(), *model.named_buffers()]}
    exported = export_and_compare(model, batch, nn.MSELoss(), tmp_path, (2, 3, 7), whole_batch=True)
    assert {name: id(t) for name, t in [*model.named_parameters(), *model.named_buffers()]} == before
    aliases = {parameter.name: list(parameter.aliases) for parameter in exported.graph.parameters}
    assert aliases["first.bias"] == ["body.0.bias", "again.body.1.bias"]
