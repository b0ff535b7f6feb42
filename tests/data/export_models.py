"""Writes small models with data and reference results of single-process PyTorch, for the engine's tests.

    python tests/data/export_models.py DIRECTORY [--only NAME ...]

Per model (NAME ends in _f64 or _f32): NAME.swg, NAME.safetensors (initial weights), NAME.data.safetensors (96 samples),
and per optimizer OPT (sgd: lr 0.1; adam: lr 1e-3; PyTorch's defaults otherwise) NAME.reference.OPT.safetensors, the
parameters and buffers after 5 steps on mini-batches [0,16), [16,32), ..., under the names of the graph, and
NAME.reference.OPT.json with {"losses": [...], "mini_batch": 16, "steps": 5, "lr": ...}; each loss is the one before
its update. Models with dropout have no reference: their randomness is the engine's own.
"""

import argparse
import copy
import json
import pathlib
import sys

import stagewright
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn

SAMPLES, MINI_BATCH, STEPS = 96, 16, 5
OPTIMIZERS = {"sgd": (torch.optim.SGD, 0.1), "adam": (torch.optim.Adam, 1e-3)}


class Chain(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [12, 24, 24, 24, 24, 24, 5]
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths, widths[1:]))

    def forward(self, x):
        for layer in self.layers[:-1]:
            x = torch.tanh(layer(x))
        return self.layers[-1](x)


def branch(inputs, width, outputs):
    return nn.Sequential(nn.Linear(inputs, width), nn.ReLU(), nn.Linear(width, outputs), nn.Tanh())


class TwoBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = branch(6, 20, 10), branch(8, 16, 12)
        self.head = nn.Sequential(nn.Linear(22, 16), nn.ReLU(), nn.Linear(16, 5))

    def forward(self, left, right):
        return self.head(torch.cat([self.left(left), self.right(right)], dim=1))


class FourBranches(nn.Module):
    def __init__(self):
        super().__init__()
        self.branches = nn.ModuleList(branch(4, 16 + 4 * i, 8) for i in range(4))
        self.head = nn.Linear(32, 5)

    def forward(self, x):
        return self.head(torch.cat([b(part) for b, part in zip(self.branches, x.chunk(4, dim=1))], dim=1))


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Linear(12, 16)
        self.blocks = nn.ModuleList(branch(16, 24, 16) for _ in range(3))
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        first = self.stem(x)
        x = first
        for block in self.blocks:
            x = x + block(x)
        return self.head(F.relu(x + first))


