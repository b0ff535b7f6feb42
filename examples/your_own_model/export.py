"""A first model of one's own: writes two-towers.swg, its weights and some data into the working directory."""

import stagewright
import torch
from torch import nn


class TwoTowers(nn.Module):
    def __init__(self):
        super().__init__()
        self.user = nn.Sequential(nn.Linear(32, 256), nn.ReLU(), nn.Linear(256, 64))
        self.item = nn.Sequential(nn.Linear(48, 256), nn.ReLU(), nn.Linear(256, 64))
        self.score = nn.Linear(128, 2)

    def forward(self, user, item):
        return self.score(torch.cat([self.user(user), self.item(item)], dim=1))


user, item = torch.randn(512, 32), torch.randn(512, 48)
stagewright.export(TwoTowers(), (user[:8], item[:8]), loss=nn.CrossEntropyLoss(), batch_dim=0)
stagewright.save_dataset("train.safetensors", user=user, item=item, target=(user[:, 0] > item[:, 0]).long())
