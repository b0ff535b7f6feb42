"""Transformer models of the GraphPipe paper: MMT and the sequential one (appendices A.2 and A.3), and the case study."""

import torch
import torch.nn.functional as F
from torch import nn

SEQUENCE, HIDDEN, HEADS, FEED_FORWARD = 256, 1024, 16, 4096


class SelfAttention(nn.Module):
    def __init__(self, hidden: int, heads: int):
        super().__init__()
        self.qkv = nn.Linear(hidden, 3 * hidden)
        self.out = nn.Linear(hidden, hidden)
        self.heads = heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, hidden = x.shape
        qkv = self.qkv(x).view(samples, length, 3, self.heads, hidden // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v)
        return self.out(attended.transpose(1, 2).reshape(samples, length, hidden))


class TransformerLayer(nn.Module):
    """Attention, then two feed-forward layers, each with a residual connection and a normalisation."""

    def __init__(self, hidden: int = HIDDEN, heads: int = HEADS, feed_forward: int = FEED_FORWARD):
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.norm1, self.norm2 = nn.LayerNorm(hidden), nn.LayerNorm(hidden)
        self.up, self.down = nn.Linear(hidden, feed_forward), nn.Linear(feed_forward, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.down(F.relu(self.up(x))))


class MultiModalTransformer(nn.Module):
    """A Transformer per modality, joined by a concatenation, with a small regression head.

    forward takes one tensor [samples, sequence, hidden] of embeddings per branch and returns [samples, 1].
    """

    def __init__(
        self,
        branches: int = 4,
        layers: int = 8,
        hidden: int = HIDDEN,
        heads: int = HEADS,
        feed_forward: int = FEED_FORWARD,
    ):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(TransformerLayer(hidden, heads, feed_forward) for _ in range(layers)))
            for _ in range(branches)
        )
        self.head = nn.Linear(branches * hidden, 1)

    def forward(self, *modalities: torch.Tensor) -> torch.Tensor:
        encoded = [branch(modality) for branch, modality in zip(self.branches, modalities, strict=True)]
        return self.head(torch.cat(encoded, dim=-1).mean(dim=1))


class SequentialTransformer(nn.Module):
    """One chain of the same layers: [samples, sequence, hidden] to [samples, 1]."""

    def __init__(self, layers: int = 32, hidden: int = HIDDEN, heads: int = HEADS, feed_forward: int = FEED_FORWARD):
        super().__init__()
        self.layers = nn.Sequential(*(TransformerLayer(hidden, heads, feed_forward) for _ in range(layers)))
        self.head = nn.Linear(hidden, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layers(x).mean(dim=1))


class CaseStudyBlock(nn.Module):
    """One multi-head attention and two linear layers, nothing else (figure 9)."""

    def __init__(self, hidden: int, heads: int, feed_forward: int):
        super().__init__()
        self.attention = SelfAttention(hidden, heads)
        self.linear1, self.linear2 = nn.Linear(hidden, feed_forward), nn.Linear(feed_forward, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear2(self.linear1(self.attention(x)))


class CaseStudy(nn.Module):
    """The two-branch model of figure 9: [samples, sequence, hidden] twice to [samples, sequence, 2 * hidden]."""

    def __init__(
        self,
        branches: int = 2,
        layers: int = 4,
        hidden: int = HIDDEN,
        heads: int = HEADS,
        feed_forward: int = FEED_FORWARD,
    ):
        super().__init__()
        self.branches = nn.ModuleList(
            nn.Sequential(*(CaseStudyBlock(hidden, heads, feed_forward) for _ in range(layers)))
            for _ in range(branches)
        )

    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return torch.cat([branch(x) for branch, x in zip(self.branches, (left, right), strict=True)], dim=-1)
