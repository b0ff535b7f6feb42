"""Losses as people write them, each on a small network."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import SAMPLES, Task, add, entry
from .networks import classes, mlp
from .tasks import CLASSES, padding

SOURCE = "circumstance"
NOT_A_MEAN = "what it divides by, or the root it takes, depends on the parameters and on the whole mini-batch"


def _classifier(loss, targets=None) -> Task:
    return Task(mlp(8, 16, 16, CLASSES), torch.randn(SAMPLES, 8), loss, classes() if targets is None else targets)


def _tagger(loss, targets) -> Task:
    """Of six steps for each sample."""
    return Task(mlp(8, 16, 16, CLASSES), torch.randn(SAMPLES, 6, 8), loss, targets)


def _labels() -> torch.Tensor:
    """-100 behind the end of a sample; two samples have no label at all, and so has a whole micro-batch of 2."""
    labels = torch.randint(CLASSES, (SAMPLES, 6)).masked_fill(padding(6) == 0, -100)
    labels[2:4] = -100
    return labels


def uneven_weights() -> torch.Tensor:
    return torch.tensor([0.2, 1.0, 3.0, 0.5, 2.0])


class Focal(nn.Module):
    """The sum over pixels, divided by the number of those that are something."""

    def forward(self, logits, target):
        each = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
        sure = torch.exp(-each)
        return ((1 - sure) ** 2 * each).sum() / target.sum().clamp(min=1)


def _steps_loss(reduction: str, **more):
    def loss(out, target):
        return F.cross_entropy(out.flatten(0, 1), target.flatten(), reduction=reduction, **more)

    return loss


def _masked_mean(out, target):
    value, mask = target["value"], target["mask"]
    return ((out - value).square().mean(-1) * mask).sum() / mask.sum()


def _masked_by_index(out, target):
    """Only what counts is looked at: the number of rows depends on the data."""
    mask = target["mask"].bool()
    return F.mse_loss(out[mask], target["value"][mask])


def _masked(loss) -> Task:
    target = dict(value=torch.randn(SAMPLES, 6, CLASSES), mask=padding(6).float())
    return _tagger(loss, target)


def _two_divisors(out, target):
    """A mean over tokens and a mean over samples."""
    words = F.cross_entropy(out.flatten(0, 1), target["words"].flatten(), ignore_index=-100)
    return words + 0.5 * F.cross_entropy(out.mean(1), target["kind"])


def _normalised(out, target):
    """Mean squared error in units of the targets' variance over the batch."""
    return F.mse_loss(out, target) / target.var()


def _dice(out, target):
    p = out.sigmoid()
    return 1 - 2 * (p * target).sum() / (p.sum() + target.sum())


