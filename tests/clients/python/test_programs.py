"""Programs that torch.export wrote are taken as they are."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import nn
from torch.export import Dim

import stagewright
from graph_interpreter import Interpreter


class Model(nn.Module):
    """Ties two of its layers, takes a keyword argument and names its results."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())
        self.again, self.head = self.body, nn.Linear(4, 3)
        self.register_buffer("offset", torch.ones(4))

    def forward(self, x, *, scale):
        return {"logits": self.head(self.again(self.body(x)) * scale + self.offset)}


def loss_of(output, target):
    return F.cross_entropy(output["logits"], target)


def program(model, batch=Dim("samples")):
    shape = {0: batch} if batch is not None else None
    example = ((torch.randn(4, 4),), {"scale": torch.randn(4, 1)})
    return torch.export.export(model, *example, dynamic_shapes={"x": shape, "scale": shape})


@pytest.mark.parametrize("from_file", [False, True])
def test_a_program_trains_as_its_module(from_file, tmp_path):
    model = Model()
    source = program(model)
    if from_file:
        torch.export.save(source, tmp_path / "program.pt2")
        source = tmp_path / "program.pt2"
    target = torch.tensor([0, 1, 2, 0])
    exported = stagewright.export(source, loss=loss_of, targets=target, reduction="mean", path=tmp_path / "model.swg")
    assert [entry.name for entry in exported.graph.inputs] == ["x", "scale", "target"]
    tied = {p.name: list(p.aliases) for p in exported.graph.parameters}
    assert tied["body.0.weight"] == ["again.0.weight"] and tied["head.weight"] == []
    assert {node.module for node in exported.graph.nodes} == {
        "body.0", "body.1", "again.0", "again.1", "", "head", "loss",
    }  # fmt: skip
    stored = load_file(exported.weights_path)
    assert all(torch.equal(stored[p.name], model.state_dict()[p.name]) for p in exported.graph.parameters)

    x, scale, target = torch.randn(7, 4), torch.randn(7, 1), torch.arange(7) % 3
    interpreter = Interpreter.load(exported)
    loss, _ = interpreter.run({"x": x, "scale": scale, "target": target}, 7)
    expected = loss_of(model(x, scale=scale), target)
    torch.testing.assert_close(loss, expected)
    expected.backward()
    for name, gradient in interpreter.gradients(loss).items():
        torch.testing.assert_close(gradient, model.get_parameter(name).grad)


def test_other_example_inputs(tmp_path):
    exported = stagewright.export(
        program(Model()), {"x": torch.randn(3, 4), "scale": torch.ones(3, 1)}, loss=loss_of,
        targets=torch.zeros(3, dtype=torch.int64), reduction="mean", name="mine", path=tmp_path / "model.swg",
    )  # fmt: skip
    assert exported.graph.name == "mine"


def test_a_fixed_batch_is_refused(tmp_path):
    with pytest.raises(stagewright.ExportError, match=r"input 'x' of the program has 4 samples.*dynamic_shapes"):
        stagewright.export(program(Model(), batch=None), loss=loss_of, path=tmp_path / "model.swg")


def test_a_file_that_is_no_program_is_refused(tmp_path):
    (tmp_path / "program.pt2").write_bytes(b"PK nothing")
    for name, message in (("program.pt2", "program.pt2: not a program of torch.export"), ("no.pt2", "no.pt2: No such")):
        with pytest.raises(stagewright.ExportError, match=message):
            stagewright.export(tmp_path / name, loss=loss_of, path=tmp_path / "model.swg")


def test_a_program_of_evaluation_mode_is_warned_about(tmp_path):
    model = nn.Sequential(nn.Linear(4, 3), nn.Dropout(0.5)).eval()
    frozen = torch.export.export(model, (torch.randn(4, 4),), dynamic_shapes=({0: Dim("samples")},))
    with pytest.warns(UserWarning, match="evaluation mode.*model.train\\(\\)"):
        stagewright.export(frozen, loss=nn.MSELoss(), path=tmp_path / "model.swg")
