"""Data and losses of the usual kinds of training, random and small."""

import torch
import torch.nn.functional as F
from torch import nn

from .entry import SAMPLES, Task

VOCABULARY, LENGTH, CLASSES = 64, 12, 5
IGNORED = -100


def tokens(length: int = LENGTH, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Ids [SAMPLES, length]; the lowest ones stand for padding and ends of a text."""
    return torch.randint(4, vocabulary, (SAMPLES, length))


def padding(length: int = LENGTH) -> torch.Tensor:
    """1 where a sample has a token, 0 behind its end, [SAMPLES, length]: samples differ in length."""
    lengths = torch.randint(length // 3, length + 1, (SAMPLES, 1))
    lengths[::8] = length
    return (torch.arange(length) < lengths).long()


def padded(ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    return ids.masked_fill(mask == 0, IGNORED)


def next_token_loss(output, labels: torch.Tensor) -> torch.Tensor:
    """A mean over the tokens that count, of the token behind each."""
    logits = output.logits if hasattr(output, "logits") else output
    return F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), ignore_index=IGNORED)


def token_loss(output, labels: torch.Tensor) -> torch.Tensor:
    """A mean over the tokens that count, each at its own place."""
    logits = output.logits if hasattr(output, "logits") else output
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)


def class_loss(output, labels: torch.Tensor) -> torch.Tensor:
    return F.cross_entropy(output.logits, labels)


def sample_loss(output, target: torch.Tensor) -> torch.Tensor:
    """Of models of diffusers."""
    return F.mse_loss(output.sample, target)


def mean_of(name: str):
    """The mean squared value of a field of the output: a loss of the output alone, of any model."""
    return lambda output, target: (getattr(output, name) - target[:, None]).square().mean()


def language_model(model: nn.Module, length: int = LENGTH, mask: bool = False, **inputs) -> Task:
    """Of texts of several lengths, with or without an attention mask."""
    ids, kept = tokens(length), padding(length)
    arguments = {"input_ids": ids, "attention_mask": kept} if mask else {"input_ids": ids}
    return Task(model, {**arguments, **inputs}, next_token_loss, padded(ids, kept))


def masked_language_model(model: nn.Module, length: int = LENGTH, mask: bool = True, **inputs) -> Task:
    """BERT's: the loss counts those tokens that were hidden, about a third of them."""
    ids, kept = tokens(length), padding(length)
    hidden = (torch.rand(SAMPLES, length) < 0.35) & (kept == 1)
    hidden[:, 0] = True
    arguments = {"input_ids": ids.masked_fill(hidden, 3), **inputs}
    if mask:
        arguments["attention_mask"] = kept
    return Task(model, arguments, token_loss, ids.masked_fill(~hidden, IGNORED))


def text_classifier(model: nn.Module, length: int = LENGTH, mask: bool = True, **inputs) -> Task:
    arguments = {"input_ids": tokens(length), **inputs}
    if mask:
        arguments["attention_mask"] = padding(length)
    return Task(model, arguments, class_loss, torch.randint(CLASSES, (SAMPLES,)))


def translation(model: nn.Module, length: int = LENGTH, **inputs) -> Task:
    """Encoder and decoder; the decoder's ids are the labels, one place to the right."""
    labels, kept = tokens(length), padding(length)
    before = torch.cat([torch.full((SAMPLES, 1), 1), labels[:, :-1]], dim=1)
    arguments = {"input_ids": tokens(length), "attention_mask": padding(length), "decoder_input_ids": before, **inputs}
    return Task(model, arguments, token_loss, padded(labels, kept))


def image_classifier(model: nn.Module, size: int = 32, channels: int = 3) -> Task:
    images = torch.randn(SAMPLES, channels, size, size)
    return Task(model, {"pixel_values": images}, class_loss, torch.randint(CLASSES, (SAMPLES,)))
