"""Operators that are not PyTorch's own become operators that are, with the same values and gradients."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from stagewright.samples import trial
from faithful import export_and_compare

LIBRARY = torch.library.Library("stagewright_test", "DEF")


@torch.library.custom_op("stagewright_test::gated", mutates_args=())
def gated(x: torch.Tensor, gate: torch.Tensor, power: float = 1.0) -> torch.Tensor:
    y = x.clone()
    y.mul_(torch.sigmoid(gate) ** power)
    return y


@gated.register_fake
def _(x, gate, power=1.0):
    return torch.empty_like(x)


def _gated_context(ctx, inputs, output):
    ctx.save_for_backward(*inputs[:2])
    ctx.power = inputs[2]


def _gated_backward(ctx, gradient):
    x, gate = ctx.saved_tensors
    scale = torch.sigmoid(gate) ** ctx.power
    return gradient * scale, gradient * x * scale * ctx.power * (1 - torch.sigmoid(gate)), None


gated.register_autograd(_gated_backward, setup_context=_gated_context)


@torch.library.custom_op("stagewright_test::rounded", mutates_args=())
def rounded(x: torch.Tensor) -> torch.Tensor:
    return x.round()


rounded.register_fake(torch.empty_like)
rounded.register_autograd(lambda ctx, gradient: gradient)  # Straight through, which rounding itself is not.


@torch.library.custom_op("stagewright_test::ranks", mutates_args=())
def ranks(x: torch.Tensor) -> torch.Tensor:
    """Without a derivative."""
    return x.argsort(-1).argsort(-1)


ranks.register_fake(lambda x: torch.empty_like(x, dtype=torch.int64))


@torch.library.custom_op("stagewright_test::noise", mutates_args=())
def noise(x: torch.Tensor) -> torch.Tensor:
    """Of real numbers, without a derivative."""
    return x * 2


noise.register_fake(torch.empty_like)


@torch.library.custom_op("stagewright_test::halves", mutates_args=())
def halves(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x[:, : x.shape[1] // 2] * 2.0, x[:, x.shape[1] // 2 :] * x.shape[1]


@halves.register_fake
def _(x):
    return x.new_empty(x.shape[0], x.shape[1] // 2), x.new_empty(x.shape[0], x.shape[1] - x.shape[1] // 2)


def _halves_backward(ctx, first, second):
    return torch.cat([first * 2.0, second * 2 * second.shape[1]], dim=1)


halves.register_autograd(_halves_backward)

LIBRARY.define("composite(Tensor x, Tensor w) -> Tensor")
LIBRARY.impl("composite", lambda x, w: F.layer_norm(F.linear(x, w).relu(), (4,)), "CompositeImplicitAutograd")


@torch.library.custom_op("stagewright_test::positive", mutates_args=())
def positive(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if bool((x > 0).all()) else x


positive.register_fake(torch.empty_like)
positive.register_autograd(lambda ctx, gradient: gradient)


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.inner, self.gate, self.step = nn.Linear(4, 4), nn.Linear(4, 4), step

    def forward(self, x):
        return self.step(self, self.inner(x), self.gate(x))


def batch(samples):
    return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)


@pytest.mark.parametrize(
    "step",
    [
        lambda m, x, g: gated(x, g),
        lambda m, x, g: gated(gated(x, g, 2.0), x) + 1,
        lambda m, x, g: x * ranks(g.detach()),
        lambda m, x, g: torch.cat(halves(x), dim=1) + g,
        lambda m, x, g: torch.ops.stagewright_test.composite(x, m.gate.weight) + g,
    ],
    ids=["autograd", "argument", "no derivative", "two results", "composite"],
)
def test_operators_of_libraries_are_written_out(step, tmp_path):
    exported = export_and_compare(Body(step), batch, nn.MSELoss(), tmp_path)
    assert all(node.target.startswith("aten.") for node in exported.graph.nodes)


@pytest.mark.parametrize(
    "step, message",
    [
        (lambda m, x, g: rounded(x), "stagewright_test.rounded.*test_custom_operators.py:.*its own backward"),
        (lambda m, x, g: noise(g), "stagewright_test.noise.*test_custom_operators.py:.*no derivative"),
        (lambda m, x, g: positive(x), "stagewright_test.positive.*test_custom_operators.py:.*values of a tensor"),
    ],
    ids=["own backward", "no derivative", "data dependent"],
)
def test_operators_that_cannot_be_written_out_are_refused(step, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(Body(step), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "model.swg")
    assert not list(tmp_path.iterdir())


# A mixture of experts as transformers computes it: rows sorted by expert, one product for all of a group.

if not hasattr(torch.ops.transformers, "grouped_mm_fallback"):

    @torch.library.custom_op("transformers::grouped_mm_fallback", mutates_args=())
    def grouped(x: torch.Tensor, weight: torch.Tensor, offs: torch.Tensor) -> torch.Tensor:
        result, start = x.new_zeros(x.shape[0], weight.shape[2]), 0
        for expert, end in enumerate(offs.tolist()):
            result[start:end] = x[start:end] @ weight[expert]
            start = end
        return result

    @grouped.register_fake
    def _(x, weight, offs):
        return x.new_empty(x.shape[0], weight.shape[2])

    def _grouped_backward(ctx, gradient):
        (x, weight, offs), start = ctx.saved_tensors, 0
        dx, dw = torch.zeros_like(x), torch.zeros_like(weight)
        for expert, end in enumerate(offs.tolist()):
            dx[start:end] = gradient[start:end] @ weight[expert].T
            dw[expert] = x[start:end].T @ gradient[start:end]
            start = end
        return dx, dw, None

    grouped.register_autograd(
        _grouped_backward, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs)
    )


class Experts(nn.Module):
    def __init__(self, width, experts=3, chosen=2):
        super().__init__()
        self.router, self.chosen = nn.Linear(width, experts), chosen
        self.up = nn.Parameter(torch.randn(experts, 2 * width, width))
        self.down = nn.Parameter(torch.randn(experts, width, 2 * width))

    def forward(self, x):
        weights, experts = self.router(x).softmax(-1).topk(self.chosen, dim=-1)
        order = torch.sort(experts.reshape(-1))
        rows = x[order.indices // self.chosen]
        count = torch.histc(order.values.float(), bins=len(self.up), min=0, max=len(self.up) - 1)
        ends = torch.cumsum(count, dim=0, dtype=torch.int32)
        rows = F.silu(torch.ops.transformers.grouped_mm_fallback(rows, self.up.transpose(-2, -1), ends))
        rows = torch.ops.transformers.grouped_mm_fallback(rows, self.down.transpose(-2, -1), ends)
        rows = rows * weights.reshape(-1)[order.indices, None]
        inverse = torch.empty_like(order.indices)
        inverse[order.indices] = torch.arange(order.indices.shape[0])
        return rows[inverse].view(x.shape[0], self.chosen, -1).sum(dim=1)


@pytest.mark.parametrize(
    "width, dtype, operator",
    [
        (8, torch.float32, "aten._grouped_mm.default"),
        (5, torch.float32, "aten.bmm.default"),
        (8, torch.float64, "aten.bmm.default"),
    ],
)
def test_products_of_groups(width, dtype, operator, tmp_path):
    def make(samples):
        return {"x": torch.randn(samples, width, dtype=dtype)}, torch.randn(samples, width, dtype=dtype)

    model = Experts(width).to(dtype)
    exported = export_and_compare(model, make, nn.MSELoss(), tmp_path, batch_sizes=(2, 3, 16))
    assert [node.target for node in exported.graph.nodes].count(operator) == 2


class Balanced(nn.Module):
    """Its loss has a small part that multiplies means over the batch, and is all that some gradients consist of."""

    def __init__(self):
        super().__init__()
        self.experts = Experts(8)

    def forward(self, x, y):
        chance = self.experts.router(x).softmax(-1)
        share = F.one_hot(chance.argmax(-1), 3).to(x.dtype).mean(0)
        return {"loss": F.mse_loss(self.experts(x), y) + 1e-6 * (share * chance.mean(0)).sum()}


@pytest.mark.parametrize("most_in_double", [trial._MOST_IN_DOUBLE, 0])
def test_a_loss_that_balances_experts_couples_samples(most_in_double, tmp_path, monkeypatch):
    monkeypatch.setattr(trial, "_MOST_IN_DOUBLE", most_in_double)
    inputs = {"x": torch.randn(4, 8), "y": torch.randn(4, 8)}
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(Balanced(), inputs, path=tmp_path / "m.swg")
