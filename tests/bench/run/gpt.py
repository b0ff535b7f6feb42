"""A GPT-2-like language model, cut into stages as torch.distributed.pipelining wants them or whole for capture."""

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, LENGTH, LAYERS = 2048, 512, 8, 128, 8


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.positions = nn.Parameter(torch.randn(LENGTH, WIDTH) * 0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.positions


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, as in GPT-2."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(samples, length, 3, HEADS, width // HEADS)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(samples, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(WIDTH)
        self.tokens = nn.Linear(WIDTH, VOCABULARY, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tokens(self.norm(x))


class TokenLoss(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def blocks() -> list[nn.Module]:
    """What may be cut apart, in order: the embedding, the layers, the head."""
    torch.manual_seed(0)
    return [Embedding(), *(Layer() for _ in range(LAYERS)), Head()]


def cut(stages: int) -> list[nn.Sequential]:
    """Stages of equally many layers, the embedding with the first and the head with the last."""
    all_blocks = blocks()
    share = LAYERS // stages
    bounds = [0, *(1 + share * i for i in range(1, stages)), len(all_blocks)]
    return [nn.Sequential(*all_blocks[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]


def data(samples: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and the ones that follow, [samples, LENGTH] each."""
    torch.manual_seed(1)
    ids = torch.randint(VOCABULARY, (samples, LENGTH + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
