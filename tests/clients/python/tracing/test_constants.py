"""Constants that forward makes stay out of the graph where an argument can say the same."""

import pytest
import torch
from torch import nn

from faithful import export_and_compare


class Body(nn.Module):
    def __init__(self, step):
        super().__init__()
        self.linear, self.step = nn.Linear(4, 4), step

    def forward(self, x):
        return self.step(self.linear(x))


def batch(samples):
    return {"x": torch.randn(samples, 4)}, torch.randn(samples, 4)


def writing(x):
    """Makes PyTorch itself turn the graph into a functional one."""
    y = x.clone()
    y.view(-1)[:] *= torch.tensor(2.0)
    return torch.cat([torch.tensor([]), y], dim=-1)


@pytest.mark.parametrize(
    "step, kept",
    [
        (lambda x: x * torch.tensor(3.0) + torch.tensor(2), 0),
        (lambda x: x / torch.full([], 4.0**0.5) - torch.tensor(0.1, dtype=torch.float64), 0),
        (lambda x: torch.where(x > torch.tensor(0.2), x, x * 2), 0),
        (lambda x: torch.cat([torch.tensor([]), x], dim=-1), 0),
        (lambda x: torch.cat([torch.tensor([]), x[:, :2], x[:, 2:]], dim=-1), 0),
        (writing, 0),
        # A tensor of 64 bits turns integers into numbers of 64 bits, a number does not.
        (lambda x: x + ((x > 0).long() * torch.tensor(0.1, dtype=torch.float64)).to(x.dtype), 1),
        (lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]), 1),
    ],
    ids=["numbers", "other types", "comparison", "empty", "empty among others", "writing", "promotion", "several elements"],
)
def test_constants_of_one_element_become_arguments(step, kept, tmp_path):
    exported = export_and_compare(Body(step), batch, nn.MSELoss(), tmp_path, batch_sizes=(1, 3))
    assert len([p for p in exported.graph.parameters if not p.name.startswith("linear.")]) == kept
