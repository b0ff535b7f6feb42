"""Where the samples of a value lie is found out, never guessed; rules and trials agree."""

import functools

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from stagewright.tracing.capture import capture
from stagewright.lowering import wrapper_state
from stagewright.samples.sample_kinds import Kind, Layout, batch_total
from stagewright.samples.sample_rules import kinds_by_rules
from stagewright.samples.trial import find_kinds

import ctc_model
from rotary import Rotary


class Step(nn.Module):
    """A linear layer, a rearrangement, another linear layer, and back to one row per sample."""

    def __init__(self, there, back, width=8):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(width, 4)
        self.there, self.back = there, back

    def forward(self, x):
        return self.back(self.second(self.there(F.relu(self.first(x)))))


def layouts(model, inputs, **options):
    """(dim, outer) of the second linear layer's result in the exported graph; None if mixed."""
    path = layouts.folder / "model.swg"
    graph = stagewright.export(model, inputs, loss=nn.MSELoss(), path=path, **options).graph
    meta = [node for node in graph.nodes if node.target == "aten.linear.default"][-1].outputs[0]
    if meta.mixed:
        return None
    return (meta.layout.dim, meta.layout.outer) if meta.HasField("layout") else (0, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path):
    layouts.folder = tmp_path


CASES = {
    "as it is": (lambda h: h, lambda y: y, (0, 1)),
    "sample-major rows": (lambda h: h.reshape(-1, 8), lambda y: y.view(-1, 3, 4), (0, 1)),
    "time-major rows": (lambda h: h.transpose(0, 1).reshape(-1, 8), lambda y: y.view(3, -1, 4).transpose(0, 1), (0, 3)),
    "time first": (lambda h: h.transpose(0, 1), lambda y: y.transpose(0, 1), (1, 1)),
    "two batches": (lambda h: torch.cat([h, -h]), lambda y: y[: y.shape[0] // 2] + y[y.shape[0] // 2 :], (0, 2)),
    "beams": (lambda h: h.repeat_interleave(2, 0), lambda y: y.unflatten(0, (-1, 2)).sum(1), (0, 1)),
    "beams, outermost": (lambda h: h.repeat(2, 1, 1), lambda y: y.unflatten(0, (2, -1)).sum(0), (0, 2)),
}


@pytest.mark.parametrize("case", CASES)
def test_layouts(case):
    there, back, expected = CASES[case]
    assert layouts(Step(there, back), torch.randn(4, 3, 8)) == expected


def test_zeros_do_not_hide_where_samples_lie():
    """A layer that starts as zeros makes all samples equal; the trial must see them apart."""
    there, back, expected = CASES["time-major rows"]
    model = Step(there, back)
    nn.init.zeros_(model.second.weight)
    nn.init.zeros_(model.second.bias)
    nn.init.zeros_(model.first.weight)
    assert layouts(model, torch.zeros(4, 3, 8)) == expected


@pytest.mark.parametrize("hide", [lambda h: h * float("nan"), lambda h: h * 0.0])
def test_values_that_tell_nothing_leave_it_to_the_rules(hide):
    there, back, expected = CASES["time-major rows"]
    assert layouts(Step(lambda h: there(hide(h)), back), torch.randn(4, 3, 8)) == expected
    gather = Step(lambda h: hide(h).reshape(-1, 8)[hide(h).reshape(-1, 8)[:, 0].argsort()], CASES["sample-major rows"][1])
    assert layouts(gather, torch.randn(4, 3, 8), whole_batch=True) is None


def test_batch_first_attention_has_time_major_rows(tmp_path):
    model = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
    graph = stagewright.export(model, torch.randn(2, 5, 8), loss=nn.MSELoss(), path=tmp_path / "m.swg").graph
    flattened = [n for n in graph.nodes if n.outputs[0].HasField("layout") and n.outputs[0].layout.outer == 5]
    assert {node.target for node in flattened} >= {"aten.reshape.default", "aten.linear.default"}
    assert not any(output.mixed for node in graph.nodes for output in node.outputs)


def test_samples_in_the_second_dimension(tmp_path):
    """Sequence-first models have a place for each sample, too, so that they can be cut."""
    model = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    exported = stagewright.export(
        model, torch.randn(5, 4, 8), loss=nn.MSELoss(), batch_dim=1, path=tmp_path / "m.swg"
    )
    metas = [node.outputs[0] for node in exported.graph.nodes if node.target == "aten.linear.default"]
    assert [(meta.layout.dim, meta.layout.outer) for meta in metas] == [(1, 1), (1, 1)]


class Sorted(nn.Module):
    """Rows are put in an order that depends on the data, and back."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 4)

    def forward(self, x):
        h = self.first(x).reshape(-1, 8)
        order = h[:, 0].argsort()
        return self.second(h[order])[order.argsort()].view(-1, 3, 4)


def test_rows_in_the_order_of_data_are_mixed(tmp_path):
    graph = stagewright.export(Sorted(), torch.randn(4, 3, 8), loss=nn.MSELoss(), path=tmp_path / "m.swg").graph
    mixed = [node.outputs[0].mixed for node in graph.nodes if node.target == "aten.linear.default"]
    assert mixed == [False, True]


class Recurrent(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.lstm, self.head, self.batch_first = nn.LSTM(8, 6, batch_first=batch_first), nn.Linear(6, 3), batch_first

    def forward(self, x):
        return self.head(self.lstm(x if self.batch_first else x.transpose(0, 1))[0].sum(0 if not self.batch_first else 1))


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4)
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        h = F.max_pool2d(F.gelu(self.norm(self.b(F.relu(self.a(x))))), 2)
        return self.head(F.adaptive_avg_pool2d(h, 1).flatten(1))


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.tower, self.head = nn.Linear(8, 8), nn.Linear(16, 3)

    def forward(self, x, y):
        a, b = self.tower(torch.cat([x, y])).split([x.shape[0], y.shape[0]])
        return self.head(torch.cat([a, b, ], dim=1)) * torch.einsum("bi,bi->b", a, b).unsqueeze(1)


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.place = nn.Embedding(20, 8), nn.Embedding(6, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, dropout=0.0)
        self.head = nn.Linear(8, 20)

    def forward(self, ids):
        h = self.embed(ids) + self.place(torch.arange(ids.shape[1]))
        mask = torch.triu(torch.full((ids.shape[1], ids.shape[1]), float("-inf")), diagonal=1)
        return self.head(self.layer(h, src_mask=mask))


class Packed(nn.Module):
    """Documents packed into one row see themselves alone: each sample's row is read by its number."""

    def __init__(self, of=lambda rows: rows):
        super().__init__()
        self.embed, self.head, self.of = nn.Embedding(20, 8), nn.Linear(8, 20), of

    def forward(self, ids):
        samples, length = ids.shape
        document = (ids == 0).cumsum(-1)
        rows = self.of(torch.arange(samples))[:, None, None]
        places = torch.arange(length)
        same = document[rows, places[:, None]] == document[rows, places[None, :]]
        visible = same & (places[:, None] >= places[None, :])
        h = self.embed(ids)
        scores = (h @ h.transpose(1, 2)).masked_fill(~visible, float("-inf"))
        return self.head(scores.softmax(-1) @ h)


class Neighbours(nn.Module):
    """Each sample reads what is computed of another."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(8, 4)

    def forward(self, x, neighbour):
        return F.embedding(neighbour, self.body(x)).tanh().exp()


def shifted(output, target):
    return F.cross_entropy(output[:, :-1].reshape(-1, output.shape[-1]), target[:, 1:].reshape(-1))


IDS = torch.zeros(2, 6, dtype=torch.int64)
MODELS = {
    **{case: (Step(there, back), (torch.randn(4, 3, 8),), nn.MSELoss(), None) for case, (there, back, _) in CASES.items()},
    "lstm": (Recurrent(True), (torch.randn(4, 3, 8),), nn.MSELoss(), None),
    "lstm, time first": (Recurrent(False), (torch.randn(4, 3, 8),), nn.MSELoss(), None),
    "sorted": (Sorted(), (torch.randn(4, 3, 8),), nn.MSELoss(), None),
    "convolutions": (Convolutions(), (torch.randn(2, 3, 8, 8),), nn.CrossEntropyLoss(), None),
    "batch normalisation": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Flatten(), nn.Linear(144, 3)),
        (torch.randn(2, 3, 8, 8),), nn.CrossEntropyLoss(), None,
    ),
    "towers": (Towers(), (torch.randn(4, 8), torch.randn(4, 8)), nn.CrossEntropyLoss(), None),
    "tokens": (Tokens(), (IDS,), shifted, IDS),
    "packed documents": (Packed(), (IDS,), shifted, IDS),
    "documents of others": (Packed(lambda rows: rows.flip(0)), (IDS,), shifted, IDS),
    "encoder": (
        nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), 2),
        (torch.randn(2, 5, 8),), nn.MSELoss(), None,
    ),
    "rotary": (Rotary(), (torch.randn(4, 6, 32),), nn.CrossEntropyLoss(), None),
    **{
        f"ctc, {name}": (
            ctc_model.Recogniser(), (torch.randn(4, 12, 3),), ctc_model.LOSSES[name], ctc_model.batch(4)[1],
        )
        for name in ("mean", "none")
    },
    "rolled over its end": (Step(lambda h: h.roll(1), lambda y: y), (torch.randn(4, 3, 8),), nn.MSELoss(), None),
    "rows of others": (Neighbours(), (torch.randn(4, 8), torch.zeros(4, dtype=torch.int64)), nn.MSELoss(), None),
    "whole batch": (Step(lambda h: h - h.mean(0), lambda y: y), (torch.randn(4, 3, 8),), nn.MSELoss(), None),
    "weights and data": (
        nn.Linear(4, 3), (torch.randn(4, 4),), lambda o, t: ((o - t).square() * t).sum() / t.sum(), torch.rand(4, 3),
    ),
}  # fmt: skip


@functools.cache
def found_of(case):
    """The captured model, and what rules and trials find of its values."""
    model, inputs, loss, target = MODELS[case]
    captured = capture(model, inputs, {}, loss, target, 0)
    return captured, kinds_by_rules(captured), find_kinds(captured, wrapper_state(model, loss))[0]


@pytest.mark.parametrize("case", MODELS)
def test_rules_say_nothing_that_a_trial_contradicts(case):
    captured, ruled, tried = found_of(case)
    assert not any(node.target is batch_total for node in captured.program.graph.nodes)
    compared = 0
    for node, found in ruled.items():
        pairs = zip(found, tried[node]) if isinstance(found, list) else [(found, tried[node])]
        for rule, trial in pairs:
            if rule not in (None, Kind.MIXED) and not (isinstance(rule, Layout) and _both_right(node, rule, trial)):
                assert rule == trial, f"{node} ({node.target})"
                compared += 1
    assert compared > 5


def _both_right(node, rule, trial):
    """A value of equal rows lies in many ways: a trial takes the first."""
    return isinstance(trial, Layout) and rule.dim == trial.dim and node.target is torch.ops.aten.expand.default


def test_rules_know_what_usual_models_do():
    """On meta devices there is nothing but rules: they must not call everything mixed."""
    cases = ("convolutions", "batch normalisation", "tokens", "encoder", "lstm", "time-major rows", "towers", "rotary", "packed documents")
    for case in (*cases, "ctc, none"):
        _, ruled, tried = found_of(case)
        lost = [
            node
            for node, found in tried.items()
            if isinstance(found, Layout) and ruled[node] is Kind.MIXED and node.op == "call_function"
        ]
        assert not lost, f"{case}: {[(str(node), str(node.target)) for node in lost]}"


def test_rows_read_by_their_number_are_their_samples_own():
    """Also where nothing can be tried; by any other number they are not."""
    model, inputs, loss, target = MODELS["packed documents"]
    for of, own in [(lambda rows: rows, True), (lambda rows: rows.flip(0), False), (lambda rows: rows * 0, False)]:
        captured = capture(Packed(of), inputs, {}, loss, target, 0)
        ruled = kinds_by_rules(captured)
        read = [ruled[node] for node in captured.program.graph.nodes if node.target is torch.ops.aten.index.Tensor]
        assert [isinstance(kind, Layout) for kind in read] == [own, own]
