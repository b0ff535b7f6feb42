"""CTC losses whose lengths are tensors are captured, and add up over micro-batches."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import stagewright
from ctc_model import LOSSES, TIME, Recogniser, batch, concatenated, per_label
from graph_interpreter import Interpreter


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
