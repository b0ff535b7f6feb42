"""A GPT-2-like language model, cut into stages as torch.distributed.pipelining wants them or whole for capture."""

import argparse
import dataclasses

import torch
import torch.nn.functional as F
from torch import nn


@dataclasses.dataclass(frozen=True)
class Sizes:
    """`length` tokens of a sample, `vocabulary` of which there are."""

    layers: int
    width: int
    heads: int
    length: int
    vocabulary: int


SIZES = {
    "tiny": Sizes(layers=8, width=32, heads=2, length=16, vocabulary=64),
    "small": Sizes(layers=8, width=512, heads=8, length=128, vocabulary=2048),
    "medium": Sizes(layers=24, width=1024, heads=16, length=1024, vocabulary=50257),  # GPT-2 medium.
}


def sizes_of(text: str) -> Sizes:
    """A name of SIZES, or the five numbers of Sizes with commas between them."""
    if text in SIZES:
        return SIZES[text]
    try:
        return Sizes(*map(int, text.split(",")))
    except (TypeError, ValueError):
        names = ", ".join(SIZES)
        raise argparse.ArgumentTypeError(f"sizes are {names} or LAYERS,WIDTH,HEADS,LENGTH,VOCABULARY, not {text!r}") from None


class Embedding(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.tokens = nn.Embedding(sizes.vocabulary, sizes.width)
        self.positions = nn.Parameter(torch.randn(sizes.length, sizes.width) * 0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.positions


class Layer(nn.Module):
    """Pre-norm attention and feed-forward, as in GPT-2."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        width = sizes.width
        self.heads = sizes.heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        qkv = self.qkv(self.norm1(x)).view(samples, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(samples, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Head(nn.Module):
    def __init__(self, sizes: Sizes):
        super().__init__()
        self.norm = nn.LayerNorm(sizes.width)
        self.tokens = nn.Linear(sizes.width, sizes.vocabulary, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.tokens(self.norm(x))


class TokenLoss(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def blocks(sizes: Sizes = SIZES["small"]) -> list[nn.Module]:
    """What may be cut apart, in order: the embedding, the layers, the head."""
    torch.manual_seed(0)
    return [Embedding(sizes), *(Layer(sizes) for _ in range(sizes.layers)), Head(sizes)]


def cut(stages: int, sizes: Sizes = SIZES["small"]) -> list[nn.Sequential]:
    """Stages of equally many layers, the embedding with the first and the head with the last."""
    all_blocks = blocks(sizes)
    share = sizes.layers // stages
    bounds = [0, *(1 + share * i for i in range(1, stages)), len(all_blocks)]
    return [nn.Sequential(*all_blocks[a:b]) for a, b in zip(bounds, bounds[1:], strict=False)]


def plan(devices: int, loops: int, micro_batch: int, sizes: Sizes = SIZES["small"]) -> dict:
    """The cut of `cut`, as a plan by hand: stage s on device s modulo `devices`, `loops` stages on each."""
    count = devices * loops
    share = sizes.layers // count
    stages = []
    for s in range(count):
        own = [*range(1 + share * s, 1 + share * (s + 1))]
        nodes = [f"module:{b}" for b in ([0, *own] if s == 0 else own)]
        stages.append({"nodes": nodes if s + 1 < count else ["*"], "devices": [s % devices]})
    return {"micro_batch": micro_batch, "stages": stages}


def data(samples: int, sizes: Sizes = SIZES["small"]) -> tuple[torch.Tensor, torch.Tensor]:
    """Ids and the ones that follow, [samples, length] each."""
    torch.manual_seed(1)
    ids = torch.randint(sizes.vocabulary, (samples, sizes.length + 1))
    return ids[:, :-1].contiguous(), ids[:, 1:].contiguous()


def main() -> None:
    """Writes STEM.swg, which takes the Python client, STEM.safetensors or STEM.data.safetensors."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("stem")
    parser.add_argument("--sizes", type=sizes_of, default="small")
    parser.add_argument("--samples", type=int, default=16)
    parser.add_argument("--write", nargs="+", choices=("graph", "weights", "data"), required=True)
    options = parser.parse_args()
    ids, target = data(options.samples, options.sizes)
    if "graph" in options.write:
        import stagewright

        with torch.device("meta"):
            model = cut(1, options.sizes)[0]
        stagewright.export(
            model, {"input": ids[:2]}, loss=TokenLoss(), targets=target[:2], weights=False, path=f"{options.stem}.swg"
        )
    from safetensors.torch import save_file

    if "weights" in options.write:
        save_file(cut(1, options.sizes)[0].state_dict(), f"{options.stem}.safetensors")
    if "data" in options.write:
        save_file({"input": ids, "target": target}, f"{options.stem}.data.safetensors")


if __name__ == "__main__":
    main()
