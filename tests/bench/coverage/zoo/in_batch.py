"""Models and losses in which the samples of a batch meet, rightly or only by the way their values are laid out."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import SAMPLES, Task, entry
from .networks import classes, mlp
from .tasks import CLASSES

# What is right for all entries here that mix samples: a plan with the whole mini-batch in one pass, or a refusal.
MIXED = dict(whole=True, refusal="samples of the batch depend on each other")


class TimeMajorRows(nn.Module):
    """Rows of all samples, the step first: [steps * batch, width]."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 3)

    def forward(self, x):
        h = F.relu(self.a(x)).transpose(0, 1).reshape(-1, 8)
        return self.b(h).view(4, -1, 3).transpose(0, 1)


@entry("Rows of all steps, the step first", "circumstance")
def _time_major() -> Task:
    return Task(TimeMajorRows(), torch.randn(SAMPLES, 4, 8), nn.MSELoss(), torch.randn(SAMPLES, 4, 3))


class Siamese(nn.Module):
    """Both sides go through one tower at once, one behind the other."""

    def __init__(self, cut: str):
        super().__init__()
        self.tower, self.cut = mlp(8, 16, 16, 4), cut

    def forward(self, left, right):
        both = self.tower(torch.cat([left, right], 0))
        count = left.shape[0]
        a, b = both.chunk(2, 0) if self.cut == "chunk" else (both[:count], both[count:])
        return F.cosine_similarity(a, b)


def _siamese(cut: str) -> Task:
    inputs = (torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 8))
    return Task(Siamese(cut), inputs, nn.MSELoss(), torch.rand(SAMPLES))


@entry("Siamese, cut by slices", "circumstance")
def _siamese_slices() -> Task:
    return _siamese("slices")


@entry("Siamese, cut by chunk", "circumstance")
def _siamese_chunk() -> Task:
    return _siamese("chunk")


class Beams(nn.Module):
    """Three candidates for every sample, as rows [batch * beams]."""

    def __init__(self, beams: int = 3):
        super().__init__()
        self.first, self.score, self.beams = nn.Linear(8, 16), mlp(24, 16, 1), beams

    def forward(self, x, candidates):
        rows = self.first(x).repeat_interleave(self.beams, dim=0)
        rows = torch.cat([rows, candidates.reshape(-1, 8)], dim=1)
        return self.score(torch.relu(rows)).view(-1, self.beams)


@entry("Rows [batch * beams]", "circumstance")
def _beams() -> Task:
    inputs = (torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 3, 8))
    return Task(Beams(), inputs, nn.CrossEntropyLoss(), torch.randint(3, (SAMPLES,)))


class TwoTowers(nn.Module):
    """Scores of every user with every item of the batch, or both towers' ends."""

    def __init__(self, scores: bool):
        super().__init__()
        self.user, self.item, self.scores = mlp(8, 16, 6), mlp(10, 16, 6), scores

    def forward(self, user, item):
        a, b = F.normalize(self.user(user), dim=1), F.normalize(self.item(item), dim=1)
        return a @ b.T if self.scores else (a, b)


def _two_towers(loss, scores: bool = True) -> Task:
    inputs = (torch.randn(SAMPLES, 8), torch.randn(SAMPLES, 10))
    return Task(TwoTowers(scores), inputs, loss, torch.arange(SAMPLES) % 8)


@entry("Two towers, in-batch softmax, labels from the data", "circumstance", **MIXED)
def _in_batch() -> Task:
    return _two_towers(nn.CrossEntropyLoss())


@entry("Two towers, in-batch softmax, labels made in the loss", "circumstance", **MIXED)
def _in_batch_own_labels() -> Task:
    return _two_towers(lambda scores, _: F.cross_entropy(scores, torch.arange(len(scores))))


@entry("Two towers, softmax in the loss", "circumstance", **MIXED)
def _in_batch_in_the_loss() -> Task:
    def loss(ends, labels):
        return F.cross_entropy(ends[0] @ ends[1].T / 0.1, labels)

    return _two_towers(loss, scores=False)


@entry("Two towers, pairs of their own", "circumstance")
def _pairs() -> Task:
    return _two_towers(lambda ends, _: (1 - (ends[0] * ends[1]).sum(1)).mean(), scores=False)


