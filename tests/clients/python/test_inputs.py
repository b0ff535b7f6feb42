"""The forms in which people have a batch, a loss and an output."""

import dataclasses

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

import stagewright
from graph_interpreter import Interpreter


class TwoInputs(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(4, 3), nn.Linear(2, 3)

    def forward(self, x, z):
        return self.first(x) + self.second(z)


class Optional(nn.Module):
    """Takes a second tensor, or not."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x, offset=None):
        y = self.body(x)
        return y if offset is None else y + offset[:, None]


def names(exported):
    return [entry.name for entry in exported.graph.inputs]


def export(model, batch, loss, tmp_path, **options):
    return stagewright.export(model, batch, loss=loss, path=tmp_path / "model.swg", **options)


def run(exported, samples, **feeds):
    return Interpreter.load(exported).run(feeds, samples)


X, Z, Y = torch.randn(6, 4), torch.randn(6, 2), torch.arange(6) % 3


def weighted(output, target):
    """A loss whose targets cannot be derived."""
    return F.cross_entropy(output, target)


@pytest.mark.parametrize("batch", [(X, Z, Y), ((X, Z), Y), [[X, Z], Y], ({"x": X, "z": Z}, Y)])
def test_the_last_of_a_batch_is_the_target(batch, tmp_path):
    model = TwoInputs()
    exported = export(model, batch, weighted, tmp_path)
    assert names(exported) == ["x", "z", "target"]
    loss, _ = run(exported, 5, x=X[:5], z=Z[:5], target=Y[:5])
    torch.testing.assert_close(loss, F.cross_entropy(model(X[:5], Z[:5]), Y[:5]))


def test_a_tuple_that_forward_takes_is_its_arguments(tmp_path):
    exported = export(Optional(), (X, torch.ones(6)), nn.CrossEntropyLoss(), tmp_path)
    assert names(exported) == ["x", "offset", "target"]


def test_a_dictionary_may_hold_the_target(tmp_path):
    exported = export(TwoInputs(), {"label": Y, "x": X, "z": Z}, weighted, tmp_path)
    assert names(exported) == ["x", "z", "target"]
    with pytest.raises(stagewright.ExportError, match="TwoInputs.forward.* takes no 'id' and no 'label'.*targets="):
        export(TwoInputs(), {"label": Y, "x": X, "z": Z, "id": Y}, weighted, tmp_path)


@pytest.mark.parametrize("shuffle", [False, True])
def test_a_loader_gives_its_first_batch(shuffle, tmp_path):
    loader = DataLoader(TensorDataset(X, Z, Y), batch_size=4, shuffle=shuffle)
    model, before = TwoInputs(), torch.get_rng_state()
    exported = export(model, loader, weighted, tmp_path)
    assert names(exported) == ["x", "z", "target"]
    assert torch.equal(torch.get_rng_state(), before), "export drew random numbers"


def test_a_data_set_gives_its_first_samples(tmp_path):
    exported = export(TwoInputs(), TensorDataset(X, Z, Y), weighted, tmp_path)
    assert names(exported) == ["x", "z", "target"]


def test_a_loader_that_can_be_read_in_two_ways_is_refused(tmp_path):
    loader = DataLoader(TensorDataset(X, torch.ones(6)), batch_size=4)
    with pytest.raises(stagewright.ExportError, match="the last tensor of the batch may be the target or 'offset'"):
        export(Optional(), loader, nn.MSELoss(), tmp_path)
    exported = export(Optional(), loader, nn.CrossEntropyLoss(), tmp_path, targets=Y[:4])
    assert names(exported) == ["x", "offset", "target"]


def test_an_empty_loader_is_refused(tmp_path):
    with pytest.raises(stagewright.ExportError, match="DataLoader yields no batch"):
        export(TwoInputs(), DataLoader(TensorDataset(X[:0]), batch_size=4), weighted, tmp_path)


@dataclasses.dataclass
class Output:
    hidden: torch.Tensor
    logits: torch.Tensor
    loss: torch.Tensor | None = None


class OwnLoss(nn.Module):
    """Returns its loss in one of the usual forms."""

    def __init__(self, form):
        super().__init__()
        self.body, self.head, self.form = nn.Linear(4, 5), nn.Linear(5, 3), form

    def forward(self, x, labels):
        hidden = self.body(x)
        logits = self.head(hidden)
        return self.form(hidden, logits, F.cross_entropy(logits, labels))


@pytest.mark.parametrize(
    "form",
    [
        lambda hidden, logits, loss: loss,
        lambda hidden, logits, loss: {"loss": loss, "hidden": hidden, "logits": logits},
        lambda hidden, logits, loss: Output(hidden, logits, loss),
        lambda hidden, logits, loss: (loss, logits),
        lambda hidden, logits, loss: (logits, loss),
    ],
    ids=["scalar", "dict", "dataclass", "loss first", "loss last"],
)
def test_a_model_may_return_its_loss(form, tmp_path):
    model = OwnLoss(form)
    exported = export(model, {"x": X, "labels": Y}, None, tmp_path, reduction="mean")
    assert names(exported) == ["x", "labels"]
    loss, prediction = run(exported, 5, x=X[:5], labels=Y[:5])
    logits = model.head(model.body(X[:5]))
    torch.testing.assert_close(loss, F.cross_entropy(logits, Y[:5]))
    if isinstance(form(X, X, X.sum()), torch.Tensor):
        assert prediction is None
    else:
        torch.testing.assert_close(prediction, logits)


@pytest.mark.parametrize(
    "form, message",
    [
        (lambda hidden, logits, loss: logits, r"returns a tensor of shape \(.*, 3\) and no loss.*pass loss="),
        (lambda hidden, logits, loss: Output(hidden, logits), "Output whose loss is None.*labels"),
        (lambda hidden, logits, loss: (loss, loss, logits), "returns 2 scalars.*pass loss="),
        (lambda hidden, logits, loss: {"a": loss, "b": loss}, "returns a dict and no loss.*pass loss="),
    ],
)
def test_a_model_without_a_loss_needs_one(form, message, tmp_path):
    with pytest.raises(stagewright.ExportError, match=message):
        export(OwnLoss(form), {"x": X, "labels": Y}, None, tmp_path)


class Regularised(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(3.0))

    def forward(self, output):
        return (output * self.weight).square().mean()


@pytest.mark.parametrize("loss", [lambda output: output.square().mean(), Regularised()])
def test_a_loss_of_the_output_alone_has_no_target(loss, tmp_path):
    model = nn.Linear(4, 3)
    exported = export(model, X, loss, tmp_path, reduction="mean")
    assert names(exported) == ["input"]
    if isinstance(loss, nn.Module):
        assert [p.name for p in exported.graph.parameters] == ["weight", "bias", "loss.weight"]
    value, _ = run(exported, 5, input=X[:5])
    torch.testing.assert_close(value, loss(model(X[:5])))


def test_a_loss_of_three_arguments_is_refused(tmp_path):
    with pytest.raises(stagewright.ExportError, match=r"called as loss\(output, target\) or loss\(output\)"):
        export(nn.Linear(4, 3), X, lambda a, b, c: a.mean(), tmp_path)
    with pytest.raises(stagewright.ExportError, match="the loss takes the output alone, so targets="):
        export(nn.Linear(4, 3), X, lambda a: a.mean(), tmp_path, targets=Y)


def test_a_dataclass_output_has_a_prediction(tmp_path):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 3)

        def forward(self, x):
            return Output(x, self.body(x))

    model = Model()
    loss = lambda output, target: F.cross_entropy(output.logits, target)  # noqa: E731
    exported = export(model, X, loss, tmp_path, targets=Y, reduction="mean")
    value, prediction = run(exported, 5, x=X[:5], target=Y[:5])
    torch.testing.assert_close(prediction, model.body(X[:5]))
    torch.testing.assert_close(value, F.cross_entropy(model.body(X[:5]), Y[:5]))


# Data files.


class Records(Dataset):
    def __init__(self, key):
        self.key = key

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return {"x": X[index], "z": Z[index], self.key: int(Y[index]), "id": f"sample {index}"}


@pytest.mark.parametrize("batch_size", [2, 4])
def test_data_files_are_written_from_what_export_read(batch_size, tmp_path):
    loader = DataLoader(TensorDataset(X, Z, Y), batch_size=batch_size)
    exported = export(TwoInputs(), loader, weighted, tmp_path)
    for data in (loader, loader.dataset):
        stagewright.save_dataset(tmp_path / "data.safetensors", data, graph=exported)
        stored = load_file(tmp_path / "data.safetensors")
        assert stored.keys() == {"x", "z", "target"}
        assert all(torch.equal(stored[name], tensor) for name, tensor in {"x": X, "z": Z, "target": Y}.items())


def test_data_files_of_dictionaries(tmp_path):
    batch = next(iter(DataLoader(Records("label"), batch_size=4)))
    del batch["id"]
    exported = export(TwoInputs(), batch, weighted, tmp_path)
    path = tmp_path / "data.safetensors"
    for graph, key, options in ((exported, "label", {}), (exported.path, "species", {"target": "species"})):
        stagewright.save_dataset(path, Records(key), graph=graph, **options)
        assert torch.equal(load_file(path)["target"], Y) and load_file(path).keys() == {"x", "z", "target"}
    with pytest.raises(stagewright.DatasetError, match="no tensor for the graph's input 'target'; .*'z', 'species'"):
        stagewright.save_dataset(path, Records("species"), graph=exported.path)


def test_data_files_follow_a_graph_file_by_position(tmp_path):
    exported = export(TwoInputs(), (X, Z), weighted, tmp_path, targets=Y)
    path = tmp_path / "data.safetensors"
    stagewright.save_dataset(path, TensorDataset(X, Z, Y), graph=exported.path)
    assert torch.equal(load_file(path)["target"], Y)
    with pytest.raises(stagewright.DatasetError, match="batches of 2 tensors, but the graph has 3 inputs"):
        stagewright.save_dataset(path, TensorDataset(X, Z), graph=exported.path)
    with pytest.raises(stagewright.DatasetError, match="pass graph="):
        stagewright.save_dataset(path, TensorDataset(X, Z, Y))


def test_batches_of_several_lengths_are_refused(tmp_path):
    exported = export(nn.Linear(4, 3), (X, Y), weighted, tmp_path)
    batches = [(X, Y), (torch.randn(6, 5), Y)]
    with pytest.raises(stagewright.DatasetError, match=r"batch 1: 'input' has shape \(6, 5\), batch 0 has \(6, 4\)"):
        stagewright.save_dataset(tmp_path / "data.safetensors", DataLoader(batches, batch_size=None), graph=exported)


@dataclasses.dataclass
class Points:
    near: torch.Tensor
    far: torch.Tensor


class Measured(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, points):
        return self.body(points.near - 2 * points.far)


def test_a_dataclass_is_looked_into_once_it_is_registered(tmp_path):
    points = Points(X, X.flip(0))
    with pytest.raises(stagewright.ExportError, match=r"'points' is a Points, .* torch.export.register_dataclass\(Points\)"):
        export(Measured(), {"points": points}, weighted, tmp_path, targets=Y)
    torch.export.register_dataclass(Points)
    model = Measured()
    exported = export(model, {"points": points}, weighted, tmp_path, targets=Y)
    assert names(exported) == ["points.near", "points.far", "target"]
    loss, _ = run(exported, 6, **{"points.near": points.near, "points.far": points.far, "target": Y})
    torch.testing.assert_close(loss, weighted(model(points), Y))
