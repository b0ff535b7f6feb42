"""The loss of a mini-batch is that of its micro-batches, whatever the user's loss divides by."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from stagewright.proto import pb

from graph_interpreter import Interpreter

WORDS = 11


class Language(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(WORDS, 8), nn.Linear(8, WORDS)

    def forward(self, ids):
        return self.head(self.embed(ids))


class WithOwnLoss(Language):
    def forward(self, ids, labels):
        logits = super().forward(ids)
        return {"loss": padded(logits, labels), "logits": logits}


def padded(logits, labels):
    return F.cross_entropy(logits[:, :-1].reshape(-1, WORDS), labels[:, 1:].reshape(-1), ignore_index=-100)


def masked(logits, labels):
    mask = (labels != -100).to(logits.dtype)
    return (logits.square().mean(-1) * mask).sum() / mask.sum().clamp(min=1)


WEIGHTS = torch.rand(WORDS) + 0.1
LOSSES = {
    "padded": padded,
    "class weights": lambda o, t: F.cross_entropy(o.transpose(1, 2), t, weight=WEIGHTS.to(o.dtype)),
    "label smoothing": lambda o, t: F.cross_entropy(o.transpose(1, 2), t, label_smoothing=0.2),
    "both": lambda o, t: F.cross_entropy(o.transpose(1, 2), t, weight=WEIGHTS.to(o.dtype), label_smoothing=0.2),
    "nll": lambda o, t: F.nll_loss(o.log_softmax(-1).transpose(1, 2), t),
    "masked mean": masked,
    "mean over mean of the mask": lambda o, t: (o.mean(-1) * (t > 3)).mean() / (t > 3).to(o.dtype).mean(),
    "several": lambda o, t: padded(o, t) + 0.3 * masked(o, t) - 0.1 * o.square().mean(),
    "a mean and a sum": lambda o, t: o.square().mean() + 0.01 * o.abs().sum(),
    "a mean of two": lambda o, t: torch.stack([padded(o, t), o.square().mean()]).mean(),
    "sum": lambda o, t: F.cross_entropy(o.transpose(1, 2), t, reduction="sum"),
    "of the output alone": lambda o, t: o.square().mean(),
}


def batch(samples):
    """Labels of which each sample ignores another number; the second sample ignores all."""
    labels = torch.randint(0, WORDS, (samples, 6))
    for sample in range(samples):
        labels[sample, 6 - sample % 4 :] = -100
    if samples > 1:
        labels[1] = -100
    return torch.randint(0, WORDS, (samples, 6)), labels


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-6), (torch.float64, 1e-14)])
@pytest.mark.parametrize("case", LOSSES)
def test_micro_batches_make_the_users_loss(case, dtype, tolerance, tmp_path):
    model, loss = Language().to(dtype), LOSSES[case]
    ids, labels = batch(4)
    exported = stagewright.export(model, ids, loss=loss, targets=labels, path=tmp_path / "m.swg")
    ids, labels = batch(8)
    expected = loss(model(ids), labels)
    names, parameters = zip(*model.named_parameters())
    gradients = dict(zip(names, torch.autograd.grad(expected, parameters)))
    for sizes in ([8], [4, 4], [1] * 8, [5, 2, 1]):
        found, of_parameters = Interpreter.load(exported).run_in_parts({"ids": ids, "target": labels}, sizes)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance)
        for name, gradient in gradients.items():
            torch.testing.assert_close(of_parameters[name], gradient, rtol=10 * tolerance, atol=10 * tolerance)


def test_a_model_that_returns_its_loss(tmp_path):
    model, (ids, labels) = WithOwnLoss(), batch(4)
    exported = stagewright.export(
        model, (ids, labels), loss=lambda output, _: output["loss"], targets=labels, path=tmp_path / "m.swg"
    )
    ids, labels = batch(8)
    found, _ = Interpreter.load(exported).run_in_parts({"ids": ids, "labels": labels, "target": labels}, [2, 6])
    torch.testing.assert_close(found, model(ids, labels)["loss"], rtol=1e-6, atol=1e-6)


def test_bfloat16(tmp_path):
    model, (ids, labels) = Language().to(torch.bfloat16), batch(4)
    exported = stagewright.export(model, ids, loss=padded, targets=labels, path=tmp_path / "m.swg")
    ids, labels = batch(8)
    found, _ = Interpreter.load(exported).run_in_parts({"ids": ids, "target": labels}, [2, 6])
    assert exported.graph.totals.nodes[-1].outputs[0].dtype == pb.DTYPE_FLOAT32, "counts are exact"
    torch.testing.assert_close(found, padded(model(ids), labels), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize(
    "loss",
    [
        lambda o, t: padded(o, t).sqrt(),
        lambda o, t: (o - o.mean(0)).square().mean(),
        lambda o, t: o.amax(),
        lambda o, t: F.cross_entropy(o.mean(1) @ o.mean(1).T, torch.arange(o.shape[0])),
        lambda o, t: (o.mean((1, 2)) * torch.arange(o.shape[0])).mean(),
        lambda o, t: o.mean((1, 2)).std(),
        lambda o, t: F.cross_entropy(o.transpose(1, 2), t, weight=1 / (1 + F.one_hot(t.clamp(min=0), WORDS).sum((0, 1)))),
        lambda o, t: o.square().mean() + 1e-4 * o.mean((0, 1)).square().sum(),
    ],
)
def test_losses_that_couple_samples_are_refused(loss, tmp_path):
    """Unless the whole mini-batch runs at once; then what couples is marked."""
    model, (ids, labels) = Language(), batch(4)
    with pytest.raises(stagewright.ExportError, match="depends on the other samples.*whole_batch=True"):
        stagewright.export(model, ids, loss=loss, targets=labels, path=tmp_path / "m.swg")
    assert not list(tmp_path.iterdir())
    exported = stagewright.export(model, ids, loss=loss, targets=labels, whole_batch=True, path=tmp_path / "m.swg")
    assert any(node.batch_dependent for node in exported.graph.nodes)
    ids, labels = batch(8)
    found, _ = Interpreter.load(exported).run({"ids": ids, "target": labels}, 8)
    torch.testing.assert_close(found, loss(model(ids), labels))


class Centred(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.body, self.dim = nn.Linear(4, 4), dim

    def forward(self, x):
        y = self.body(x)
        return y - y.mean(dim=self.dim, keepdim=True)


def test_models_that_couple_samples_are_refused_with_their_line(tmp_path):
    arguments = {"loss": nn.MSELoss(), "path": tmp_path / "model.swg"}
    stagewright.export(Centred(dim=1), torch.zeros(2, 4), **arguments)
    with pytest.raises(stagewright.ExportError, match=r"by 'mean' \(.*test_loss_terms.py:\d+: return y - y.mean"):
        stagewright.export(Centred(dim=0), torch.zeros(2, 4), **arguments)


def test_a_reduction_that_is_not_the_losss_is_refused(tmp_path):
    arguments = {"example_inputs": torch.randn(4, 4), "path": tmp_path / "m.swg"}
    exported = stagewright.export(nn.Linear(4, 4), loss=nn.MSELoss(), reduction="mean", **arguments)
    assert exported.graph.loss_reduction == pb.LOSS_REDUCTION_MEAN
    with pytest.raises(stagewright.ExportError, match='is a mean over samples, not what reduction="sum" says'):
        stagewright.export(nn.Linear(4, 4), loss=nn.MSELoss(), reduction="sum", **arguments)


def test_a_batch_that_is_bounded(tmp_path):
    class Bounded(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Linear(4, 4)

        def forward(self, x):
            return self.body(x).contiguous() if x.shape[0] >= 32 else self.body(x)

    exported = stagewright.export(Bounded(), torch.randn(4, 4), loss=nn.MSELoss(), path=tmp_path / "m.swg")
    assert exported.graph.samples.most == 31 and exported.graph.samples.least in (0, 1, 2)