def _mixing(mix) -> Task:
    class Mixing(nn.Module):
        def __init__(self):
            super().__init__()
            self.below, self.above = mlp(8, 16, 8), mlp(8, 16, CLASSES)

        def forward(self, x):
            return self.above(mix(self.below(x)))

    return Task(Mixing(), torch.randn(SAMPLES, 8), nn.CrossEntropyLoss(), classes())


@entry("Less the batch's mean", "circumstance", **MIXED)
def _centred() -> Task:
    return _mixing(lambda x: x - x.mean(0, keepdim=True))


@entry("Divided by the batch's largest value", "circumstance", **MIXED)
def _scaled() -> Task:
    return _mixing(lambda x: x / x.abs().max())


@entry("Mixed with the sample before (roll)", "circumstance", **MIXED)
def _rolled() -> Task:
    return _mixing(lambda x: 0.7 * x + 0.3 * x.roll(1, 0))


@entry("Mixed with the batch turned round (flip)", "circumstance", **MIXED)
def _flipped() -> Task:
    return _mixing(lambda x: 0.7 * x + 0.3 * x.flip(0))


@entry("A softmax over the batch", "circumstance", **MIXED)
def _softmax() -> Task:
    return _mixing(lambda x: x * x.softmax(0))


@entry("A cumulative sum over the batch", "circumstance", **MIXED)
def _cumulative() -> Task:
    return _mixing(lambda x: x.cumsum(0) / 4)


@entry("Sorted along the batch", "circumstance", **MIXED)
def _sorted() -> Task:
    return _mixing(lambda x: x.sort(0).values)


@entry("The first sample as a reference", "circumstance", **MIXED)
def _first() -> Task:
    return _mixing(lambda x: x - x[:1])


@entry("Attention between samples", "circumstance", **MIXED)
def _attention() -> Task:
    return _mixing(lambda x: x + (x @ x.T / 8).softmax(-1) @ x)


def _on_embeddings(loss) -> Task:
    inputs = torch.randn(SAMPLES, 8)
    return Task(mlp(8, 16, 6), inputs, loss, torch.randint(3, (SAMPLES,)))


@entry("Barlow Twins' loss", "circumstance", **MIXED)
def _correlation() -> Task:
    def loss(z, _):
        z = (z - z.mean(0)) / (z.std(0) + 1e-3)
        c = z.T @ z / len(z)
        return (c - torch.eye(6)).square().sum()

    return _on_embeddings(loss)


@entry("Supervised contrastive loss", "circumstance", **MIXED)
def _supervised() -> Task:
    def loss(z, labels):
        z = F.normalize(z, dim=1)
        same = (labels[:, None] == labels[None]).float()
        return -(torch.log_softmax(z @ z.T / 0.5, dim=1) * same).sum(1).div(same.sum(1)).mean()

    return _on_embeddings(loss)


@entry("Pairwise ranking with the next sample", "circumstance", **MIXED)
def _ranking() -> Task:
    def loss(z, labels):
        score = z[:, 0]
        sign = torch.where(labels[1:] > labels[:-1], 1.0, -1.0)
        return F.margin_ranking_loss(score[1:], score[:-1], sign, margin=0.5)

    return _on_embeddings(loss)


@entry("Batch-hard triplets", "circumstance", **MIXED)
def _triplets() -> Task:
    def loss(z, labels):
        distance = torch.cdist(z, z)
        same = labels[:, None] == labels[None]
        farthest = distance.masked_fill(~same, -1).amax(1)
        nearest = distance.masked_fill(same, 1e4).amin(1)
        return F.relu(farthest - nearest + 0.3).mean()

    return _on_embeddings(loss)


@entry("Balance of experts over the batch", "circumstance", **MIXED)
def _balance() -> Task:
    """The loss of mixtures that wants all experts to be used alike: a product of two means over the batch."""

    def loss(z, labels):
        share = z.softmax(1)
        used = F.one_hot(z.argmax(1), 6).float().mean(0)
        return F.cross_entropy(z, labels) + 6 * (used * share.mean(0)).sum()

    return _on_embeddings(loss)


@entry("A loss of ranks within the batch", "circumstance", **MIXED)
def _worst() -> Task:
    """The mean over the half with the larger losses: hard examples."""

    def loss(z, labels):
        return F.cross_entropy(z, labels, reduction="none").topk(len(z) // 2).values.mean()

    return _on_embeddings(loss)
