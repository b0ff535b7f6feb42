"""Data sets in every form that `train` takes become the same files."""

import numpy
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from stagewright import training_data
from stagewright.errors import DatasetError
from stagewright.training_data import prepare

X, Y = torch.arange(60, dtype=torch.float32).view(20, 3), torch.arange(20)


class Model(nn.Module):
    def forward(self, x):
        return x


class Records(Dataset):
    """Samples as dicts, as many libraries have them."""

    def __len__(self):
        return len(X)

    def __getitem__(self, i):
        return {"x": X[i].numpy(), "label": int(Y[i])}


def as_dict(samples):
    """A batch of pairs, with a name for the target that is none of forward's arguments."""
    return {"x": torch.stack([x for x, _ in samples]), "label": torch.stack([y for _, y in samples])}


def stored(data):
    files = sorted(training_data.pathlib.Path(data.path).glob("*.safetensors"))
    parts = [load_file(file) for file in files]
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}


def forms():
    pairs = TensorDataset(X, Y)
    return {
        "dict": {"x": X, "target": Y},
        "arrays": {"x": X.numpy(), "target": Y.tolist()},
        "pairs": pairs,
        "list": list(zip(X, Y)),
        "records": Records(),
        "loader": DataLoader(pairs, batch_size=3),
        "collated": DataLoader(pairs, batch_size=6, collate_fn=as_dict),
    }  # fmt: skip


@pytest.mark.parametrize("form", forms())
def test_all_forms_become_the_same_files(form, tmp_path):
    data = prepare(forms()[form], Model(), tmp_path / "data")
    assert data.samples == 20
    tensors = stored(data)
    assert tensors.keys() == {"x", "target"}
    torch.testing.assert_close(tensors["x"], X, rtol=0, atol=0)
    assert tensors["target"].tolist() == list(range(20))
    inputs = data.example.inputs
    x = inputs["x"] if isinstance(inputs, dict) else inputs[0]
    count = min(8, len(x))
    torch.testing.assert_close(x, X[:count], rtol=0, atol=0)
    assert data.example.target.tolist() == list(range(count))


def test_large_data_sets_become_shards(tmp_path, monkeypatch):
    monkeypatch.setattr(training_data, "_SHARD_BYTES", 100)
    data = prepare(DataLoader(TensorDataset(X, Y), batch_size=3), Model(), tmp_path / "data")
    assert len(list((tmp_path / "data").iterdir())) == 4
    assert stored(data)["target"].tolist() == list(range(20))


def test_shards_of_an_earlier_run_are_no_part_of_the_data(tmp_path, monkeypatch):
    with monkeypatch.context() as small:
        small.setattr(training_data, "_SHARD_BYTES", 100)
        prepare(DataLoader(TensorDataset(X, Y), batch_size=3), Model(), tmp_path / "data")
    data = prepare({"x": X[:4], "target": Y[:4]}, Model(), tmp_path / "data")
    assert data.samples == 4
    assert stored(data)["target"].tolist() == [0, 1, 2, 3]


def test_nested_batches_have_the_names_of_the_graph(tmp_path):
    class Two(nn.Module):
        def forward(self, pair, mask):
            return pair["a"]

    batch = ({"a": X, "b": X}, Y, {"one": Y, "two": Y})
    data = prepare(DataLoader([batch], batch_size=None), Two(), tmp_path / "data")
    assert stored(data).keys() == {"pair.a", "pair.b", "mask", "target.one", "target.two"}
    assert data.example.target.keys() == {"one", "two"}


def test_files_are_taken_as_they_are(tmp_path):
    whole, shards, npy = tmp_path / "all.safetensors", tmp_path / "shards", tmp_path / "npy"
    save_file({"x": X, "target": Y}, whole)
    shards.mkdir()
    save_file({"x": X[:15], "target": Y[:15]}, shards / "0.safetensors")
    save_file({"x": X[15:], "target": Y[15:]}, shards / "1.safetensors")
    npy.mkdir()
    numpy.save(npy / "x.npy", X.numpy())
    numpy.save(npy / "target.npy", Y.numpy())
    pairs = f"x={npy / 'x.npy'},target={npy / 'target.npy'}"
    for path in (whole, shards, f"{shards}/*.safetensors", npy, pairs):
        data = prepare(path, Model(), tmp_path / "unused")
        assert (data.path, data.samples) == (str(path), 20)
        torch.testing.assert_close(data.example.inputs["x"], X[:8], rtol=0, atol=0)
        assert data.example.target.tolist() == list(range(8))
    assert not (tmp_path / "unused").exists()


@pytest.mark.parametrize(
    ("dataset", "says"),
    [
        ({"y": X, "target": Y}, "none of y, target is an argument of Model.forward"),
        ({"x": X, "target": Y[:5]}, "differ in their number of samples: {'x': 20, 'target': 5}"),
        ({"x": X, "target": 3}, "'target' is a Tensor without a dimension of samples"),
        ([], "the data set has no samples"),
        ({"x": X[:0], "target": Y[:0]}, "the data set has no samples"),
        ([(X[0], "cat"), (X[1], "dog")], "'target.0' is a str without a dimension of samples"),
        (DataLoader([X[:1], X[:1, 0]], batch_size=1), "a job needs samples of one type and number of dimensions"),
        ([torch.zeros(n) for n in range(1, 70)], "samples of more than 64 different shapes"),
        (42, "a int is no data set"),
        ("/nowhere.safetensors", "/nowhere.safetensors: no data files that can be read here"),
    ],
)
def test_what_is_no_data_set_is_refused(dataset, says, tmp_path):
    with pytest.raises(DatasetError) as error:
        prepare(dataset, Model(), tmp_path / "data")
    assert says in str(error.value)
