"""Operators in parallel parts: verified against one device, checkpoints, and jobs that go on with and without parts."""

import json

import pytest
import torch
from processes import Processes
from safetensors.torch import load_file, save_file
from torch import nn
from torch.nn import functional as F

import stagewright

WORDS, WIDTH, TOKENS, SAMPLES, MINI_BATCH = 40, 16, 6, 48, 16
SPLITS = "words=2,q=2,k=2,v=2,o=2,up=4,down=4,head=5"


class LanguageModel(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4))
        self.norm = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, tokens):
        x = self.words(tokens)
        heads = [layer(x).view(-1, TOKENS, 4, WIDTH // 4).transpose(1, 2) for layer in (self.q, self.k, self.v)]
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2)
        x = self.norm(x + self.o(mixed.reshape(-1, TOKENS, WIDTH)))
        return self.head(x + self.down(F.gelu(self.up(x))))


def loss(logits, target):
    return F.cross_entropy(logits.flatten(0, 1), target.flatten())


@pytest.fixture(scope="module")
def system():
    with Processes(workers=3) as running:
        yield running


@pytest.fixture(scope="module")
def flags(system):
    torch.manual_seed(1)
    tokens, target = torch.randint(WORDS, (SAMPLES, TOKENS)), torch.randint(WORDS, (SAMPLES, TOKENS))
    stem = system.path / "words"
    save_file({"tokens": tokens, "target": target}, f"{stem}.data.safetensors")
    model = LanguageModel().double()
    stagewright.export(model, {"tokens": tokens[:4]}, loss=loss, targets=target[:4], path=f"{stem}.swg")
    return dict(
        graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", optimizer="adam",
        mini_batch=MINI_BATCH, steps=6, devices=3, watch=True, output="json", micro_batch=4,
    )  # fmt: skip


def run(system, flags, out, **changes):
    changes["out"] = system.path / out
    result = system.cli(*system.submit_flags("words", **{**flags, **changes}))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout), load_file(system.path / out / "model.safetensors")


def same(found, expected):
    assert set(found) == set(expected)
    for name, tensor in expected.items():
        torch.testing.assert_close(found[name], tensor, rtol=1e-9, atol=1e-9, msg=name)


def test_a_split_job_is_verified_and_ends_as_one_that_is_not_split(system, flags):
    _, whole = run(system, flags, "whole", split_operators="off", devices=1)
    job, split = run(system, flags, "split", split_operators=SPLITS, verify=2, stages=3)
    same(split, whole)
    shown = system.json("plan", "show", job["name"])
    assert shown["split_operators"]["head"] == 5
    assert any(name.endswith("[5/5]") for stage in shown["stages"] for name in stage["nodes"])


def test_checkpoints_fit_jobs_with_and_without_parts(system, flags):
    _, whole = run(system, flags, "all", split_operators="off", devices=1)
    for first, then in [(SPLITS, "off"), ("off", SPLITS), (SPLITS, "head=2")]:
        name = f"{len(first)}-{len(then)}"
        run(system, flags, f"first-{name}", split_operators=first, steps=4, checkpoint_every=3)
        found = system.path / f"first-{name}" / "checkpoints" / "step-0000000003"
        weights = stagewright.read_checkpoint(found).weights
        assert set(weights) == set(whole)
        _, rest = run(system, flags, f"then-{name}", split_operators=then, resume=found)
        same(rest, whole)


def test_what_cannot_be_cut_is_named(system, flags):
    for asked, answer in [
        ("head=3", "3 parts do not divide out_features = 40; near by do 2 and 4"),
        ("norm=2", 'module "norm" has no node that can be cut'),
        ("nobody=2", 'there is no node or module "nobody"'),
    ]:
        changes = dict(out=system.path / "refused", split_operators=asked)
        result = system.cli(*system.submit_flags("words", **{**flags, **changes}))
        assert result.returncode != 0
        assert answer in result.stderr + result.stdout
