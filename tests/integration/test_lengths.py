"""Data of several lengths in one job: every step is that of eager PyTorch with the same mini-batch of one length."""

import json

import pytest
import torch
from processes import Processes
from safetensors.torch import load_file
from torch import nn
from torch.export import Dim
from torch.utils.data import DataLoader

import stagewright

WORDS, CLASSES, MINI_BATCH = 24, 6, 4
IGNORED = 0


@pytest.fixture(scope="module")
def system():
    with Processes(workers=4) as running:
        yield running


class Tagger(nn.Module):
    """A class for every token of a sequence of up to 11."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.positions = nn.Parameter(torch.randn(1, 11, 16))
        self.register_buffer("mask", torch.full((11, 11), float("-inf")).triu(1))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True) for _ in range(3)
        )
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.embed(tokens) + self.positions[:, :length]
        for layer in self.layers:
            x = layer(x, src_mask=self.mask[:length, :length])
        return self.head(x).transpose(1, 2)


class Reader(nn.Module):
    """A class for a sequence."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(WORDS, 16)
        self.lstm = nn.LSTM(16, 16, num_layers=2, batch_first=True)
        self.head = nn.Linear(16, CLASSES)

    def forward(self, tokens):
        return self.head(self.lstm(self.embed(tokens))[0][:, -1])


def sample_of(length, per_token):
    target = torch.randint(CLASSES, (length,) if per_token else ())
    return torch.randint(WORDS, (length,)), target


def data_of(lengths, per_token):
    torch.manual_seed(2)
    return [sample_of(length, per_token) for length in lengths]


def batches_of(samples):
    return [(torch.stack([s[0] for s in part]), torch.stack([s[1] for s in part])) for part in samples]


def mini_batches(samples, epochs):
    """Each sample goes to the mini-batch of its length; the step takes the one that is full."""
    filling, full = {}, []
    for _ in range(epochs):
        for sample in samples:
            part = filling.setdefault(len(sample[0]), [])
            part.append(sample)
            if len(part) == MINI_BATCH:
                full.append(filling.pop(len(sample[0])))
    return batches_of(full)


def eager(model, batches, loss, optimizer):
    losses = []
    for tokens, target in batches:
        value = loss(model(tokens), target)
        optimizer.zero_grad()
        value.backward()
        optimizer.step()
        losses.append(value.item())
    return losses


def assert_same(model, reference):
    expected = reference.state_dict()
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


def pair(make):
    torch.manual_seed(1)
    model, reference = make(), make()
    reference.load_state_dict(model.state_dict())
    return model, reference


def test_a_transformer_with_three_lengths_on_three_stages(system):
    """With samples of a length left over for the next epoch, and tokens that do not count. Not Adam: the bias of keys
    has a gradient of rounding errors only, which Adam makes large."""
    samples = data_of([11, 5, 8, 5, 11, 11, 8, 5, 5, 8, 11, 8, 5, 5, 11, 8, 8, 5, 5, 8, 11, 11, 5], per_token=True)
    seen = samples[3:18]
    model, reference = pair(Tagger)
    loss = nn.CrossEntropyLoss(ignore_index=IGNORED)
    result = stagewright.train(
        model, samples, loss=loss, mini_batch=MINI_BATCH, epochs=3, shuffle=False, devices=3, progress=False,
        optimizer=torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9), address=system.address,
        directory=system.path / "tagger", evaluation=seen,
        options=stagewright.PlanOptions(stages=3, micro_batch=2),
    )  # fmt: skip
    batches = mini_batches(samples, 3)
    assert {tokens.shape[1] for tokens, _ in batches} == {5, 8, 11}
    assert len({tokens.shape[1] for tokens, _ in batches[:4]}) > 1, "lengths alternate"
    optimizer = torch.optim.SGD(reference.parameters(), lr=0.05, momentum=0.9)
    losses = eager(reference, batches, loss, optimizer)
    assert result.history.losses == pytest.approx(losses, rel=2e-5)
    assert_same(model, reference)
    summed = nn.CrossEntropyLoss(ignore_index=IGNORED, reduction="sum")
    with torch.no_grad():
        total = sum(summed(reference(tokens[None]), target[None]).item() for tokens, target in seen)
    counted = sum(int((target != IGNORED).sum()) for _, target in seen)
    assert system.job(result.job.name)["evaluation_loss"] == pytest.approx(total / counted, rel=2e-5)
    assert len(result.plan.proto.strategy.stages) == 3
    assert [length.samples for length in result.plan.lengths] == [
        "tokens[8], target[8]",
        "tokens[5], target[5]",
    ]


