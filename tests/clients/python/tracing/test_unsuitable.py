"""Parts of a model that no tracer follows, and parts that forward makes, are refused by their name."""

import pytest
import torch
import torch.distributed
from torch import nn
from torch.ao.quantization import FakeQuantize, MovingAveragePerChannelMinMaxObserver

import stagewright


class Body(nn.Module):
    def __init__(self, step, part=None):
        super().__init__()
        self.inner, self.head, self.step = nn.Linear(4, 4), nn.Linear(4, 4), step
        self.part = part

    def forward(self, x):
        return self.head(self.step(self, self.inner(x)))


class Part(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x):
        return torch.tanh(self.layer(x))


class Adjacent(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.register_buffer("adjacency", matrix)

    def forward(self, x):
        return (self.adjacency @ x.T).T


def parallel():
    if not torch.distributed.is_initialized():
        torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        return nn.parallel.DistributedDataParallel(Part())
    finally:
        torch.distributed.destroy_process_group()


def exported(model, tmp_path, loss=None):
    return stagewright.export(
        model, torch.randn(4, 4), loss=loss or nn.MSELoss(), targets=torch.randn(4, 4), path=tmp_path / "m.swg"
    )


PER_CHANNEL = {"dtype": torch.qint8, "qscheme": torch.per_channel_symmetric, "ch_axis": 0}


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: torch.jit.script(Part()), "the module 'part' is compiled by torch.jit.script.*it was made from"),
        (lambda: nn.LazyLinear(4), "the parameter 'part.weight' of a lazy module has no shape yet; call the model once"),
        (lambda: FakeQuantize(), "the module 'part' quantizes values for training .FakeQuantize"),
        (
            lambda: FakeQuantize(MovingAveragePerChannelMinMaxObserver, -128, 127, **PER_CHANNEL),
            "the module 'part' quantizes values for training .FakeQuantize",
        ),
        (lambda: Adjacent(torch.eye(4).to_sparse()), "the buffer 'part.adjacency' is sparse.*to_dense"),
        (lambda: Adjacent(torch.eye(4).to_sparse_csr()), "the buffer 'part.adjacency' is sparse.*to_dense"),
        (parallel, r"the module 'part' is wrapped in DistributedDataParallel.*\.module"),
    ],
)
def test_parts(make, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        exported(Body(lambda model, x: model.part(x), make()), tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_scripted_model_and_a_scripted_loss(tmp_path):
    with pytest.raises(stagewright.ExportError, match="the Part is compiled by torch.jit.script"):
        exported(torch.jit.script(Part()), tmp_path)
    with pytest.raises(stagewright.ExportError, match="the MSELoss is compiled by torch.jit.script"):
        exported(Part(), tmp_path, torch.jit.script(nn.MSELoss()))


def new_parameter(model, x):
    model.scale = nn.Parameter(torch.ones(4))
    return x * model.scale


def new_parameter_once(model, x):
    if not hasattr(model, "scale"):
        model.scale = nn.Parameter(torch.ones(4))
    return x * model.scale


def registered(model, x):
    if "scale" not in model._parameters:
        model.register_parameter("scale", nn.Parameter(torch.ones(4)))
    return x * model.scale


def new_buffer(model, x):
    model.register_buffer("mask", torch.ones(4))
    return x * model.mask


def new_layer(model, x):
    if not hasattr(model, "layer"):
        model.layer = nn.Linear(4, 4)
    return model.layer(x)


def appended(model, x):
    model.part = nn.ModuleList()
    model.part.append(nn.Linear(4, 4))
    return model.part[0](x)


def other_parameter(model, x):
    model.inner.weight = nn.Parameter(model.inner.weight * 0.5)
    return model.inner(x)


@pytest.mark.parametrize(
    "step, member, code",
    [
        (new_parameter, "parameter, 'scale'", "model.scale ="),
        (new_parameter_once, "parameter, 'scale'", "model.scale ="),
        (registered, "parameter, 'scale'", "model.register_parameter"),
        (new_buffer, "buffer, 'mask'", "model.register_buffer"),
        (new_layer, "module, 'layer'", "model.layer ="),
        (appended, "module, '0'", "model.part.append"),
        (other_parameter, "parameter, 'weight'", "model.inner.weight ="),
    ],
)
def test_what_forward_makes(step, member, code, tmp_path):
    model = Body(step)
    before = dict(model.named_parameters())
    message = rf"forward gives its module another {member} \(.*test_unsuitable.py:\d+: {code}.*make it in __init__"
    with pytest.raises(stagewright.ExportError, match=message):
        exported(model, tmp_path)
    after = dict(model.named_parameters())
    assert before.keys() == after.keys() and all(before[name] is after[name] for name in before)


def test_a_layer_that_no_module_keeps(tmp_path):
    with pytest.raises(stagewright.ExportError, match="make layers in __init__"):
        exported(Body(lambda model, x: nn.Linear(4, 4)(x)), tmp_path)


def same_parameter(model, x):
    model.head.weight = model.inner.weight
    return x


def stateless(model, x):
    model.activation = nn.Sequential(nn.Tanh())
    return model.activation(x)


@pytest.mark.parametrize("step", [stateless, lambda model, x: nn.LayerNorm(4)(x)])
def test_what_holds_nothing_to_train_is_left_alone(step, tmp_path):
    exported(Body(step), tmp_path)


def test_a_parameter_that_forward_ties_again_and_again(tmp_path):
    model = Body(same_parameter)
    model.head.weight = model.inner.weight
    assert [p.name for p in exported(model, tmp_path).graph.parameters].count("head.weight") <= 1


@pytest.mark.parametrize(
    "step, message",
    [
        (lambda model, x: (torch.eye(4).to_sparse() @ x.T).T, "to_dense"),
        (lambda model, x: torch.sparse.mm(x.to_sparse(), model.inner.weight), "computes with a sparse tensor.*to_dense"),
        (lambda model, x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -128, 127), "the operator aten.fake_quantize"),
    ],
)
def test_operators_without_a_form(step, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=rf"{message}") as refused:
        exported(Body(step), tmp_path)
    assert "test_unsuitable.py:" in str(refused.value)


def test_what_is_compiled_is_run_as_it_was_written(tmp_path):
    """Its trial calls, too, which have other sizes each."""
    compiled = []

    def backend(graph, inputs):
        compiled.append(graph)
        return graph.forward

    exported(Body(lambda model, x: model.part(x), torch.compile(Part(), backend=backend)), tmp_path)
    assert not compiled


class FrozenStatistics(nn.Module):
    """As users freeze layers: when train() is called."""

    def __init__(self, freeze):
        super().__init__()
        self.layer, self.norm, self.freeze = nn.Linear(4, 4), nn.BatchNorm1d(4), freeze

    def train(self, mode=True):
        super().train(mode)
        self.freeze(self)
        return self

    def forward(self, x):
        return self.norm(self.layer(x))


@pytest.mark.parametrize(
    "freeze, name",
    [(lambda model: model.norm.eval(), "'norm'"), (lambda model: model.norm.weight.requires_grad_(False), "'norm.weight'")],
)
def test_a_train_of_its_own_that_was_not_called(freeze, name, tmp_path):
    """Training loops call it; the model as it was made is another."""
    model = FrozenStatistics(freeze)
    with pytest.raises(stagewright.ExportError, match=rf"train\(\) of FrozenStatistics freezes {name}.*call model.train\(\)"):
        exported(model, tmp_path)
    assert model.norm.training and model.norm.weight.requires_grad
    exported(model.train(), tmp_path)


def test_a_train_of_its_own_of_a_model_in_evaluation_mode(tmp_path):
    model = FrozenStatistics(lambda model: model.norm.eval())
    exported(model.eval(), tmp_path)
    exported(Body(lambda model, x: model.part(x), nn.Dropout(0.5).eval()), tmp_path)  # By hand, and kept.
