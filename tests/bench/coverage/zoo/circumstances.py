"""Precision, arguments and control flow as users write them, each on a small network."""

import dataclasses

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from .entry import SAMPLES, Task, entry
from .networks import Attention, classes, mlp
from .tasks import CLASSES

SOURCE = "circumstance"


def vectors(width: int = 8) -> torch.Tensor:
    return torch.randn(SAMPLES, width)


def _classifier(model: nn.Module) -> Task:
    return Task(model, vectors(), nn.CrossEntropyLoss(), classes())


# Precision.


@entry("bfloat16", SOURCE, tolerance=1e-2)
def _bfloat16() -> Task:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, CLASSES)
    )
    return Task(model.bfloat16(), vectors().bfloat16(), nn.CrossEntropyLoss(), classes())


@entry("float64", SOURCE, tolerance=1e-10)
def _float64() -> Task:
    return Task(mlp(8, 16, 16, CLASSES).double(), vectors().double(), nn.CrossEntropyLoss(), classes())


@entry("Autocast in forward", SOURCE, tolerance=1e-2)
def _autocast() -> Task:
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.head = mlp(8, 16, 16, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            with torch.autocast("cpu", torch.bfloat16):
                y = self.body(x)
            return self.head(y.float())

    return _classifier(Mixed())


@entry("Complex numbers inside", SOURCE)
def _fourier() -> Task:
    """A filter in frequency space."""

    class Filter(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight, self.head = nn.Parameter(torch.randn(5, 2)), mlp(8, 16, CLASSES)

        def forward(self, x):
            frequencies = torch.fft.rfft(x, dim=1) * torch.view_as_complex(self.weight)
            return self.head(torch.fft.irfft(frequencies, n=x.shape[1], dim=1))

    return _classifier(Filter())


# How forward computes.


@entry("Gradient checkpointing", SOURCE)
def _checkpointing() -> Task:
    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.head = nn.ModuleList(Attention() for _ in range(3)), nn.Linear(16, CLASSES)

        def forward(self, x):
            for layer in self.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return self.head(x.mean(1))

    return Task(Checkpointed(), torch.randn(SAMPLES, 5, 16), nn.CrossEntropyLoss(), classes())


@entry("Dropout", SOURCE, random=True)
def _dropout() -> Task:
    model = nn.Sequential(
        nn.Linear(8, 16), nn.Dropout(0.3), nn.ReLU(), nn.Linear(16, 16), nn.Dropout(0.3), nn.Linear(16, CLASSES)
    )
    return _classifier(model)


@entry("Time first inside", SOURCE)
def _time_first() -> Task:
    """[time, batch, width] from the first layer to the last but one."""

    class TimeFirst(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layers, self.head = (
                nn.Linear(8, 16),
                nn.ModuleList(nn.Linear(16, 16) for _ in range(4)),
                nn.Linear(16, CLASSES),
            )

        def forward(self, x):
            x = self.first(x.transpose(0, 1))
            for layer in self.layers:
                x = x + torch.tanh(layer(x))
            return self.head(x[-1])

    return Task(TimeFirst(), torch.randn(SAMPLES, 6, 8), nn.CrossEntropyLoss(), classes())


@entry("Time first, batch_dim 1", SOURCE)
def _batch_second() -> Task:
    model = mlp(8, 16, 16, 16, 4)
    x, y = torch.randn(6, SAMPLES, 8), torch.randn(6, SAMPLES, 4)
    return Task(model, x, nn.MSELoss(), y, {"batch_dim": 1})


@entry("torch.compile'd", SOURCE)
def _compiled() -> Task:
    return _classifier(torch.compile(mlp(8, 16, 16, CLASSES), backend="eager"))


@entry("Operations in place", SOURCE)
def _in_place() -> Task:
    class InPlace(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, CLASSES)

        def forward(self, x):
            y = F.relu_(self.first(x))
            z = self.second(y)
            z += y
            z[:, :4] = 0
            z[:, 4:].mul_(2)
            return self.head(z)

    return _classifier(InPlace())


@entry("if on a tensor's value", SOURCE, refusal="its course depends on the values of a tensor")
def _data_dependent() -> Task:
    class Branch(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.other = mlp(8, 16, CLASSES), mlp(8, CLASSES)

        def forward(self, x):
            return self.body(x) if x.sum() > 0 else self.other(x)

    return _classifier(Branch())


@entry("An autograd function of one's own", SOURCE, refusal="its backward pass is Python that no graph records")
def _custom_autograd() -> Task:
    class Round(torch.autograd.Function):
        @staticmethod
        def forward(context, x):
            return x.round()

        @staticmethod
        def backward(context, gradient):
            return gradient

    class Quantised(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = mlp(8, 16), mlp(16, 16, CLASSES)

        def forward(self, x):
            return self.second(Round.apply(self.first(x)))

    return _classifier(Quantised())


# What goes in and comes out.


class Keywords(nn.Module):
    """A dict, optional arguments and a Python number."""

    def __init__(self):
        super().__init__()
        self.left, self.right, self.head = mlp(8, 16), mlp(4, 16), mlp(16, 16, CLASSES)

    def forward(self, features: dict, scale: float = 1.0, bias=None, unused=None):
        y = self.left(features["a"]) + scale * self.right(features["b"]["c"])
        return self.head(torch.relu(y if bias is None else y + bias))


@entry("A dict, keywords and a number", SOURCE)
def _keywords() -> Task:
    features = {"a": vectors(), "b": {"c": vectors(4)}}
    return Task(
        Keywords(),
        {"features": features, "scale": 0.5, "bias": torch.randn(SAMPLES, 16)},
        nn.CrossEntropyLoss(),
        classes(),
    )


@dataclasses.dataclass
class Scores:
    logits: torch.Tensor
    hidden: torch.Tensor


class WithDataclass(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = mlp(8, 16, 16), nn.Linear(16, CLASSES)

    def forward(self, x):
        hidden = torch.relu(self.body(x))
        return Scores(self.head(hidden), hidden)


@entry("A dataclass as output", SOURCE)
def _dataclass() -> Task:
    def loss(scores, target):
        return F.cross_entropy(scores.logits, target) + 1e-2 * scores.hidden.abs().mean()

    return Task(WithDataclass(), vectors(), loss, classes())


@entry("Several losses, nested targets", SOURCE)
def _several_losses() -> Task:
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.kind, self.value, self.early = (
                mlp(8, 16, 16),
                nn.Linear(16, CLASSES),
                nn.Linear(16, 2),
                nn.Linear(8, CLASSES),
            )

        def forward(self, x):
            y = torch.relu(self.body(x))
            return {"kind": self.kind(y), "more": (self.value(y), self.early(x))}

    def loss(output, target):
        value, early = output["more"]
        kinds = F.cross_entropy(output["kind"], target["kind"]) + 0.3 * F.cross_entropy(early, target["kind"])
        return kinds + F.mse_loss(value, target["rest"]["value"])

    return Task(Heads(), vectors(), loss, {"kind": classes(), "rest": {"value": vectors(2)}})


@entry("The model returns its loss", SOURCE)
def _returns_loss() -> Task:
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(8, 16, 16, CLASSES)

        def forward(self, x, labels):
            return F.cross_entropy(self.body(x), labels)

    return Task(WithLoss(), (vectors(), classes()), None)


@entry("The model returns loss and logits", SOURCE)
def _returns_loss_and_logits() -> Task:
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(8, 16, 16, CLASSES)

        def forward(self, x, labels=None):
            logits = self.body(x)
            return {"loss": F.cross_entropy(logits, labels), "logits": logits}

    return Task(WithLoss(), {"x": vectors(), "labels": classes()}, None)


@entry("The model returns its loss, ignored labels", SOURCE)
def _returns_padded_loss() -> Task:
    class WithLoss(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = mlp(8, 16, 16, CLASSES)

        def forward(self, x, labels):
            logits = self.body(x)
            return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}

    labels = torch.randint(CLASSES, (SAMPLES, 5))
    for i in range(SAMPLES):
        labels[i, 5 - i % 4 :] = -100
    return Task(WithLoss(), {"x": torch.randn(SAMPLES, 5, 8), "labels": labels}, None)


@entry("Shapes of the batch as numbers", SOURCE)
def _batch_as_number() -> Task:
    class Reshaped(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second, self.head = nn.Linear(8, 16), nn.Linear(4, 8), nn.Linear(32, CLASSES)

        def forward(self, x):
            batch = x.size(0)
            y = torch.relu(self.first(x)).view(batch, 4, 4)
            y = torch.relu(self.second(y)) + torch.zeros(batch, 1, 8)
            return self.head(y.reshape(batch, -1))

    return _classifier(Reshaped())
