"""Networks written out: those of papers on pipelines, and kinds that people build from layers."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import SAMPLES, Task, entry
from .tasks import CLASSES, next_token_loss, padded, padding, token_loss, tokens

WIDTH = 16


def mlp(*widths: int) -> nn.Sequential:
    layers = [layer for a, b in zip(widths, widths[1:], strict=False) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def classes() -> torch.Tensor:
    return torch.randint(CLASSES, (SAMPLES,))


def images(channels: int = 3, size: int = 16) -> torch.Tensor:
    return torch.randn(SAMPLES, channels, size, size)


class Candle(nn.Module):
    """CANDLE-Uno: a tower for every kind of feature, of uneven depths; residual layers over all of them."""

    def __init__(self, kinds: int):
        super().__init__()
        self.towers = nn.ModuleDict({f"kind{i}": mlp(4 + i, *[WIDTH] * (1 + i % 4)) for i in range(kinds)})
        self.join = nn.Linear(WIDTH * kinds, WIDTH)
        self.layers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(3))
        self.head = nn.Linear(WIDTH, 1)

    def forward(self, features: dict):
        x = torch.cat([self.towers[name](value) for name, value in features.items()], dim=1)
        x = self.join(x)
        for layer in self.layers:
            x = x + F.relu(layer(x))
        return self.head(x)


@entry("CANDLE-Uno", "written out")
def _candle() -> Task:
    features = {f"kind{i}": torch.randn(SAMPLES, 4 + i) for i in range(9)}
    return Task(Candle(9), {"features": features}, nn.MSELoss(), torch.randn(SAMPLES, 1))


class Dlrm(nn.Module):
    """DLRM: embedding tables, a network for numbers, and the products of all pairs."""

    def __init__(self, tables: int = 4):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(32, 8, mode="sum") for _ in range(tables))
        self.bottom, self.top = mlp(13, 16, 8), mlp(8 + (tables + 1) * tables // 2, 16, 1)

    def forward(self, numbers, sparse):
        dense = self.bottom(numbers)
        rows = torch.stack([dense, *(table(sparse[:, i]) for i, table in enumerate(self.tables))], dim=1)
        products = rows @ rows.transpose(1, 2)
        above = torch.triu_indices(rows.shape[1], rows.shape[1], 1)
        return self.top(torch.cat([dense, products[:, above[0], above[1]]], dim=1)).squeeze(1)


@entry("DLRM", "written out")
def _dlrm() -> Task:
    sparse = torch.randint(32, (SAMPLES, 4, 3))
    return Task(
        Dlrm(), (torch.randn(SAMPLES, 13), sparse), nn.BCEWithLogitsLoss(), torch.randint(2, (SAMPLES,)).float()
    )


class Attention(nn.Module):
    """Pre-norm attention and feed-forward."""

    def __init__(self, width: int = WIDTH, heads: int = 2):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)
        self.feed = nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x, mask=None):
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=mask, need_weights=False)[0]
        return x + self.feed(self.norm2(x))


class Towers(nn.Module):
    """MMT: a transformer for each kind of input, joined by their means."""

    def __init__(self):
        super().__init__()
        self.towers = nn.ModuleList(
            nn.Sequential(nn.Linear(size, WIDTH), Attention(), Attention()) for size in (6, 8, 10)
        )
        self.head = mlp(3 * WIDTH, WIDTH, CLASSES)

    def forward(self, text, image, sound):
        towers = zip(self.towers, (text, image, sound), strict=True)
        return self.head(torch.cat([tower(x).mean(1) for tower, x in towers], dim=1))


@entry("MMT (towers of transformers)", "written out")
def _towers() -> Task:
    inputs = dict(text=torch.randn(SAMPLES, 6, 6), image=torch.randn(SAMPLES, 4, 8), sound=torch.randn(SAMPLES, 5, 10))
    return Task(Towers(), inputs, nn.CrossEntropyLoss(), classes())


class Gnmt(nn.Module):
    """GNMT: an LSTM encoder, the first layer in both directions, and a decoder that attends to it."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(64, WIDTH)
        self.first = nn.LSTM(WIDTH, WIDTH // 2, batch_first=True, bidirectional=True)
        self.above = nn.ModuleList(nn.LSTM(WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.start = nn.LSTM(WIDTH, WIDTH, batch_first=True)
        self.decoder = nn.ModuleList(nn.LSTM(2 * WIDTH, WIDTH, batch_first=True) for _ in range(2))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, source, before):
        x = self.first(self.embedding(source))[0]
        for layer in self.above:
            x = x + layer(x)[0]
        y = self.start(self.embedding(before))[0]
        seen = (y @ x.transpose(1, 2)).softmax(-1) @ x
        for layer in self.decoder:
            y = y + layer(torch.cat([y, seen], dim=-1))[0]
        return self.head(y)


@entry("GNMT-like", "written out")
def _gnmt() -> Task:
    labels = tokens()
    before = torch.cat([torch.ones(SAMPLES, 1, dtype=torch.long), labels[:, :-1]], 1)
    return Task(Gnmt(), (tokens(), before), token_loss, padded(labels, padding()))


class Cell(nn.Module):
    """AmoebaNet's: pairs of operations on the two cells before, all results joined."""

    def __init__(self, before: int, input: int, width: int):
        super().__init__()
        self.a, self.b = nn.Conv2d(before, width, 1), nn.Conv2d(input, width, 1)
        self.separable = nn.Sequential(nn.Conv2d(width, width, 3, padding=1, groups=width), nn.Conv2d(width, width, 1))
        self.wide = nn.Sequential(
            nn.Conv2d(width, width, (1, 5), padding=(0, 2)), nn.Conv2d(width, width, (5, 1), padding=(2, 0))
        )
        self.norm = nn.GroupNorm(2, 3 * width)

    def forward(self, before, x):
        a, b = self.a(before), self.b(x)
        first = F.avg_pool2d(a, 3, 1, 1) + self.separable(b)
        second = F.max_pool2d(b, 3, 1, 1) + a
        third = self.wide(first) + second
        return x, F.relu(self.norm(torch.cat([first, second, third], dim=1)))


class Amoeba(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.cells = nn.ModuleList([Cell(8, 8, 4), Cell(8, 12, 4), Cell(12, 12, 4)])
        self.head = nn.Linear(12, CLASSES)

    def forward(self, x):
        before = x = self.stem(x)
        for cell in self.cells:
            before, x = cell(before, x)
        return self.head(x.mean((2, 3)))


@entry("AmoebaNet-like", "written out")
def _amoeba() -> Task:
    return Task(Amoeba(), images(), nn.CrossEntropyLoss(), classes())


class UNet(nn.Module):
    """Two levels with skips; attention in the deepest one."""

    def __init__(self, norm: bool):
        super().__init__()
        self.down1, self.down2 = self.block(3, 8, norm), self.block(8, 16, norm)
        self.middle = Attention(16)
        self.up2, self.up1 = self.block(24, 8, norm), self.block(11, 8, norm)
        self.expand = nn.ConvTranspose2d(16, 16, 2, 2)
        self.head = nn.Conv2d(8, CLASSES, 1)

    def block(self, inputs: int, outputs: int, norm: bool) -> nn.Sequential:
        middle = nn.BatchNorm2d(outputs) if norm else nn.GroupNorm(2, outputs)
        return nn.Sequential(nn.Conv2d(inputs, outputs, 3, padding=1), middle, nn.SiLU())

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(F.max_pool2d(a, 2))
        y = self.middle(b.flatten(2).transpose(1, 2)).transpose(1, 2).reshape(b.shape)
        y = self.up2(torch.cat([a, self.expand(y)], dim=1))
        return self.head(self.up1(torch.cat([x, y], dim=1)))


@entry("U-Net with attention", "written out")
def _unet() -> Task:
    return Task(UNet(norm=False), images(), nn.CrossEntropyLoss(), torch.randint(CLASSES, (SAMPLES, 16, 16)))


@entry("U-Net with BatchNorm", "written out", whole=True)
def _unet_batch_norm() -> Task:
    return Task(UNet(norm=True), images(), nn.CrossEntropyLoss(), torch.randint(CLASSES, (SAMPLES, 16, 16)))


class Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, stride: int):
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs)
        self.conv2, self.norm2 = nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)
        self.way = nn.Conv2d(inputs, outputs, 1, stride) if stride > 1 else nn.Identity()

    def forward(self, x):
        y = self.norm2(self.conv2(F.relu(self.norm1(self.conv1(x)), inplace=True)))
        y += self.way(x)
        return F.relu(y)


