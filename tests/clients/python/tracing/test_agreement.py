"""A graph that computes something else than its module is refused, whatever made it so."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.inner, self.head, self.step = nn.Linear(4, 4), nn.Linear(4, 4), step
        self.scale = nn.Parameter(torch.ones(4))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x):
        return self.head(self.step(self, self.inner(x)))


def exported(model, tmp_path, **options):
    options = {"loss": nn.MSELoss(), "targets": torch.randn(8, 4)} | options
    return stagewright.export(model, torch.randn(8, 4), path=tmp_path / "m.swg", **options)


def catching(model, x):
    try:
        return x * float(x.detach().numpy().shape[1])
    except Exception:
        return x * 3


OTHER_COURSES = {
    "length of a text": lambda m, x: x * len(str(x.shape[0])),
    "formatted": lambda m, x: x * (2.0 if f"{x.shape[0]}" == "8" else 1.0),
    "shape as text": lambda m, x: x * len(repr(x.shape)),
    "is a number": lambda m, x: x * (2.0 if isinstance(x.shape[0], int) else 1.0),
    "type of a size": lambda m, x: x * (2.0 if type(x.shape[0]) is int else 1.0),
    "type of a tensor": lambda m, x: x * 2 if type(x) is torch.Tensor else x,
    "type of a parameter": lambda m, x: x * 2 if type(m.head.weight) is nn.Parameter else x * 1,
    "being compiled": lambda m, x: x * 2 if torch.compiler.is_compiling() else x * 1,
    "an error": catching,
}


@pytest.mark.parametrize("case", OTHER_COURSES)
def test_another_course_than_the_tracer_takes(case, tmp_path):
    message = r"another loss, \S+ instead of \S+, than the model itself for 8 samples \(.*test_agreement.py:\d+: .*without asking"
    with pytest.raises(stagewright.ExportError, match=message):
        exported(Body(OTHER_COURSES[case]), tmp_path)
    assert not list(tmp_path.iterdir())


def test_another_course_for_other_numbers_of_samples(tmp_path):
    """The example goes the way that the tracer takes."""
    with pytest.raises(stagewright.ExportError, match="for 3 samples"):
        exported(Body(lambda m, x: x * 2 if str(x.shape[0]) == "3" else x * 1), tmp_path)


def switching_off(model, x):
    model.scale.requires_grad_(False)
    return x * model.scale


def hidden_in_a_buffer(model, x):
    with torch.no_grad():
        model.mean.add_(1.0 if type(x) is torch.Tensor else 2.0)
    return x


@pytest.mark.parametrize("step, what", [(switching_off, "gradient of the parameter 'scale'"), (hidden_in_a_buffer, "buffer 'mean'")])
def test_gradients_and_buffers_agree_too(step, what, tmp_path):
    model = Body(step)
    with pytest.raises(stagewright.ExportError, match=f"another .*{what} than the model itself"):
        exported(model, tmp_path)
    assert model.scale.requires_grad and torch.equal(model.mean, torch.zeros(4)), "the check left something in the model"


def counting(model, x):
    """The module scales a gradient by how often it has run; so do its runs that find out what rounding makes."""
    model.runs = getattr(model, "runs", 0) + 1
    x.grad_fn.register_hook(lambda inner, _, runs=model.runs: tuple(g if g is None else g * 2**runs for g in inner))
    return x


def test_a_module_is_compared_from_the_same_state(tmp_path):
    with pytest.raises(stagewright.ExportError, match="another gradient of the parameter 'inner.weight'.*hook"):
        exported(Body(counting), tmp_path)


def logging(model, x):
    str(x.shape), f"{x.shape[0]} samples"
    return x


@pytest.mark.parametrize(
    "step",
    [
        logging,
        lambda m, x: F.dropout(x, 0.5) + F.dropout(x.T, 0.3).T,
        lambda m, x: F.alpha_dropout(x, 0.5, True),
        lambda m, x: x.detach(),
        lambda m, x: F.batch_norm(x, m.mean, m.mean + 1),
    ],
)
def test_what_agrees_is_left_alone(step, tmp_path):
    model = Body(step)
    exported(model, tmp_path)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_rounding_that_the_model_amplifies_is_no_difference(tmp_path):
    """Attention with dropout is written out: sums in another order, of which a steep function makes more."""

    class Steep(nn.Module):
        def __init__(self):
            super().__init__()
            self.attention, self.head = nn.MultiheadAttention(8, 2, 0.1, batch_first=True), nn.Linear(8, 4)

        def forward(self, x):
            return torch.tanh(1e4 * self.head(self.attention(x, x, x, need_weights=False)[0]).sum(1))

    stagewright.export(
        Steep(), torch.randn(8, 5, 8), loss=nn.MSELoss(), targets=torch.randn(8, 4), path=tmp_path / "m.swg"
    )


def test_what_is_not_compared_is_said(tmp_path):
    model, options = Body(lambda m, x: x), {"loss": nn.MSELoss(), "path": tmp_path / "m.swg"}
    assert "compared" not in stagewright.export(model, torch.randn(8, 4), **options).graph.producer
    no_number = stagewright.export(Body(lambda m, x: x * 1e30 * 1e30 * 0), torch.randn(8, 4), **options)
    assert no_number.graph.producer.endswith("; not compared with the module")
    without_data = stagewright.export(model.to("meta"), torch.randn(8, 4), weights=False, **options)
    assert "compared" not in without_data.graph.producer  # Whoever leaves the data out knows.
