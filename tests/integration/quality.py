"""A character-level Transformer on a real text, and the digits: trained by Stagewright and by plain PyTorch.

python tests/integration/quality.py (with the environment of scripts/quality.sh) prints the long form's table.
"""

import dataclasses
import json
import math
import pathlib
import sys

import torch
import torch.nn.functional as F
from processes import Processes
from torch import nn

import stagewright

DIGITS = pathlib.Path(__file__).parents[2] / "examples" / "digits"


def real_text() -> tuple[str, str]:
    """Its name and some 100,000 characters of English prose that the machine has anyway; '' if it has none."""
    licenses = [pathlib.Path("/usr/share/common-licenses") / name for name in ("GPL-3", "LGPL-2.1", "GFDL-1.3")]
    if all(path.is_file() for path in licenses):
        return "Debian's copies of GPL-3, LGPL-2.1 and GFDL-1.3", "".join(path.read_text() for path in licenses)
    try:
        from pydoc_data.topics import topics
    except ImportError:
        return "", ""
    return "Python's help texts", "".join(topics[name] for name in sorted(topics))[:100_000]


@dataclasses.dataclass(frozen=True)
class Size:
    width: int = 48
    heads: int = 4
    layers: int = 2
    length: int = 48
    mini_batch: int = 16
    steps: int = 150
    learning_rate: float = 3e-3


LONG = Size(width=96, layers=4, length=96, mini_batch=32, steps=600, learning_rate=2e-3)


