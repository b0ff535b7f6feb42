"""State that training carries from step to step, and parameters that are tied, frozen or shared."""

import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

from .entry import SAMPLES, Task, entry
from .networks import Attention, classes, images, mlp
from .tasks import CLASSES

SOURCE = "circumstance"
BATCH_STATE = "the state depends on the mini-batch"


def _classifier(model: nn.Module) -> Task:
    return Task(model, torch.randn(SAMPLES, 8), nn.CrossEntropyLoss(), classes())


@entry("spectral_norm", SOURCE)
def _spectral_norm() -> Task:
    layers = [parametrizations.spectral_norm(nn.Linear(a, b)) for a, b in ((8, 16), (16, 16))]
    return _classifier(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.Linear(16, CLASSES)))


@entry("spectral_norm, as a hook", SOURCE)
def _spectral_norm_hook() -> Task:
    layers = [nn.utils.spectral_norm(nn.Linear(a, b)) for a, b in ((8, 16), (16, 16))]
    return _classifier(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.Linear(16, CLASSES)))


@entry("weight_norm", SOURCE)
def _weight_norm() -> Task:
    layers = [parametrizations.weight_norm(nn.Linear(a, b)) for a, b in ((8, 16), (16, 16))]
    return _classifier(nn.Sequential(layers[0], nn.ReLU(), layers[1], nn.ReLU(), nn.Linear(16, CLASSES)))


@entry("Orthogonal weights", SOURCE)
def _orthogonal() -> Task:
    layer = parametrizations.orthogonal(nn.Linear(8, 8), orthogonal_map="cayley")
    return _classifier(nn.Sequential(layer, nn.ReLU(), nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, CLASSES)))


class RunningMean(nn.Module):
    """Takes away a running mean of its own, kept in a buffer."""

    def __init__(self, how: str):
        super().__init__()
        self.before, self.after, self.how = mlp(8, 16, 8), mlp(8, 16, CLASSES), how
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        x = self.before(x)
        now = x.detach().mean(0)
        if self.how == "in place":
            self.mean.mul_(0.9).add_(0.1 * now)
        elif self.how == "copy":
            self.mean.copy_(0.9 * self.mean + 0.1 * now)
        else:
            self.mean = 0.9 * self.mean + 0.1 * now
        return self.after(x - self.mean)


@entry("Running mean in a buffer, in place", SOURCE, whole=True, refusal=BATCH_STATE)
def _running_mean() -> Task:
    return _classifier(RunningMean("in place"))


@entry("Running mean in a buffer, copy_", SOURCE, whole=True, refusal=BATCH_STATE)
def _running_mean_copied() -> Task:
    return _classifier(RunningMean("copy"))


@entry("Running mean in a buffer, assigned", SOURCE, whole=True, refusal=BATCH_STATE)
def _running_mean_assigned() -> Task:
    return _classifier(RunningMean("assigned"))


class Counted(nn.Module):
    """Counts its steps, and warms up with them."""

    def __init__(self):
        super().__init__()
        self.body = mlp(8, 16, 16, CLASSES)
        self.register_buffer("steps", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        self.steps += 1
        return self.body(x) * (1 - torch.exp(-self.steps.float()))


@entry("A counter of steps that the output reads", SOURCE, whole=True, refusal=BATCH_STATE)
def _counter() -> Task:
    return _classifier(Counted())


class Averaged(nn.Module):
    """Keeps an exponential average of a weight beside it, and is drawn to it."""

    def __init__(self):
        super().__init__()
        self.layer, self.body = nn.Linear(8, 16), mlp(16, 16, CLASSES)
        self.register_buffer("average", self.layer.weight.detach().clone())

    def forward(self, x):
        with torch.no_grad():
            self.average.mul_(0.5).add_(self.layer.weight, alpha=0.5)
        return self.body(F.relu(self.layer(x) + 0.1 * F.linear(x, self.average)))


@entry("Exponential average of a weight", SOURCE, whole=True, refusal=BATCH_STATE)
def _averaged() -> Task:
    return _classifier(Averaged())


def _batch_norm(norm1d, norm2d) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), norm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(32, 16),
        norm1d(16), nn.ReLU(), nn.Linear(16, CLASSES),
    )  # fmt: skip


