"""A four-branch network for 8 x 8 digits: each branch sees one quadrant, a head joins them. Plain PyTorch."""

import torch
from torch import nn


class QuadrantNet(nn.Module):
    def __init__(self, width: int = 512, features: int = 128, classes: int = 10):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(
                nn.Flatten(),
                nn.Linear(16, width),
                nn.ReLU(),
                nn.Linear(width, width),
                nn.ReLU(),
                nn.Linear(width, features),
                nn.ReLU(),
            )
            for _ in range(4)
        )
        self.head = nn.Sequential(nn.Linear(4 * features, features), nn.ReLU(), nn.Linear(features, classes))

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Logits [samples, classes] of images [samples, 8, 8]."""
        quadrants = (image[:, :4, :4], image[:, :4, 4:], image[:, 4:, :4], image[:, 4:, 4:])
        return self.head(torch.cat([branch(part) for branch, part in zip(self.branches, quadrants)], dim=1))