def test_replicas_and_an_evaluation_of_several_lengths(system):
    samples = data_of([9, 4, 9, 4, 9, 9, 4, 4], per_token=False)
    seen = data_of([4, 9, 9, 4, 9, 9, 9], per_token=False)
    model, reference = pair(Reader)
    loss = nn.CrossEntropyLoss()
    loader = DataLoader(samples, batch_size=1)
    stages = [{"nodes": ["module:embed"], "devices": [0]}, {"nodes": ["*"], "devices": [1, 2]}]
    plan = system.path / "reader.json"
    plan.write_text(json.dumps({"micro_batch": 2, "stages": stages}))
    result = stagewright.train(
        model, loader, loss=loss, mini_batch=MINI_BATCH, epochs=2, shuffle=False, devices=3, progress=False,
        optimizer="sgd", lr=0.1, evaluation=seen, address=system.address, directory=system.path / "reader",
        plan=plan, dynamic_shapes={"tokens": {1: Dim("time", min=2, max=9)}},
    )  # fmt: skip
    losses = eager(reference, mini_batches(samples, 2), loss, torch.optim.SGD(reference.parameters(), lr=0.1))
    assert result.history.losses == pytest.approx(losses, rel=2e-5)
    assert_same(model, reference)
    with torch.no_grad():
        each = [loss(reference(tokens[None]), target[None]).item() for tokens, target in seen]
        right = [int(reference(tokens[None]).argmax()) == int(target) for tokens, target in seen]
    job = system.job(result.job.name)
    assert job["evaluation_loss"] == pytest.approx(sum(each) / len(each), rel=2e-5)
    assert job["accuracy"] == pytest.approx(sum(right) / len(right))


def files(system, name, lengths):
    """A graph of the lengths and a directory of data of them."""
    stem = system.path / name
    samples = data_of(lengths, per_token=True)
    torch.manual_seed(1)
    model = Tagger()
    alike = {length: [s for s in samples if len(s[0]) == length] for length in dict.fromkeys(lengths)}
    (system.path / f"{name}.data").mkdir()
    for length, (tokens, target) in zip(alike, batches_of(alike.values())):
        stagewright.save_dataset(system.path / f"{name}.data" / f"{length}.safetensors", tokens=tokens, target=target)
    stagewright.export(
        model, [(tokens[:4], target[:4]) for tokens, target in batches_of(alike.values())],
        loss=nn.CrossEntropyLoss(), dynamic_shapes=({1: Dim.AUTO},), path=f"{stem}.swg",
    )  # fmt: skip
    return dict(
        graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=system.path / f"{name}.data", mini_batch=MINI_BATCH,
        optimizer="momentum", lr=0.05, no_shuffle=None, seed=5, steps=14,
    )  # fmt: skip


LENGTHS = [5] * 7 + [8] * 9 + [11] * 6


def test_a_job_goes_on_from_a_checkpoint_under_another_plan(system):
    flags = files(system, "resumable", LENGTHS)
    plan = dict(devices=2, stages=2, micro_batch=2)
    whole = system.train("whole", **flags, out=system.path / "whole", **plan)
    assert whole["state"] == "succeeded", whole["message"]
    saved = system.train("saved", **flags, out=system.path / "saved", checkpoint_every=6, keep=4, **plan)
    assert saved["state"] == "succeeded", saved["message"]
    for where, devices in ((system.path / "saved" / "checkpoints" / "step-0000000006", 4), (system.path / "saved", 1)):
        out = system.path / f"resumed-{devices}"
        resumed = system.train(
            "resumed", **flags, out=out, devices=devices, stages=devices, micro_batch=4, resume=where
        )
        assert resumed["state"] == "succeeded", resumed["message"]
        assert resumed["step"] == 14
        for name, tensor in load_file(resumed["checkpoint"]).items():
            expected = load_file(whole["checkpoint"])[name]
            torch.testing.assert_close(tensor, expected, rtol=1e-4, atol=2e-6, msg=lambda m, n=name: f"{n}: {m}")


def test_verify_compares_steps_of_every_length(system):
    flags = files(system, "verified", LENGTHS)
    arguments = system.submit_flags("verified", **flags, out=system.path / "verified-out", devices=2, stages=2)
    result = system.cli(*arguments, "--micro-batch", 2, "--verify", 5, "--verify-only")
    assert result.returncode == 0, result.stderr + result.stdout


def test_a_plan_has_the_time_of_every_length(system):
    flags = files(system, "planned", LENGTHS)
    arguments = ("plan", "--local", flags["graph"], "--cluster", "cpu:2", "--mini-batch", 8)
    plan = system.json(*arguments)
    assert [length["samples"] for length in plan["lengths"]] == ["tokens[8], target[8]", "tokens[5], target[5]"]
    times = [plan["iteration_seconds"], *(length["iteration_seconds"] for length in plan["lengths"])]
    assert times == sorted(times, reverse=True) and times[-1] > 0
    shown = system.cli(*arguments).stdout
    assert "the figures above are of the largest samples; of the others" in shown
    assert "tokens[5], target[5]" in shown


def refused(system, flags, **changes):
    result = system.cli(*system.submit_flags("refused", **(flags | {"out": system.path / "refused"} | changes)))
    assert result.returncode != 0
    return result.stderr


def test_what_cannot_be_trained_is_refused_at_submit(system):
    flags = files(system, "refused", LENGTHS)
    assert "spec.graph.lengths cannot be trained by an asynchronous plan" in refused(system, flags, asynchronous=True)
    assert "it has 6 samples of tokens[11], target[11], fewer than a mini-batch of 7" in refused(
        system, flags, mini_batch=7
    )
    tokens = torch.zeros(4, 7, dtype=torch.int64)
    stagewright.save_dataset(flags["data"] / "7.safetensors", tokens=tokens, target=tokens)
    assert "7.safetensors: tensor \"tokens\" is int64[4, 7], the graph wants int64[samples, 11] or" in refused(
        system, flags
    )