class TiedEmbedding(nn.Module):
    """The output layer is the embedding: a parameter used by the first and the last operator."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(17, 12)
        self.body = nn.Sequential(branch(12, 24, 12), branch(12, 24, 12))
        self.output = nn.Linear(12, 17)
        self.output.weight = self.embedding.weight

    def forward(self, ids):
        return self.output(self.body(self.embedding(ids)).mean(dim=1))


class SharedLinear(nn.Module):
    """One Linear serves both branches."""

    def __init__(self):
        super().__init__()
        self.left, self.right = branch(6, 16, 12), branch(6, 20, 12)
        self.shared = nn.Linear(12, 10)
        self.head = nn.Linear(20, 5)

    def forward(self, left, right):
        parts = [torch.tanh(self.shared(self.left(left))), torch.tanh(self.shared(self.right(right)))]
        return self.head(torch.cat(parts, dim=1))


class Dropouts(nn.Module):
    def __init__(self):
        super().__init__()
        self.left, self.right = branch(6, 20, 10), branch(6, 20, 10)
        self.drop, self.drop_more = nn.Dropout(0.25), nn.Dropout(0.5)
        self.head = nn.Linear(20, 5)

    def forward(self, x):
        left, right = self.drop(self.left(x[:, :6])), self.drop_more(self.right(x[:, 6:]))
        return self.head(self.drop(torch.cat([left, right], dim=1)))


class ConvNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 4, 3, padding=1), nn.Conv2d(4, 6, 3)
        self.norm = nn.GroupNorm(2, 4)
        self.act = nn.ReLU(inplace=True)
        self.head = nn.Linear(6 * 9, 5)

    def forward(self, image):
        x = F.max_pool2d(self.act(self.norm(self.conv1(image))), 2)
        return self.head(self.act(self.conv2(F.pad(x, (0, 1, 0, 1)))).flatten(1))


class Transformer(nn.Module):
    """Token and position embeddings, two causal layers, next-token loss."""

    class Layer(nn.Module):
        def __init__(self, width, heads):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
            # Without bias: the gradient of the keys' bias is zero but for rounding, which Adam would blow up.
            self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
            self.heads = heads

        def forward(self, x):
            b, t, _ = x.shape
            q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.out(y.transpose(1, 2).reshape(b, t, -1))
            return x + self.down(F.gelu(self.up(self.norm2(x))))

    def __init__(self, words=19, width=16, length=7):
        super().__init__()
        self.token, self.position = nn.Embedding(words, width), nn.Embedding(length, width)
        self.layers = nn.ModuleList(self.Layer(width, 4) for _ in range(2))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, words)

    def forward(self, ids):
        x = self.token(ids) + self.position(torch.arange(ids.shape[1], device=ids.device))
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))


class FrozenBranch(nn.Module):
    """One branch does not train: no gradient, no optimizer state, no backward."""

    def __init__(self):
        super().__init__()
        self.frozen, self.live = branch(6, 16, 10), branch(6, 16, 10)
        self.head = nn.Linear(20, 5)
        self.frozen.requires_grad_(False)

    def forward(self, left, right):
        return self.head(torch.cat([self.frozen(left), self.live(right)], dim=1))


class Buffers(nn.Module):
    """State that does not train: a buffer, an index buffer outside the state dict, a literal in forward."""

    def __init__(self):
        super().__init__()
        self.stem, self.left, self.right = nn.Linear(12, 12), branch(6, 16, 10), branch(6, 16, 10)
        self.head = nn.Linear(20, 5)
        self.register_buffer("scale", torch.linspace(0.5, 1.5, 12))
        self.register_buffer("order", torch.randperm(12), persistent=False)

    def forward(self, x):
        x = self.stem(x * self.scale)[:, self.order]
        parts = [self.left(x[:, :6]), self.right(x[:, 6:]) * torch.tensor([0.5, 2.0]).repeat(5).to(x.dtype)]
        return self.head(torch.cat(parts, dim=1))


def token_loss(output, target):
    return F.cross_entropy(output.flatten(0, 1), target.flatten())


def classes(count=5):
    return torch.randint(0, count, (SAMPLES,))


def cases() -> dict[str, tuple]:
    """name -> (module class, loss, function that makes the data)."""
    entropy = nn.CrossEntropyLoss()
    return {
        "chain": (Chain, entropy, lambda: dict(x=torch.randn(SAMPLES, 12), target=classes())),
        "two_branches": (
            TwoBranches,
            entropy,
            lambda: dict(left=torch.randn(SAMPLES, 6), right=torch.randn(SAMPLES, 8), target=classes()),
        ),
        "four_branches": (FourBranches, entropy, lambda: dict(x=torch.randn(SAMPLES, 16), target=classes())),
        "skip": (Skip, nn.MSELoss(), lambda: dict(x=torch.randn(SAMPLES, 12), target=torch.randn(SAMPLES, 5))),
        "tied": (
            TiedEmbedding,
            entropy,
            lambda: dict(ids=torch.randint(0, 17, (SAMPLES, 6)), target=classes(17)),
        ),
        "shared": (
            SharedLinear,
            nn.CrossEntropyLoss(reduction="sum"),
            lambda: dict(left=torch.randn(SAMPLES, 6), right=torch.randn(SAMPLES, 6), target=classes()),
        ),
        "dropout": (Dropouts, entropy, lambda: dict(x=torch.randn(SAMPLES, 12), target=classes())),
        "conv": (ConvNet, entropy, lambda: dict(image=torch.randn(SAMPLES, 1, 8, 8), target=classes())),
        "transformer": (
            Transformer,
            token_loss,
            lambda: dict(ids=torch.randint(0, 19, (SAMPLES, 7)), target=torch.randint(0, 19, (SAMPLES, 7))),
        ),
        "buffers": (Buffers, entropy, lambda: dict(x=torch.randn(SAMPLES, 12), target=classes())),
        "frozen": (
            FrozenBranch,
            entropy,
            lambda: dict(left=torch.randn(SAMPLES, 6), right=torch.randn(SAMPLES, 6), target=classes()),
        ),
    }


def write_reference(model, loss, data, stem: pathlib.Path, optimizer: str) -> None:
    model = copy.deepcopy(model)
    kind, rate = OPTIMIZERS[optimizer]
    update = kind([p for p in model.parameters() if p.requires_grad], lr=rate)
    losses = []
    for step in range(STEPS):
        rows = slice(step * MINI_BATCH, (step + 1) * MINI_BATCH)
        inputs = {name: tensor[rows] for name, tensor in data.items() if name != "target"}
        update.zero_grad()
        value = loss(model(**inputs), data["target"][rows])
        value.backward()
        update.step()
        losses.append(value.item())
    # Constants and buffers outside the state dict stay as they were.
    state = load_file(f"{stem}.safetensors")
    state.update({name: tensor for name, tensor in model.state_dict().items() if name in state})
    save_file({name: t.contiguous().clone() for name, t in state.items()}, f"{stem}.reference.{optimizer}.safetensors")
    summary = {"losses": losses, "mini_batch": MINI_BATCH, "steps": STEPS, "lr": rate}
    pathlib.Path(f"{stem}.reference.{optimizer}.json").write_text(json.dumps(summary, indent=2) + "\n")


def write_model(directory: pathlib.Path, case: str, dtype: torch.dtype) -> None:
    make_model, loss, make_data = cases()[case]
    torch.manual_seed(sum(map(ord, case)))
    model = make_model().to(dtype)
    data = {name: t.to(dtype) if t.is_floating_point() else t for name, t in make_data().items()}
    stem = directory / f"{case}_{'f64' if dtype is torch.float64 else 'f32'}"
    example = {name: tensor[:4] for name, tensor in data.items()}
    target = example.pop("target")
    stagewright.export(model, example, loss=loss, targets=target, path=f"{stem}.swg", name=stem.name)
    stagewright.save_dataset(f"{stem}.data.safetensors", **data)
    if case == "dropout":
        return
    for optimizer in OPTIMIZERS:
        write_reference(model, loss, data, stem, optimizer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--only", nargs="*", help="names of models, without the _f64 or _f32")
    options = parser.parse_args()
    unknown = set(options.only or ()) - set(cases())
    if unknown:
        sys.exit(f"export_models.py: no model {sorted(unknown)}; there are {sorted(cases())}")
    torch.set_num_threads(1)
    options.directory.mkdir(parents=True, exist_ok=True)
    for case in options.only or cases():
        for dtype in (torch.float64, torch.float32):
            write_model(options.directory, case, dtype)


if __name__ == "__main__":
    main()
