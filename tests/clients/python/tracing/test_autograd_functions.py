"""An autograd function is captured if its backward is the derivative of its forward, and else refused."""

import math

import pytest
import torch
from torch import nn
from torch.autograd.function import once_differentiable
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


class Bounded(torch.autograd.Function):
    """The derivative, but for gradients beyond a bound."""

    @staticmethod
    def forward(ctx, x, bound):
        ctx.bound = bound
        return x * 1.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-ctx.bound, ctx.bound), None


class Thrifty(torch.autograd.Function):
    """Keeps what the gradients that are needed take; a second result has none."""

    @staticmethod
    def forward(ctx, x, weight):
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None)
        largest = x.max(1, keepdim=True).values * 2
        ctx.mark_non_differentiable(largest)
        return x @ weight, largest

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient, unused):
        x, weight = ctx.saved_tensors
        return None if weight is None else gradient @ weight.T, None if x is None else x.T @ gradient


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


def test_a_context_says_what_needs_a_gradient_and_hears_what_has_none(tmp_path):
    export_and_compare(Body(lambda x: sum(Thrifty.apply(x, torch.ones(4, 4)))), batch, nn.MSELoss(), tmp_path)


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


def test_every_call_is_tried(tmp_path):
    """One call says nothing of another with other numbers."""
    export_and_compare(Body(lambda x: Bounded.apply(x, math.inf)), batch, nn.MSELoss(), tmp_path)
    model = Body(lambda x: Bounded.apply(Bounded.apply(x, math.inf), 1e3))
    with pytest.raises(stagewright.ExportError, match="autograd function Bounded has its own backward"):
        stagewright.export(model, torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
