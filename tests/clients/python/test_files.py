"""Graph files, weights, data files and checkpoints."""

import pathlib
import resource
import shutil
import struct
import subprocess
import sys

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn

import stagewright


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.body = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.output = nn.Linear(4, 9, bias=False)
        self.output.weight = self.embedding.weight
        self.register_buffer("mask", torch.ones(4), persistent=False)

    def forward(self, ids):
        return self.output(self.body(self.embedding(ids)) * self.mask * torch.tensor([2.0]))


@pytest.fixture
def exported(tmp_path):
    return stagewright.export(
        Tied(), torch.zeros(4, dtype=torch.int64), loss=nn.CrossEntropyLoss(), path=tmp_path / "t.swg"
    )


def test_graph_file_round_trip(exported, tmp_path):
    graph = stagewright.load_graph(exported.path)
    assert graph == exported.graph and graph.name == "t" and graph.producer.startswith("stagewright ")
    stagewright.save_graph(graph, tmp_path / "again.swg")
    assert (tmp_path / "again.swg").read_bytes() == exported.path.read_bytes()


def test_export_is_deterministic(tmp_path):
    files = []
    for name in ("a", "b"):
        torch.manual_seed(1)
        out = stagewright.export(
            Tied(),
            torch.zeros(4, dtype=torch.int64),
            loss=nn.CrossEntropyLoss(),
            path=tmp_path / f"{name}.swg",
            name="t",
        )
        files.append((out.path.read_bytes(), out.weights_path.read_bytes()))
    assert files[0] == files[1]


def test_every_corruption_is_detected(exported, tmp_path):
    data = exported.path.read_bytes()
    broken = tmp_path / "broken.swg"
    for position in range(0, len(data), 7):
        broken.write_bytes(data[:position] + bytes([data[position] ^ 0x40]) + data[position + 1 :])
        with pytest.raises(stagewright.GraphFileError, match="broken.swg: (truncated|corrupt|not a Stagewright graph)"):
            stagewright.load_graph(broken)
    for length in (0, 5, 19, 20, 21, len(data) // 2, len(data) - 1):
        broken.write_bytes(data[:length])
        with pytest.raises(stagewright.GraphFileError, match="broken.swg: truncated"):
            stagewright.load_graph(broken)
    with pytest.raises(stagewright.GraphFileError, match="missing.swg: No such file"):
        stagewright.load_graph(tmp_path / "missing.swg")


def test_weights_file_holds_each_tensor_once(exported):
    stored = load_file(exported.weights_path)
    assert set(stored) == {p.name for p in exported.graph.parameters if not p.HasField("data")}
    assert "embedding.weight" in stored and "output.weight" not in stored
    # No state dict has the mask, so that no checkpoint has it, either.
    assert "mask" not in stored and set(stored) <= set(Tied().state_dict())


def test_checkpoint_restores_ties(exported):
    model = Tied()
    trained = {name: tensor + 1 for name, tensor in load_file(exported.weights_path).items()}
    save_file(trained, exported.weights_path)
    stagewright.load_checkpoint(model, exported.weights_path)
    assert torch.equal(model.embedding.weight, trained["embedding.weight"])
    assert model.output.weight is model.embedding.weight
    assert torch.equal(model.mask, torch.ones(4))


def test_checkpoint_of_a_plain_model_loads_without_us(tmp_path):
    model = nn.Sequential(nn.Conv1d(2, 4, 1), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(20, 2))
    out = stagewright.export(model, torch.randn(4, 2, 5), loss=nn.CrossEntropyLoss(), path=tmp_path / "m.swg")
    fresh = nn.Sequential(nn.Conv1d(2, 4, 1), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(20, 2))
    fresh.load_state_dict(load_file(out.weights_path))
    for name, tensor in model.state_dict().items():
        assert torch.equal(fresh.state_dict()[name], tensor)


@pytest.mark.parametrize(
    "change, message",
    [
        (lambda t: t.pop("body.bias"), "no tensor 'body.bias'"),
        (lambda t: t.update({"body.bais": torch.ones(4)}), "the model has no tensor 'body.bais'"),
        (lambda t: t.update({"body.bias": torch.ones(5)}), r"'body.bias' has shape \(5,\), the model's is \(4,\)"),
    ],
)
def test_checkpoint_that_does_not_fit(change, message, exported, tmp_path):
    tensors = {name: tensor + 1 for name, tensor in load_file(exported.weights_path).items()}
    change(tensors)
    save_file(tensors, tmp_path / "bad.safetensors")
    model = Tied()
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    with pytest.raises(stagewright.CheckpointError, match="bad.safetensors: .*" + message):
        stagewright.load_checkpoint(model, tmp_path / "bad.safetensors")
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.state_dict().items())