@entry("ResNet with BatchNorm", "written out", whole=True)
def _resnet() -> Task:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Residual(8, 8, 1),
        Residual(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )
    return Task(model, images(), nn.CrossEntropyLoss(), classes())


class Inception(nn.Module):
    def __init__(self):
        super().__init__()
        self.ways = nn.ModuleList(nn.Conv2d(8, 4, k, padding=k // 2) for k in (1, 3, 5))
        self.pooled = nn.Conv2d(8, 4, 1)

    def forward(self, x):
        ways = [way(x) for way in self.ways] + [self.pooled(F.max_pool2d(x, 3, 1, 1))]
        return torch.relu(torch.cat(ways, dim=1))


@entry("Inception-like", "written out")
def _inception() -> Task:
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        Inception(),
        nn.Conv2d(16, 8, 1),
        Inception(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, CLASSES),
    )
    return Task(model, images(), nn.CrossEntropyLoss(), classes())


class Mixer(nn.Module):
    """MLP-Mixer: layers over places and over channels in turn."""

    def __init__(self):
        super().__init__()
        self.patches = nn.Conv2d(3, WIDTH, 4, 4)
        self.over_places = nn.ModuleList(mlp(16, 24, 16) for _ in range(2))
        self.over_channels = nn.ModuleList(mlp(WIDTH, 24, WIDTH) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for i, (places, channels) in enumerate(zip(self.over_places, self.over_channels, strict=True)):
            x = x + places(self.norms[2 * i](x).transpose(1, 2)).transpose(1, 2)
            x = x + channels(self.norms[2 * i + 1](x))
        return self.head(x.mean(1))


@entry("MLP-Mixer", "written out")
def _mixer() -> Task:
    return Task(Mixer(), images(), nn.CrossEntropyLoss(), classes())


class Experts(nn.Module):
    """A mixture with static shapes: every token goes through all experts, weighted by those that it chose."""

    def __init__(self):
        super().__init__()
        self.embedding, self.gate = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList(mlp(WIDTH, 24, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, 64)

    def forward(self, ids):
        x = self.embedding(ids)
        value, chosen = self.gate(x).topk(2, dim=-1)
        weights = torch.zeros_like(self.gate(x)).scatter(-1, chosen, value.softmax(-1))
        y = sum(weights[..., i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
        return self.head(x + y)


@entry("Mixture of experts, static routing", "written out")
def _experts() -> Task:
    ids = tokens()
    return Task(Experts(), ids, next_token_loss, padded(ids, padding()))


class StateSpace(nn.Module):
    """A selective scan, step by step."""

    def __init__(self, states: int = 4):
        super().__init__()
        self.embedding, self.head = nn.Embedding(64, WIDTH), nn.Linear(WIDTH, 64)
        self.decay = nn.Parameter(-torch.arange(1.0, states + 1).log())
        self.rate, self.inward, self.outward = (nn.Linear(WIDTH, n) for n in (WIDTH, states, states))

    def forward(self, ids):
        x = self.embedding(ids)
        rate, inward, outward = F.softplus(self.rate(x)), self.inward(x), self.outward(x)
        keep = torch.exp(rate.unsqueeze(-1) * -self.decay.exp())
        state, seen = x.new_zeros(x.shape[0], WIDTH, self.decay.shape[0]), []
        for t in range(x.shape[1]):
            state = keep[:, t] * state + (rate[:, t] * x[:, t]).unsqueeze(-1) * inward[:, t].unsqueeze(1)
            seen.append((state * outward[:, t].unsqueeze(1)).sum(-1))
        return self.head(x + torch.stack(seen, dim=1))


@entry("State-space scan", "written out")
def _state_space() -> Task:
    ids = tokens()
    return Task(StateSpace(), ids, next_token_loss, padded(ids, padding()))


class Graphs(nn.Module):
    """A network over the nodes of a graph that every sample brings: messages through a dense adjacency."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, CLASSES)

    def forward(self, nodes, adjacency):
        passed = adjacency / adjacency.sum(-1, keepdim=True).clamp(min=1)
        x = torch.relu(self.first(passed @ nodes))
        return self.head(torch.relu(self.second(passed @ x)).amax(1))


@entry("Graph network, dense adjacency", "written out")
def _graphs() -> Task:
    inputs = (torch.randn(SAMPLES, 7, 6), torch.randint(2, (SAMPLES, 7, 7)).float())
    return Task(Graphs(), inputs, nn.CrossEntropyLoss(), classes())


class Dilated(nn.Module):
    """WaveNet-like: gated dilated convolutions, all layers joined."""

    def __init__(self):
        super().__init__()
        self.first = nn.Conv1d(1, 8, 1)
        self.layers = nn.ModuleList(nn.Conv1d(8, 16, 2, dilation=2**i) for i in range(3))
        self.head = nn.Conv1d(8, 1, 1)

    def forward(self, x):
        x, total = self.first(x), 0
        for i, layer in enumerate(self.layers):
            value, gate = layer(F.pad(x, (2**i, 0))).chunk(2, dim=1)
            y = value.tanh() * gate.sigmoid()
            x, total = x + y, total + y
        return self.head(torch.relu(total))


@entry("WaveNet-like", "written out")
def _dilated() -> Task:
    return Task(Dilated(), torch.randn(SAMPLES, 1, 20), nn.SmoothL1Loss(), torch.randn(SAMPLES, 1, 20))


class WideAndDeep(nn.Module):
    """One table that a linear part, a deep part and a factorisation machine read."""

    def __init__(self):
        super().__init__()
        self.table, self.linear = nn.Embedding(40, 8), nn.Embedding(40, 1)
        self.deep = mlp(5 * 8, 16, 8, 1)

    def forward(self, ids):
        x = self.table(ids)
        pairs = (x.sum(1).square() - x.square().sum(1)).sum(1, keepdim=True) / 2
        return (self.linear(ids).sum(1) + pairs + self.deep(x.flatten(1))).squeeze(1)


@entry("DeepFM", "written out")
def _deep_fm() -> Task:
    target = torch.randint(2, (SAMPLES,)).float()
    return Task(WideAndDeep(), torch.randint(40, (SAMPLES, 5)), nn.BCEWithLogitsLoss(), target)
