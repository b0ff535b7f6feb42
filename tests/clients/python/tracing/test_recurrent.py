"""Recurrent networks of several layers become one operator a layer, with dropout between."""

import pytest
import torch
from torch import nn

import stagewright
from faithful import export_and_compare
from graph_interpreter import Interpreter

TRIALS = 600  # Of dropout's masks.
KINDS = {"lstm": nn.LSTM, "gru": nn.GRU, "rnn_tanh": nn.RNN, "rnn_relu": nn.RNN}


class Model(nn.Module):
    """Reads the last state and the whole output of a recurrent network."""

    def __init__(self, kind, initial=False, **options):
        super().__init__()
        options.setdefault("batch_first", True)
        if kind.startswith("rnn"):
            options["nonlinearity"] = kind.removeprefix("rnn_")
        self.net = KINDS[kind](4, 6, **options)
        width = (options.get("proj_size") or 6) * (2 if options.get("bidirectional") else 1)
        self.head, self.time = nn.Linear(width, 3), 1 if options["batch_first"] else 0
        self.start = nn.Parameter(torch.randn(options.get("num_layers", 1), 1, 6)) if initial else None

    def forward(self, x):
        if self.time == 0:
            x = x.transpose(0, 1)
        start = None
        if self.start is not None:
            start = self.start.expand(-1, x.shape[1 - self.time], -1)
            start = (start, start * 2) if isinstance(self.net, nn.LSTM) else start
        output, state = self.net(x, start)
        states = state if isinstance(state, tuple) else (state,)
        return self.head(output.mean(self.time)) + sum(s.mean(dim=(0, 2))[:, None] for s in states)


def batch(samples):
    return {"x": torch.randn(samples, 5, 4)}, torch.randn(samples, 3)


def targets_of(exported):
    return [node.target for node in exported.graph.nodes]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "options",
    [
        {"num_layers": 3},
        {"num_layers": 2, "bidirectional": True, "bias": False},
        {"num_layers": 2, "batch_first": False},
        {"num_layers": 2, "initial": True},
        {"num_layers": 1},
    ],
    ids=["three", "bidirectional", "time first", "initial state", "one"],
)
def test_layers_are_operators(kind, options, tmp_path):
    exported = export_and_compare(
        Model(kind, **options), batch, nn.MSELoss(), tmp_path, batch_sizes=(1, 3), reduction="mean"
    )
    assert targets_of(exported).count(f"aten.{kind}.input") == options["num_layers"]


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projections(bidirectional, tmp_path):
    model = Model("lstm", num_layers=2, proj_size=3, bidirectional=bidirectional)
    exported = export_and_compare(model, batch, nn.MSELoss(), tmp_path, batch_sizes=(1, 3), reduction="mean")
    assert targets_of(exported).count("aten.lstm.input") == 2


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_dropout_between_layers(kind, batch_first, tmp_path):
    model = Model(kind, num_layers=3, dropout=0.4, batch_first=batch_first)
    x, target = torch.randn(4, 5, 4), torch.randn(4, 3)
    exported = stagewright.export(
        model, x, loss=nn.MSELoss(), targets=target, reduction="mean", path=tmp_path / "model.swg"
    )
    dropouts = [node for node in exported.graph.nodes if node.target == "aten.dropout.default"]
    assert [(node.args[1].real, node.args[2].boolean) for node in dropouts] == [(0.4, True)] * 2
    assert all([s.scale for s in node.outputs[0].shape] == [1, 0, 0] for node in dropouts), "samples do not come first"

    many, again = x.repeat(TRIALS, 1, 1), target.repeat(TRIALS, 1)  # Each sample has masks of its own.
    with torch.no_grad():
        ours = Interpreter.load(exported).run({"x": many, "target": again}, len(many))[1].unflatten(0, (TRIALS, 4))
        eager = model(many).unflatten(0, (TRIALS, 4))
        still = model.eval()(x)
    error = ((ours.var(0) + eager.var(0)) / TRIALS).sqrt()
    assert ((ours.mean(0) - eager.mean(0)).abs() < 4.5 * error).all()
    assert torch.allclose(ours.std(0), eager.std(0), rtol=0.25, atol=1e-4)
    assert (ours - still).abs().max() > 10 * error.max(), "dropout dropped nothing"


def test_dropout_of_one_layer_drops_nothing(tmp_path):
    with pytest.warns(UserWarning, match="dropout option adds dropout after all but last"):
        model = Model("gru", num_layers=1, dropout=0.5)
    exported = export_and_compare(model, batch, nn.MSELoss(), tmp_path, batch_sizes=(3,), reduction="mean")
    assert "aten.dropout.default" not in targets_of(exported)
