"""A model with rotary positions as products of complex numbers."""

import torch
import torch.nn.functional as F
from torch import nn


class Rotary(nn.Module):
    """Positions as Llama's first code and those after it turn queries and keys."""

    def __init__(self, width=32, heads=4, length=6):
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, 3)
        frequencies = 1.0 / 10000.0 ** (torch.arange(0, width // heads, 2).float() / (width // heads))
        angles = torch.outer(torch.arange(2 * length).float(), frequencies)
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles), persistent=False)

    def turned(self, x):
        pairs = torch.view_as_complex(x.float().reshape(*x.shape[:-1], -1, 2))
        return torch.view_as_real(pairs * self.turns[None, : x.shape[1], None]).flatten(3).type_as(x)

    def forward(self, x):
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).unbind(2)
        q, k, v = (t.transpose(1, 2) for t in (self.turned(q), self.turned(k), v))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2).mean(1))
