"""Models that were made under another default type than workers have compute in it there, too."""

import pytest
import torch
from torch import nn

import stagewright

from graph_interpreter import Interpreter


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.inner, self.step = nn.Linear(4, 4), step

    def forward(self, x):
        return self.inner(x) * self.step(x)


@pytest.mark.parametrize(
    "step",
    [
        lambda x: torch.ones(4),
        lambda x: torch.arange(4) / 3,
        lambda x: torch.arange(4) / torch.arange(3, 7),
        lambda x: torch.div(torch.arange(4), 3) * 0.7,
        lambda x: torch.sqrt(torch.arange(4)) + torch.sin(torch.arange(4)),
        lambda x: torch.arange(4) * 0.1,
        lambda x: 10000 ** (-torch.arange(4) / 4),
        lambda x: (x > 0) * 0.3 + (x > 0) / 7,
        lambda x: torch.where(x > 0, 0.3, 0.7),
        lambda x: torch.where(x > 0, 0.3, torch.arange(4)),
        lambda x: torch.where(x > 0, torch.arange(4), 0.7),
        lambda x: (x > 0).sum(1, keepdim=True) / x.shape[1],
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_default_types(step, dtype, tmp_path):
    torch.set_default_dtype(dtype)
    try:
        model, x, target = Body(step), torch.randn(3, 4), torch.randn(3, 4)
        exported = stagewright.export(model, x, loss=nn.MSELoss(), targets=target, path=tmp_path / "m.swg")
        expected = nn.functional.mse_loss(model(x), target)
    finally:
        torch.set_default_dtype(torch.float32)
    found, _ = Interpreter.load(exported).run({"x": x, "target": target}, 3)
    assert torch.equal(found, expected)
