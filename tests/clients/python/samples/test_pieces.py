"""A loss that couples samples is refused also where one point does not show it: in another piece, or by its gradients."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from graph_interpreter import Interpreter

mse, l1 = F.mse_loss, F.l1_loss

# Some of them have a kink close to where a small batch lies, others far from it on either side.
COUPLED = {
    "clamped from above": lambda o, t: mse(o, t).clamp(max=1.5),
    "clamped far above": lambda o, t: mse(o, t).clamp(max=100.0),
    "free bits": lambda o, t: mse(o, t) + o.square().mean(0).clamp(min=1e-3).sum(),
    "hinge": lambda o, t: F.relu(1 - o.mean()) + F.relu(1 + t.mean() + o.mean()),
    "hinge never reached": lambda o, t: F.relu(mse(o, t) - 50) + o.square().mean(),
    "flooding": lambda o, t: (mse(o, t) - 0.01).abs() + 0.01,
    "size of a mean": lambda o, t: (o.mean() - 5).abs(),
    "larger of two means": lambda o, t: torch.max(mse(o, t), 0.1 * l1(o, t)),
    "one of two means": lambda o, t: torch.where(mse(o, t) > 1e-3, mse(o, t), l1(o, t)),
    "samples above the mean": lambda o, t: (lambda e: (e * (e > 1e-3 * e.mean().detach())).mean())((o - t).square()),
    "not a number": lambda o, t: torch.nan_to_num(mse(o, t)),
    "an event that is certain": lambda o, t: mse(o, t) * (t < 1e3).all(),
    "every other sample": lambda o, t: mse(o * (torch.arange(o.shape[0]) % 2)[:, None], t),
    "rare errors": lambda o, t: mse(o, t) * (1 + F.relu((o - t).abs() - 50).mean()),
    "a part of rare errors": lambda o, t: mse(o, t) * torch.exp(((o - t).abs() > 50).to(o.dtype).mean()),
    "others in the place of rare errors": lambda o, t: mse(torch.where((o - t).abs() > 50, o.mean(0), o), t),
    "others beside rare errors": lambda o, t: mse(o + ((o - t).abs() > 50) * o.mean(0), t),
    "scaled to another loss": lambda o, t: mse(o, t) * (l1(o, t) / mse(o, t)).detach(),
    "a gradient alone": lambda o, t: mse(o, t) + (mse(o, t).square() - mse(o, t).square().detach()),
    "a mean straight through": lambda o, t: mse(o + (o.mean(0) - o.mean(0).detach()), t),
}
SEPARATE = {
    "clamped samples": lambda o, t: (o - t).square().mean(-1).clamp(max=0.5).mean(),
    "a detached loss beside": lambda o, t: mse(o, t) + 2 * l1(o, t).detach(),
    "a mean over some, at least one": lambda o, t: ((o - t).square().mean(-1) * (t[:, 0] > 0)).sum()
    / (t[:, 0] > 0).sum().clamp(min=1),
    "a count that is none": lambda o, t: mse(o, t) / (1 + (t > 2.5).sum()),
    "rare errors beside a mean": lambda o, t: mse(o, t) + 0.1 * F.relu((o - t).abs() - 6).sum(),
    "rare errors beside a mean over some": lambda o, t: F.cross_entropy(o, t.argmax(-1), ignore_index=0)
    + 0.1 * F.relu((o - t).abs() - 6).mean(),
    "weights of the samples by their errors": lambda o, t: ((o - t).square() * (o - t).abs().detach()).mean(),
    "the largest class taken away": lambda o, t: F.cross_entropy(o - o.amax(-1, keepdim=True).detach(), t.softmax(-1)),
}


def model():
    return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 4))


def batch(samples, scale=1.0):
    return torch.randn(samples, 6) * scale, torch.randn(samples, 4) * scale


@pytest.mark.parametrize("case", COUPLED)
def test_losses_that_couple_samples_elsewhere(case, tmp_path):
    x, target = batch(8)
    arguments = {"loss": COUPLED[case], "targets": target, "path": tmp_path / "m.swg"}
    with pytest.raises(stagewright.ExportError, match=r"depends on the other samples.*test_pieces.py.*whole_batch=True"):
        stagewright.export(model(), x, **arguments)
    exported = stagewright.export(model(), x, whole_batch=True, **arguments)
    assert any(node.batch_dependent for node in exported.graph.nodes)


@pytest.mark.parametrize("case", SEPARATE)
def test_losses_that_do_not(case, tmp_path):
    net, (x, target) = model(), batch(8)
    exported = stagewright.export(net, x, loss=SEPARATE[case], targets=target, path=tmp_path / "m.swg")
    for scale in (0.1, 1.0, 3.0):
        x, target = batch(8, scale)
        expected = SEPARATE[case](net(x), target)
        found, gradients = Interpreter.load(exported).run_in_parts({"input": x, "target": target}, [1, 3, 4])
        torch.testing.assert_close(found, expected)
        for name, gradient in zip(dict(net.named_parameters()), torch.autograd.grad(expected, list(net.parameters()))):
            torch.testing.assert_close(gradients[name], gradient)


def signs(samples):
    return torch.randint(0, 2, (samples, 4)) * 2.0 - 1


def gaps(samples):
    return torch.randn(samples, 4).masked_fill(torch.rand(samples, 4) < 0.4, math.nan)


def over_known(output, target):
    known = ~target.isnan()
    return torch.where(known, output - target, 0.0).square().sum() / known.sum()


# Losses that tell apart what real numbers are, and targets for them.
MARKED = {
    "hinge": (nn.HingeEmbeddingLoss(), signs),
    "cosine": (lambda o, t: F.cosine_embedding_loss(o, o.roll(1, -1).exp(), t[:, 0]), signs),
    "of those labelled": (lambda o, t: (o.square() * (t == 1)).sum() / (t == 1).sum(), signs),
    "of those known": (over_known, gaps),
    "of those not below all": (lambda o, t: (o + t).softmax(-1).square().mean(), lambda n: gaps(n).nan_to_num(-math.inf)),
}


@pytest.mark.parametrize("case", MARKED)
def test_real_numbers_that_are_marks_stay_marks(case, tmp_path):
    loss, make = MARKED[case]
    net, x = model(), torch.randn(8, 6)
    exported = stagewright.export(net, x, loss=loss, targets=make(8), path=tmp_path / "m.swg")
    assert not any(node.batch_dependent for node in exported.graph.nodes)
    target = make(8)
    expected = loss(net(x), target)
    found, _ = Interpreter.load(exported).run_in_parts({"input": x, "target": target}, [1, 3, 4])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("classes", range(2, 8))
def test_targets_of_few_values_do_not_hide_that_samples_are_mixed(classes, tmp_path):
    """Some of a small batch have the same target, whichever sample it is of."""
    net, x, target = nn.Linear(6, classes), torch.randn(8, 6), torch.randint(0, classes, (8,))

    def mixed(output, target):
        return 0.7 * F.cross_entropy(output, target) + 0.3 * F.cross_entropy(output, target.roll(1, 0))

    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(net, x, loss=mixed, targets=target, path=tmp_path / "m.swg")
    stagewright.export(net, x, loss=nn.CrossEntropyLoss(), targets=target, path=tmp_path / "m.swg")


def centres(output, target):
    ones = F.one_hot(target, 100).to(output.dtype)
    return (output - ((ones.T @ output) / ones.sum(0).clamp(min=1)[:, None])[target]).square().mean()


GROUPED = {
    "centres of classes": centres,
    "others of the class": lambda o, t: ((t[:, None] == t) / 1 @ o.square()).mean(),
    "classes weighted by the batch": lambda o, t: (o.square().mean(-1) / (t[:, None] == t).sum(1)).mean(),
}


@pytest.mark.parametrize("case", GROUPED)
def test_groups_of_which_a_small_batch_has_one_sample_each(case, tmp_path):
    x, target = torch.randn(8, 6), torch.arange(8) * 11
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(model(), x, loss=GROUPED[case], targets=target, path=tmp_path / "m.swg")


class Gaps(nn.Module):
    """Reads how much of a batch is missing off a mask of real numbers."""

    def __init__(self, missing):
        super().__init__()
        self.body, self.missing = nn.Linear(6, 4), missing

    def forward(self, x, mask):
        y = self.body(x).tanh()
        return y * (1 + (self.missing(mask) * y).mean())


@pytest.mark.parametrize("missing", [torch.logical_not, lambda mask: ~mask.bool(), lambda mask: 1 - mask.to(torch.bool) / 1])
def test_real_numbers_that_are_truth_values(missing, tmp_path):
    inputs = {"x": torch.randn(8, 6), "mask": (torch.rand(8, 4) < 0.5).float()}
    arguments = {"loss": nn.MSELoss(), "targets": torch.randn(8, 4), "path": tmp_path / "m.swg"}
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(Gaps(missing), inputs, **arguments)


class Later(nn.Module):
    """Adds something to a loss whose weight is 0 at first."""

    def __init__(self, weight, term, start):
        super().__init__()
        self.weight, self.term = weight, term
        self.register_buffer("step", start.clone())

    def forward(self, output, target):
        weight = self.weight(self.step)
        self.step = self.step + 1
        return F.cross_entropy(output, target, ignore_index=0) + weight * self.term(output)


WEIGHTS = {
    "annealed": (lambda step: (step / 3).clamp(max=1.0), torch.tensor(0)),
    "after a warm-up": (lambda step: step >= 2, torch.tensor(0)),
    "of a real number": (lambda step: step * 0.5, torch.tensor(0.0)),
}


@pytest.mark.parametrize("case", WEIGHTS)
def test_terms_that_weigh_nothing_at_first(case, tmp_path):
    weight, start = WEIGHTS[case]
    net, x, target = model(), torch.randn(8, 6), torch.tensor([0, 1, 2, 3, 1, 0, 0, 2])
    arguments = {"targets": target, "path": tmp_path / "m.swg"}
    loss = Later(weight, lambda output: output.square().mean(), start)
    interpreter = Interpreter.load(stagewright.export(net, x, loss=loss, **arguments))
    step = next(t for t, p in zip(interpreter.parameters, interpreter.graph.parameters) if p.name == "loss.step")
    step.fill_(2)
    loss.step.fill_(2)
    found, _ = interpreter.run_in_parts({"input": x, "target": target}, [1, 3, 4])
    torch.testing.assert_close(found, loss(net(x), target))
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(net, x, loss=Later(weight, lambda output: output.mean().square(), start), **arguments)


class Experts(nn.Module):
    """Each takes a few samples of a batch, the first ones."""

    def __init__(self):
        super().__init__()
        self.choice, self.experts, self.head = nn.Linear(6, 3), nn.Parameter(torch.randn(3, 6, 6)), nn.Linear(6, 4)

    def forward(self, x):
        chance, chosen = self.choice(x).softmax(1).max(1)
        ones = F.one_hot(chosen, 3)
        kept = (ones.cumsum(0) * ones).sum(1) <= 4
        return self.head((x[:, None] @ self.experts[chosen])[:, 0] * (chance * kept)[:, None])


def test_a_bound_on_samples_that_a_small_batch_does_not_reach(tmp_path):
    x, target = batch(8)
    with pytest.raises(stagewright.ExportError, match="depends on the other samples.*test_pieces.py"):
        stagewright.export(Experts(), x, loss=nn.MSELoss(), targets=target, path=tmp_path / "m.swg")


class GroupsOfExperts(nn.Module):
    """Each token takes the best experts of the better of two groups, nearly always of the first."""

    def __init__(self):
        super().__init__()
        self.router, self.experts = nn.Linear(8, 4), nn.Parameter(torch.randn(4, 8) * 0.3)
        self.turn = nn.Parameter(torch.randn(8, 8))
        self.register_buffer("preferred", torch.tensor([9.0, 9.0, 0.0, 0.0]))

    def forward(self, x):
        x = torch.einsum("...i,ij->...j", x, self.turn)  # Of this no rule says where the samples are.
        scores = self.router(x).sigmoid().flatten(0, 1)
        choice = scores + self.preferred
        of_groups = choice.view(-1, 2, 2).topk(2, dim=-1)[0].sum(-1)
        group = of_groups.topk(1, dim=-1, sorted=False)[1]
        open_ = torch.zeros_like(of_groups).scatter(1, group, 1).repeat_interleave(2, dim=-1)
        chosen = choice.masked_fill(open_ == 0, 0.0).topk(2, dim=-1)[1]
        weights = F.one_hot(chosen, 4).sum(1) * scores
        return (weights @ self.experts).view(x.shape).mean(1)


def test_the_order_of_each_tokens_experts_is_its_own(tmp_path):
    x, target = torch.randn(4, 6, 8), torch.randn(4, 8)
    stagewright.export(GroupsOfExperts(), x, loss=nn.MSELoss(), targets=target, path=tmp_path / "m.swg")


class Words(nn.Module):
    def __init__(self, table):
        super().__init__()
        self.table, self.head = table, nn.Linear(8, 4)

    def forward(self, ids):
        return self.head(torch.tanh(self.table(ids)))


@pytest.mark.parametrize("table, shape", [(nn.Embedding, (8,)), (nn.EmbeddingBag, (8, 3))])
@pytest.mark.parametrize("weights", [True, False])
def test_gradients_divided_by_the_words_of_a_batch(table, shape, weights, tmp_path):
    ids, target = torch.randint(0, 5, shape), torch.randint(0, 4, (8,))
    device = "cpu" if weights else "meta"

    def make(**options):
        kind = {"mode": "sum"} if table is nn.EmbeddingBag else {}
        return Words(table(5, 8, **kind, **options)).to(device)

    arguments = {"loss": nn.CrossEntropyLoss(), "targets": target, "path": tmp_path / "m.swg", "weights": weights}
    if weights:
        stagewright.export(make(), ids, **arguments)
    with pytest.raises(stagewright.ExportError, match="depends on the other samples"):
        stagewright.export(make(scale_grad_by_freq=True), ids, **arguments)