MEANS = {
    "Cross entropy, class weights": lambda: _classifier(nn.CrossEntropyLoss(uneven_weights())),
    "Cross entropy, label smoothing": lambda: _classifier(nn.CrossEntropyLoss(label_smoothing=0.1)),
    "Cross entropy, weights and smoothing": lambda: _classifier(
        nn.CrossEntropyLoss(uneven_weights(), label_smoothing=0.1)
    ),
    "Cross entropy of probabilities": lambda: _classifier(
        nn.CrossEntropyLoss(), torch.rand(SAMPLES, CLASSES).softmax(1)
    ),
    "Cross entropy, a sum": lambda: _classifier(nn.CrossEntropyLoss(reduction="sum")),
    "Cross entropy, a sum over 8": lambda: _classifier(
        lambda out, target: F.cross_entropy(out, target, reduction="sum") / 8
    ),
    "Ignored targets, a mean over tokens": lambda: _tagger(_steps_loss("mean"), _labels()),
    "Ignored targets, a sum over tokens": lambda: _tagger(_steps_loss("sum"), _labels()),
    "Ignored targets, weights and smoothing": lambda: _tagger(
        _steps_loss("mean", weight=uneven_weights(), label_smoothing=0.1), _labels()
    ),
    "Negative log-likelihood, class weights": lambda: _classifier(
        lambda out, target: F.nll_loss(out.log_softmax(1), target, uneven_weights())
    ),
    "Masked mean": lambda: _masked(_masked_mean),
    "Masked mean by boolean index": lambda: _masked(_masked_by_index),
    "Mean over tokens plus mean over samples": lambda: _tagger(_two_divisors, dict(words=_labels(), kind=classes())),
    "Focal loss per positive": lambda: _classifier(Focal(), torch.randint(2, (SAMPLES, CLASSES)).float()),
    "Binary cross entropy, pos_weight": lambda: _classifier(
        nn.BCEWithLogitsLoss(pos_weight=uneven_weights()), torch.randint(2, (SAMPLES, CLASSES)).float()
    ),
    "Multi-label margin": lambda: _classifier(
        nn.MultiLabelSoftMarginLoss(), torch.randint(2, (SAMPLES, CLASSES)).float()
    ),
    "Huber loss": lambda: _classifier(nn.HuberLoss(), torch.randn(SAMPLES, CLASSES)),
    "Gaussian likelihood": lambda: _classifier(
        lambda out, target: F.gaussian_nll_loss(out[:, :2], target, F.softplus(out[:, 2:4]) + 0.1),
        torch.randn(SAMPLES, 2),
    ),
    "Poisson likelihood": lambda: _classifier(nn.PoissonNLLLoss(), torch.rand(SAMPLES, CLASSES)),
    "Divergence, reduction mean": lambda: _classifier(
        lambda out, target: F.kl_div(out.log_softmax(1), target, reduction="mean"),
        torch.rand(SAMPLES, CLASSES).softmax(1),
    ),
    "Quantiles": lambda: _classifier(
        lambda out, target: torch.maximum(0.9 * (target - out), -0.1 * (target - out)).mean(),
        torch.randn(SAMPLES, CLASSES),
    ),
    "Weights of the samples": lambda: _classifier(
        lambda out, target: (F.cross_entropy(out, target["label"], reduction="none") * target["weight"]).sum()
        / target["weight"].sum(),
        dict(label=classes(), weight=torch.rand(SAMPLES) + 0.1),
    ),
    "Means of roots per sample": lambda: _classifier(
        lambda out, target: (out - target).square().mean(1).sqrt().mean(), torch.randn(SAMPLES, CLASSES)
    ),
    "A loss of the output alone": lambda: Task(mlp(8, 16, 8), torch.randn(SAMPLES, 8), lambda out: out.square().mean()),
}
for _name, _build in MEANS.items():
    add(_name, SOURCE, _build)

WHOLE = {
    "Root of the mean squared error": lambda: _classifier(
        lambda out, target: F.mse_loss(out, target).sqrt(), torch.randn(SAMPLES, CLASSES)
    ),
    "RandomSource loss over the batch": lambda: _classifier(_dice, torch.randint(2, (SAMPLES, CLASSES)).float()),
    "Error over the batch's variance": lambda: _classifier(_normalised, torch.randn(SAMPLES, CLASSES)),
    "Logarithm of a mean": lambda: _classifier(
        lambda out, target: F.mse_loss(out, target).log1p(), torch.randn(SAMPLES, CLASSES)
    ),
    "Largest error of the batch": lambda: _classifier(
        lambda out, target: (out - target).abs().max(), torch.randn(SAMPLES, CLASSES)
    ),
    "Product of two means": lambda: _classifier(
        lambda out, target: F.mse_loss(out, target) * F.l1_loss(out, target), torch.randn(SAMPLES, CLASSES)
    ),
}
for _name, _build in WHOLE.items():
    add(_name, SOURCE, _build, whole=True, refusal=NOT_A_MEAN)


class Penalised(nn.Module):
    """The mean over samples and, of the weights, a penalty that no sample changes."""

    def __init__(self):
        super().__init__()
        self.body = mlp(8, 16, CLASSES)

    def forward(self, x):
        return self.body(x), sum(p.square().sum() for p in self.body.parameters())


@entry("A penalty on the weights, with a mean", SOURCE)
def _penalty_mean() -> Task:
    def loss(output, target):
        return F.cross_entropy(output[0], target) + 1e-2 * output[1]

    return Task(Penalised(), torch.randn(SAMPLES, 8), loss, classes())


@entry("A penalty on the weights, with a sum", SOURCE, refusal="neither a mean nor a sum over samples")
def _penalty_sum() -> Task:
    def loss(output, target):
        return F.cross_entropy(output[0], target, reduction="sum") + 1e-1 * output[1]

    return Task(Penalised(), torch.randn(SAMPLES, 8), loss, classes())


@entry("A sum and a mean", SOURCE, whole=True, refusal="neither a mean nor a sum over samples")
def _sum_and_mean() -> Task:
    def loss(output, target):
        return F.cross_entropy(output, target, reduction="sum") + output.square().mean()

    return _classifier(loss)
