"""What is refused says where in the user's code it stands, and what to write instead."""

import pytest
import torch
from torch import nn

import stagewright


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient


class Inner(nn.Module):
    def forward(self, x):
        return Doubled.apply(x)


def refused(model, inputs, message, tmp_path, **options):
    options.setdefault("loss", nn.MSELoss())
    with pytest.raises(stagewright.ExportError, match=message):
        stagewright.export(model, inputs, path=tmp_path / "model.swg", **options)
    assert not list(tmp_path.iterdir()), "an export that failed left files"


def test_an_autograd_function_names_its_module_and_line(tmp_path):
    model = nn.Sequential(nn.Linear(4, 4), Inner())
    refused(
        model, torch.randn(4, 4), r"module '1': .*Doubled has its own backward.*test_refusals.py:\d+: return Doubled",
        tmp_path,
    )  # fmt: skip