def test_checkpoint_that_cannot_be_read(tmp_path):
    (tmp_path / "torn.safetensors").write_bytes(b"\x10")
    for name in ("torn", "missing"):
        with pytest.raises(stagewright.CheckpointError, match=f"{name}.safetensors"):
            stagewright.load_checkpoint(Tied(), tmp_path / f"{name}.safetensors")


def test_dataset(tmp_path):
    path = tmp_path / "data.safetensors"
    stagewright.save_dataset(path, x=np.arange(6.0, dtype=np.float32).reshape(3, 2).T, target=torch.tensor([1, 2]))
    stored = load_file(path)
    assert stored["x"].tolist() == [[0.0, 2.0, 4.0], [1.0, 3.0, 5.0]] and stored["target"].dtype == torch.int64
    with pytest.raises(stagewright.DatasetError, match="differ in their number of samples.*'x': 3, 'target': 2"):
        stagewright.save_dataset(path, x=torch.ones(3), target=torch.ones(2))
    with pytest.raises(stagewright.DatasetError, match="'x' has shape"):
        stagewright.save_dataset(path, x=torch.tensor(1.0))
    with pytest.raises(stagewright.DatasetError, match="no arrays"):
        stagewright.save_dataset(path)
    assert set(load_file(path)) == {"x", "target"}, "a refused data set replaced the file"


def test_default_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    out = stagewright.export(Tied(), torch.zeros(1, dtype=torch.int64), loss=nn.CrossEntropyLoss(), batch_dim=0)
    assert (str(out.path), str(out.weights_path), out.graph.name) == ("tied.swg", "tied.safetensors", "tied")


def test_model_far_larger_than_memory(tmp_path):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(65536, 65536) for _ in range(8)), nn.Linear(65536, 10))
        inputs = torch.empty(2, 65536)
    assert sum(p.nbytes for p in model.parameters()) > 100e9
    out = stagewright.export(model, inputs, loss=nn.CrossEntropyLoss(), weights=False, path=tmp_path / "huge.swg")
    assert out.weights_path is None and len(out.graph.nodes) == 11
    assert model[0].weight.is_meta, "export replaced the model's parameters"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2e6  # KiB


def test_constants_are_in_the_graph(tmp_path):
    with torch.device("meta"):
        model = Tied()
    out = stagewright.export(
        model, torch.zeros(4, dtype=torch.int64), loss=nn.CrossEntropyLoss(), weights=False, path=tmp_path / "t.swg"
    )
    assert out.weights_path is None
    (constant,) = (p for p in out.graph.parameters if p.HasField("data"))
    assert constant.data == struct.pack("<f", 2.0)
    assert list(next(p for p in out.graph.parameters if p.name == "embedding.weight").aliases) == ["output.weight"]


def test_missing_generated_code_is_explained(tmp_path):
    """A checkout whose protobuf code was never generated says what to run."""
    package = pathlib.Path(stagewright.__file__).parent
    shutil.copytree(package, tmp_path / "stagewright", ignore=shutil.ignore_patterns("_proto", "__pycache__"))
    # The editable install would find the missing part in the original checkout.
    program = "import sys; sys.meta_path = [f for f in sys.meta_path if 'ditable' not in repr(f)]; import stagewright"
    result = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False
    )
    assert result.returncode != 0 and "run clients/python/generate_protos.py" in result.stderr
