"""CTC losses whose lengths are tensors are captured, and add up over micro-batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from graph_interpreter import Interpreter

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


@pytest.mark.parametrize("name", LOSSES)
def test_ctc_losses(name, tmp_path):
    model, loss = Recogniser(), LOSSES[name]
    inputs, target = batch(4)
    exported = stagewright.export(model, inputs, loss=loss, targets=target, path=tmp_path / "model.swg")
    assert any(node.target == "aten.ctc_loss.Tensor" for node in exported.graph.nodes)
    for samples in (1, 2, 7):
        inputs, target = batch(samples)
        expected = loss(model(**inputs), target)
        gradients = dict(zip(("body.weight", "body.bias"), torch.autograd.grad(expected, list(model.parameters()))))
        named = {**inputs, **{f"target.{key}": value for key, value in target.items()}}
        for sizes in ([samples], [1] * samples):
            actual, found = Interpreter.load(exported).run_in_parts(named, sizes)
            torch.testing.assert_close(actual, expected)
            for key, gradient in gradients.items():
                torch.testing.assert_close(found[key], gradient, rtol=1e-4, atol=1e-5)


def test_an_example_of_equal_lengths(tmp_path):
    """A total of the batch is found out although the example does not show it."""
    inputs, target = batch(4)
    target["lengths"] = torch.full((4,), 2)
    target["times"] = torch.full((4,), TIME)
    exported = stagewright.export(
        Recogniser(), inputs, loss=per_label, targets=target, path=tmp_path / "model.swg"
    )  # fmt: skip
    assert len(exported.graph.totals.values) == 1


def test_a_model_with_its_own_loss(tmp_path):
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.recogniser = Recogniser()

        def forward(self, x, labels):
            return concatenated(self.recogniser(x), {"labels": labels, "lengths": torch.full((labels.shape[0],), 3)})

    inputs, target = batch(4)
    exported = stagewright.export(Own(), {**inputs, "labels": target["labels"]}, path=tmp_path / "model.swg")
    assert [entry.name for entry in exported.graph.inputs] == ["x", "labels"]


def test_one_sample_without_a_batch_is_left_alone():
    """Outside an export nothing has changed."""
    scores, target = Recogniser()(torch.randn(TIME, 3)), torch.tensor([1, 2])
    assert F.ctc_loss(scores, target, torch.tensor(TIME), torch.tensor(2)).dim() == 0


def test_concatenated_labels_of_other_lengths_are_refused(tmp_path):
    def loss(scores, target):
        counts = target["labels"] > 1
        times = torch.full((scores.shape[0],), scores.shape[1])
        return F.ctc_loss(scores.transpose(0, 1), target["labels"][counts], times, (counts.sum(1) * 2) // 2)

    inputs, target = batch(4)
    with pytest.raises(stagewright.ExportError, match=r"ctc_loss.*test_ctc.py:\d+.*labels of all samples.*\[samples, "):
        stagewright.export(Recogniser(), inputs, loss=loss, targets=target, path=tmp_path / "model.swg")
