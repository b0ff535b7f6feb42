"""A recogniser with the forms that its CTC loss may take."""

import torch
import torch.nn.functional as F
from torch import nn

TIME, CLASSES, LABELS = 12, 6, 4


class Recogniser(nn.Module):
    """Scores of classes over time, by sample; the loss is a function of them."""

    def __init__(self):
        super().__init__()
        self.body = nn.Linear(3, CLASSES)

    def forward(self, x):
        return self.body(x).log_softmax(-1)


def batch(samples):
    target = {
        "labels": torch.randint(1, CLASSES, (samples, LABELS)),
        "times": torch.randint(TIME - 3, TIME + 1, (samples,)),
        "lengths": torch.randint(1, LABELS + 1, (samples,)),
    }
    return {"x": torch.randn(samples, TIME, 3)}, target


def ctc(**options):
    def loss(scores, target):
        result = F.ctc_loss(scores.transpose(0, 1), target["labels"], target["times"], target["lengths"], **options)
        return result if result.dim() == 0 else result.mean()

    return loss


def module(scores, target):
    return nn.CTCLoss(blank=0, zero_infinity=True)(
        scores.transpose(0, 1), target["labels"], target["times"], target["lengths"]
    )


def whole_recordings(scores, target):
    """Lengths that are no data."""
    times = torch.full((scores.shape[0],), scores.shape[1])
    return torch.ctc_loss(scores.transpose(0, 1), target["labels"], times, torch.full_like(times, LABELS), 0, 1, False)


def per_label(scores, target):
    """Divided by a total of the batch."""
    return ctc(reduction="sum")(scores, target) / target["lengths"].sum()


def concatenated(scores, target):
    """As models of transformers have it: padding is below zero, and labels stand behind each other."""
    kept = torch.arange(LABELS) < target["lengths"][:, None]
    labels = torch.where(kept, target["labels"], -100)
    counts = labels >= 0
    times = torch.full((scores.shape[0],), scores.shape[1])
    return F.ctc_loss(scores.transpose(0, 1), labels.masked_select(counts), times, counts.sum(-1), reduction="sum")


def gaps(scores, target):
    """What is left out lies between the labels."""
    labels = target["labels"]
    counts = labels > 1
    times = torch.full((scores.shape[0],), scores.shape[1])
    return F.ctc_loss(scores.transpose(0, 1), labels[counts], times, counts.sum(1), zero_infinity=True)


LOSSES = {
    "mean": ctc(), "sum": ctc(reduction="sum"), "none": ctc(reduction="none"), "infinite": ctc(zero_infinity=True),
    "last class blank": lambda scores, target: ctc(blank=CLASSES - 1)(scores, {**target, "labels": target["labels"] - 1}),
    "module": module, "whole recordings": whole_recordings, "per label": per_label, "concatenated": concatenated,
    "gaps": gaps,
}  # fmt: skip
