"""Checkpoints of jobs under way in plain PyTorch, and weights from PyTorch."""

import json
import zlib

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.output = nn.Embedding(5, 3), nn.Linear(3, 5)
        self.output.weight = self.embedding.weight

    def forward(self, ids):
        return self.output(self.embedding(ids))


def step(model, optimizer, seed):
    ids = torch.randint(0, 5, (8,), generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(ids), ids).backward()
    optimizer.step()


def parts(name, tensor, cut):
    """A tensor, or the two halves along dimension 1 in which a job had it."""
    if name != cut or tensor.dim() < 2:
        return {name: tensor.clone()}
    return {f"{name}[{i + 1}/2]": half.clone() for i, half in enumerate(tensor.chunk(2, 1))}


def shares(name, tensor, count):
    """A state, or the shares in which `count` replicas have it."""
    if count < 2 or tensor.dim() == 0:
        return {name: tensor.clone()}
    ends = [min(i * -(-tensor.numel() // count), tensor.numel()) for i in range(count + 1)]
    row = tensor.flatten()
    return {f"{name}@{a}-{b}": row[a:b].clone() for a, b in zip(ends[:-1], ends[1:], strict=True) if a < b}


def write(directory, model, optimizer, cut="", replicas=1):
    """A checkpoint as two devices write it: tied parameters once, state under the names of torch.optim."""
    directory.mkdir()
    names = dict(model.named_parameters())
    files = {"model-00000.safetensors": {}, "model-00001.safetensors": {}, "optimizer-00000.safetensors": {}}
    for i, (name, parameter) in enumerate(names.items()):
        halves = parts(name, parameter.detach(), cut)
        files[f"model-0000{i % 2}.safetensors"].update(halves)
        for key, value in optimizer.state[parameter].items():
            states = parts(name, value, cut)
            for half in halves:
                state = shares(f"{half}.{key}", states.get(half, value), replicas)
                files["optimizer-00000.safetensors"].update(state)
    # Of no parameter: the scale of a loss in float16.
    files["optimizer-00000.safetensors"]["loss_scale"] = torch.tensor([65536, 3], dtype=torch.float64)
    entries = []
    for name, tensors in files.items():
        save_file(tensors, directory / name)
        data = (directory / name).read_bytes()
        entries.append({"name": name, "bytes": len(data), "crc32": f"{zlib.crc32(data):x}"})
    maps = [
        {name: file for file, tensors in files.items() if file.startswith(kind) for name in tensors}
        for kind in ("model", "optimizer")
    ]
    manifest = dict(
        format="stagewright-checkpoint", version=1, step=3, samples=24, seed=0, shuffled=True, optimizer="adam",
        graph="tied", graph_fingerprint="0", files=entries, weight_map=maps[0], optimizer_map=maps[1],
        aliases={"output.weight": "embedding.weight"},
    )  # fmt: skip
    if cut:
        manifest["slices"] = {cut: {"dim": 1, "slices": [f"{cut}[1/2]", f"{cut}[2/2]"]}}
    (directory / "manifest.json").write_text(json.dumps(manifest))


@pytest.fixture(params=[("", 1), ("embedding.weight", 1), ("", 3), ("embedding.weight", 4)])
def trained(tmp_path, request):
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    for seed in range(3):
        step(model, optimizer, seed)
    write(tmp_path / "step", model, optimizer, *request.param)
    return model, optimizer, tmp_path / "step"


def test_a_missing_share_is_told(tmp_path):
    model = Tied()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    step(model, optimizer, 0)
    write(tmp_path / "step", model, optimizer, replicas=3)
    manifest = json.loads((tmp_path / "step" / "manifest.json").read_text())
    share = next(name for name in manifest["optimizer_map"] if "exp_avg@" in name)
    del manifest["optimizer_map"][share]
    (tmp_path / "step" / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(stagewright.CheckpointError, match="exp_avg.* is there once"):
        stagewright.read_checkpoint(tmp_path / "step")


def test_pytorch_goes_on_from_a_checkpoint(trained):
    model, optimizer, path = trained
    checkpoint = stagewright.read_checkpoint(path)
    assert (checkpoint.step, checkpoint.samples, checkpoint.optimizer) == (3, 24, "adam")
    assert set(checkpoint.weights) == set(model.state_dict())
    assert set(checkpoint.optimizer_state) == {"embedding.weight", "output.bias"}
    other = Tied()
    stagewright.load_checkpoint(other, path)
    again = torch.optim.Adam(other.parameters(), lr=0.1)
    stagewright.load_optimizer(again, other, path)
    for seed in range(3, 6):
        step(model, optimizer, seed)
        step(other, again, seed)
    for name, tensor in model.state_dict().items():
        assert torch.equal(tensor, other.state_dict()[name]), name


def test_damage_is_named(trained):
    _, _, path = trained
    file = path / "optimizer-00000.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    with pytest.raises(stagewright.CheckpointError, match="optimizer-00000.safetensors"):
        stagewright.read_checkpoint(path)
    file.unlink()
    with pytest.raises(stagewright.CheckpointError, match="optimizer-00000.safetensors"):
        stagewright.read_checkpoint(path)
    (path / "manifest.json").write_text("{")
    with pytest.raises(stagewright.CheckpointError, match="manifest.json"):
        stagewright.read_checkpoint(path)


def test_state_of_another_model_is_refused(trained):
    _, _, path = trained
    other = nn.Linear(3, 5)
    with pytest.raises(stagewright.CheckpointError, match="no parameter"):
        stagewright.load_optimizer(torch.optim.Adam(other.parameters()), other, path)


@pytest.mark.parametrize("wrap", [None, "state_dict", "model_state_dict", "model"])
def test_a_state_dict_becomes_weights(tmp_path, wrap):
    model = Tied()
    saved = model.state_dict()
    torch.save(saved if wrap is None else {wrap: saved, "epoch": 7}, tmp_path / "m.pt")
    names = stagewright.import_state_dict(tmp_path / "m.pt", tmp_path / "m.safetensors")
    assert names == sorted(saved)
    stored = load_file(tmp_path / "m.safetensors")
    assert all(torch.equal(stored[name], tensor) for name, tensor in saved.items())


@pytest.mark.parametrize("content", [b"", b"not a file of PyTorch", [1, 2], {"a": 3}, {}])
def test_other_files_are_refused(tmp_path, content):
    path = tmp_path / "bad.pt"
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(stagewright.CheckpointError, match="bad.pt"):
        stagewright.import_state_dict(path, tmp_path / "out.safetensors")
    assert not (tmp_path / "out.safetensors").exists()
