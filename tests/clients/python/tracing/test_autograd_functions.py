"""An autograd function is captured if its backward is the derivative of its forward, and else refused."""

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import stagewright

from faithful import compare, export_and_compare


class Square(torch.autograd.Function):
    """Keeps less than autograd would, and computes the same."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x * x * scale

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return 2 * x * gradient * ctx.scale, None


class Product(torch.autograd.Function):
    """With a context of its own, and two results."""

    @staticmethod
    def forward(x, y):
        return x * y, x + y

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return first * y + second, first * x + second


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


class Rounded(torch.autograd.Function):
    """Straight through."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Clipped(torch.autograd.Function):
    """The derivative, but for large gradients."""

    @staticmethod
    def forward(ctx, x):
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1e3, 1e3)


class BoundedRoot(torch.autograd.Function):
    """The derivative, but for small numbers."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.abs().sqrt()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * x.sign() / torch.sqrt(torch.clip(4.0 * x.abs(), min=1e-6))


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.inner, self.step = nn.Linear(4, 4), step

    def forward(self, x):
        return self.step(self.inner(x))


def batch(samples):
    return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)


@pytest.mark.parametrize(
    "step", [lambda x: Square.apply(x, 0.5), lambda x: sum(Product.apply(x, Square.apply(x, 2.0)))]
)
def test_derivatives_are_captured(step, tmp_path):
    export_and_compare(Body(step), batch, nn.MSELoss(), tmp_path)


class Recomputed(nn.Module):
    def __init__(self, inner, reentrant):
        super().__init__()
        self.inner, self.head, self.reentrant = inner, nn.Linear(4, 4), reentrant
        self.block = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))

    def forward(self, x):
        return self.head(checkpoint(self.block, self.inner(x), use_reentrant=self.reentrant))


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad=True")
def test_reentrant_checkpoint_of_an_input_has_no_gradient(tmp_path):
    export_and_compare(Recomputed(nn.Identity(), True), batch, nn.MSELoss(), tmp_path)


def test_reentrant_checkpoint_of_a_value(tmp_path):
    model = Recomputed(nn.Linear(4, 4), True)
    exported = stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    model.reentrant = False  # The same gradients, also by torch.autograd.grad.
    compare(model, exported, batch(3), nn.MSELoss(), 3)
    assert all(parameter.trainable for parameter in exported.graph.parameters)


@pytest.mark.parametrize("function", [Reversed, Rounded, Clipped, BoundedRoot])
def test_others_are_refused_with_their_line(function, tmp_path):
    model = Body(lambda x: function.apply(x))
    message = rf"autograd function {function.__name__} has its own backward.*test_autograd_functions.py:\d+"
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert type(torch.autograd.Function.__dict__["apply"]) is classmethod