@entry("BatchNorm, one and two dimensions", SOURCE, whole=True)
def _batch_norm_usual() -> Task:
    return Task(_batch_norm(nn.BatchNorm1d, nn.BatchNorm2d), images(), nn.CrossEntropyLoss(), classes())


@entry("BatchNorm, momentum None", SOURCE, whole=True)
def _batch_norm_mean() -> Task:
    model = _batch_norm(lambda n: nn.BatchNorm1d(n, momentum=None), lambda n: nn.BatchNorm2d(n, momentum=None))
    return Task(model, images(), nn.CrossEntropyLoss(), classes())


@entry("BatchNorm without running statistics", SOURCE, whole=True)
def _batch_norm_stateless() -> Task:
    def without(kind):
        return lambda n: kind(n, track_running_stats=False)

    return Task(
        _batch_norm(without(nn.BatchNorm1d), without(nn.BatchNorm2d)), images(), nn.CrossEntropyLoss(), classes()
    )


@entry("BatchNorm, frozen in evaluation mode", SOURCE)
def _batch_norm_frozen() -> Task:
    """As people fine-tune: `train` leaves these layers in evaluation mode."""

    class Frozen(nn.BatchNorm2d):
        def train(self, mode: bool = True):
            return super().train(False)

    model = _batch_norm(lambda n: nn.LayerNorm(n), Frozen)
    return Task(model, images(), nn.CrossEntropyLoss(), classes())


class Tied(nn.Module):
    """One table as the first and, in another stage, as the last layer."""

    def __init__(self):
        super().__init__()
        self.table, self.body = nn.Embedding(32, 16), nn.Sequential(Attention(), Attention())
        self.head = nn.Linear(16, 32, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids):
        return self.head(self.body(self.table(ids))).transpose(1, 2)


@entry("Tied weights", SOURCE)
def _tied() -> Task:
    ids = torch.randint(32, (SAMPLES, 7))
    return Task(Tied(), ids[:, :-1].contiguous(), nn.CrossEntropyLoss(), ids[:, 1:].contiguous())


@entry("One layer used three times", SOURCE)
def _shared() -> Task:
    class Shared(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.layer, self.head = nn.Linear(8, 16), Attention(), nn.Linear(16, CLASSES)

        def forward(self, x):
            x = self.first(x)
            for _ in range(3):
                x = self.layer(x)
            return self.head(x.mean(1))

    return Task(Shared(), torch.randn(SAMPLES, 5, 8), nn.CrossEntropyLoss(), classes())


class FrozenTower(nn.Module):
    def __init__(self, no_grad: bool):
        super().__init__()
        self.tower, self.head, self.no_grad = mlp(8, 16, 16, 16), mlp(16, 16, CLASSES), no_grad
        if not no_grad:
            self.tower.requires_grad_(False)

    def forward(self, x):
        with torch.set_grad_enabled(torch.is_grad_enabled() and not self.no_grad):
            y = self.tower(x)
        return self.head(y)


@entry("Frozen tower, no_grad in forward", SOURCE)
def _no_grad() -> Task:
    return _classifier(FrozenTower(no_grad=True))


@entry("Frozen tower, requires_grad False", SOURCE)
def _frozen() -> Task:
    return _classifier(FrozenTower(no_grad=False))


@entry("An unused layer and a buffer outside the state", SOURCE)
def _unused() -> Task:
    class Unused(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.unused = mlp(8, 16, 16, CLASSES), nn.Linear(3, 3)
            self.register_buffer("scale", torch.tensor([0.5]), persistent=False)
            self.offset = torch.tensor([0.1])

        def forward(self, x):
            return self.body(x * self.scale + self.offset)

    return _classifier(Unused())


@entry("Adapters of low rank beside frozen layers", SOURCE)
def _low_rank() -> Task:
    class Adapted(nn.Module):
        def __init__(self, inputs, outputs):
            super().__init__()
            self.layer = nn.Linear(inputs, outputs).requires_grad_(False)
            self.down, self.up = nn.Linear(inputs, 2, bias=False), nn.Linear(2, outputs, bias=False)

        def forward(self, x):
            return self.layer(x) + 2.0 * self.up(self.down(x))

    model = nn.Sequential(Adapted(8, 16), nn.ReLU(), Adapted(16, 16), nn.ReLU(), Adapted(16, CLASSES))
    return _classifier(model)