class Attention(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.qkv, self.out = nn.Linear(size.width, 3 * size.width), nn.Linear(size.width, size.width)
        self.heads = size.heads

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        samples, length, width = x.shape
        qkv = self.qkv(self.norm(x)).view(samples, length, 3, self.heads, width // self.heads)
        q, k, v = qkv.permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(attended.transpose(1, 2).reshape(samples, length, width))


class FeedForward(nn.Module):
    def __init__(self, size: Size):
        super().__init__()
        self.norm = nn.LayerNorm(size.width)
        self.up, self.down = nn.Linear(size.width, 4 * size.width), nn.Linear(4 * size.width, size.width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down(F.gelu(self.up(self.norm(x)), approximate="tanh"))


class Embedding(nn.Module):
    def __init__(self, vocabulary: int, size: Size):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, size.width)
        self.positions = nn.Parameter(torch.randn(size.length, size.width) * 0.02)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.tokens(ids) + self.positions


class Layer(nn.Module):
    """Attention and feed-forward stand side by side, as in GPT-J: what a graph of stages can use."""

    def __init__(self, size: Size):
        super().__init__()
        self.attention, self.feed_forward = Attention(size), FeedForward(size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.attention(x) + self.feed_forward(x)


class Characters(nn.Module):
    def __init__(self, vocabulary: int, size: Size):
        super().__init__()
        self.embedding = Embedding(vocabulary, size)
        self.layers = nn.Sequential(*(Layer(size) for _ in range(size.layers)))
        self.norm = nn.LayerNorm(size.width)
        self.head = nn.Linear(size.width, vocabulary, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.norm(self.layers(self.embedding(ids))))


class CharacterLoss(nn.Module):
    def forward(self, logits: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(logits.flatten(0, 1), target.flatten())


def samples_of(text: str, size: Size) -> tuple[int, torch.Tensor, torch.Tensor, float]:
    """Vocabulary; pieces of length + 1 characters to train on, in a fixed random order; pieces that are held out; the
    entropy of single characters, which a model that has learnt nothing else reaches."""
    alphabet = {character: i for i, character in enumerate(sorted(set(text)))}
    ids = torch.tensor([alphabet[character] for character in text])
    shares = torch.bincount(ids).double() / len(ids)
    pieces = ids.unfold(0, size.length + 1, size.length + 1)
    order = torch.randperm(len(pieces), generator=torch.Generator().manual_seed(1))
    held_out = max(len(pieces) // 10 // size.mini_batch, 1) * size.mini_batch
    pieces = pieces[order]
    return len(alphabet), pieces[held_out:], pieces[:held_out], -(shares * shares.log()).sum().item()


def file_of(path: pathlib.Path, pieces: torch.Tensor) -> pathlib.Path:
    stagewright.save_dataset(path, ids=pieces[:, :-1].contiguous(), target=pieces[:, 1:].contiguous())
    return path


@dataclasses.dataclass(frozen=True)
class Result:
    training_loss: float  # Of the last step.
    held_out_loss: float
    accuracy: float = math.nan  # Of what was held out.


def train_in_pytorch(model: nn.Module, loss: nn.Module, optimizer, train, test, steps, mini_batch, clip=None) -> Result:
    """On the samples that a job without shuffling consumes: in their order, over and over."""
    (x, target), (test_x, test_target) = train, test
    for step in range(steps):
        rows = torch.arange(step * mini_batch, (step + 1) * mini_batch) % len(x)
        optimizer.zero_grad()
        value = loss(model(x[rows]), target[rows])
        value.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
    with torch.no_grad():
        logits = model(test_x)
        accuracy = (logits.argmax(-1) == test_target).double().mean().item()
        return Result(value.item(), loss(logits, test_target).item(), accuracy)


def nodes(*parts: str) -> list[str]:
    return [f"module:{part}" for part in parts]


def character_plans(size: Size, devices: int) -> dict[str, dict]:
    """A pipeline, and a graph of stages in which attention and feed-forward of the first layer run side by side."""
    side_by_side = [
        {"nodes": nodes("embedding"), "devices": [0]},
        {"nodes": nodes("layers.0.attention"), "devices": [1]},
        {"nodes": nodes("layers.0.feed_forward"), "devices": [2 % devices]},
        {"nodes": ["*"], "devices": [0]},
    ]
    first = nodes("embedding", *(f"layers.{i}" for i in range(size.layers // 2)))
    pipeline = [{"nodes": first, "devices": [0]}, {"nodes": ["*"], "devices": [1]}]
    micro_batch = size.mini_batch // 4
    return {
        "pipeline of 2 stages": {"micro_batch": micro_batch, "stages": pipeline},
        f"graph of 4 stages on {devices} devices": {"micro_batch": micro_batch, "stages": side_by_side},
    }


def run(system: Processes, name: str, *arguments) -> dict:
    out = system.path / name.replace(" ", "-")
    command = ["submit", *arguments, "--out", out, "--no-shuffle", "--watch", "-o", "json"]
    result = system.cli(*command, timeout=1800)
    job = json.loads(result.stdout) if result.stdout else {}
    assert job.get("state") == "succeeded", job.get("message") or result.stderr
    return job


def compare_characters(system: Processes, size: Size, devices: int) -> tuple[float, Result, dict[str, Result]]:
    """The entropy of single characters, PyTorch's result, and that of each plan."""
    text = real_text()[1]
    vocabulary, train, test, entropy = samples_of(text, size)
    torch.manual_seed(0)
    model, loss, stem = Characters(vocabulary, size), CharacterLoss(), system.path / "characters"
    parts = train[:2, :-1], train[:2, 1:].contiguous()
    stagewright.export(model, {"ids": parts[0]}, loss=loss, targets=parts[1], path=f"{stem}.swg", batch_dim=0)
    train_file = file_of(system.path / "train.safetensors", train)
    test_file = file_of(system.path / "test.safetensors", test)
    results = {}
    for name, plan in character_plans(size, devices).items():
        plan_file = system.path / "plan.json"
        plan_file.write_text(json.dumps(plan))
        job = run(
            system, name, f"{stem}.swg", "--weights", f"{stem}.safetensors", "--data", train_file,
            "--eval-data", test_file, "--plan-file", plan_file, "--devices", devices, "--mini-batch", size.mini_batch, "--steps", size.steps,
            "--optimizer", "adamw", "--lr", size.learning_rate, "--weight-decay", 0.01, "--clip-norm", 1,
        )  # fmt: skip
        assert len(system.json("plan", "show", job["name"])["stages"]) == len(plan["stages"])
        results[name] = Result(job["loss"], job["evaluation_loss"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=size.learning_rate, weight_decay=0.01)
    split = [(part[:, :-1].contiguous(), part[:, 1:].contiguous()) for part in (train, test)]
    expected = train_in_pytorch(model, loss, optimizer, *split, size.steps, size.mini_batch, clip=1.0)
    return entropy, expected, results


def compare_digits(system: Processes, epochs: int, devices: int) -> tuple[Result, Result]:
    """PyTorch's result, and that of the plan that the planner chooses."""
    sys.path.insert(0, str(DIGITS))
    from digits_data import split_digits
    from model import QuadrantNet

    train, test = split_digits()
    torch.manual_seed(0)
    model, loss, stem, mini_batch = QuadrantNet(), nn.CrossEntropyLoss(), system.path / "digits", 64
    stagewright.export(model, (train[0][:4],), loss=loss, path=f"{stem}.swg")
    for name, (images, labels) in dict(train=train, test=test).items():
        stagewright.save_dataset(f"{stem}.{name}.safetensors", image=images, target=labels)
    job = run(
        system, "digits", f"{stem}.swg", "--weights", f"{stem}.safetensors", "--data", f"{stem}.train.safetensors",
        "--eval-data", f"{stem}.test.safetensors", "--mini-batch", mini_batch, "--epochs", epochs, "--devices", devices,
        "--optimizer", "adam", "--lr", 1e-3,
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    expected = train_in_pytorch(model, loss, optimizer, train, test, job["total_steps"], mini_batch)
    return expected, Result(job["loss"], job["evaluation_loss"], job["accuracy"])


def main() -> None:
    torch.set_num_threads(1)
    name, text = real_text()
    if not text:
        raise SystemExit("this machine has none of the texts")
    with Processes(workers=3, measured=True) as system:
        entropy, expected, results = compare_characters(system, LONG, devices=3)
        print(f"{name}, {len(text)} characters, entropy of single characters {entropy:.3f}; {LONG}\n")
        print("| run | loss of the last step | held-out loss | held-out, relative to PyTorch |\n|---|---|---|---|")
        for run_name, result in {"plain PyTorch": expected, **results}.items():
            difference = result.held_out_loss / expected.held_out_loss - 1
            print(f"| {run_name} | {result.training_loss:.4f} | {result.held_out_loss:.4f} | {difference:+.3%} |")
        expected, result = compare_digits(system, epochs=20, devices=3)
        print(f"\ndigits, 20 epochs: accuracy {result.accuracy:.2%}, plain PyTorch {expected.accuracy:.2%}")


if __name__ == "__main__":
    main()
