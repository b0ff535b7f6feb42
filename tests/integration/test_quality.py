"""Synchronous plans train as well as plain PyTorch: a character-level Transformer on a real text, and the digits."""

import pytest
import torch
from processes import Processes
from quality import Size, compare_characters, compare_digits, real_text

DEVICES = 3


@pytest.fixture(scope="module")
def system():
    torch.set_num_threads(1)
    with Processes(workers=DEVICES, measured=True) as running:
        yield running


@pytest.mark.skipif(not real_text()[1], reason="neither the licences of Debian nor Python's help texts are installed")
def test_a_character_level_transformer_reaches_the_loss_of_pytorch(system):
    entropy, expected, results = compare_characters(system, Size(), DEVICES)
    assert expected.held_out_loss < 0.9 * entropy  # Or it would prove nothing.
    # A hundredth would do, but a rate a fifth too small stays within that.
    assert len(results) == 2
    for name, result in results.items():
        assert result.held_out_loss == pytest.approx(expected.held_out_loss, rel=1e-4), name
        assert result.training_loss == pytest.approx(expected.training_loss, rel=1e-4), name


def test_digits_reach_the_accuracy_of_pytorch(system):
    expected, result = compare_digits(system, epochs=6, devices=DEVICES)
    assert expected.accuracy > 0.93
    assert abs(result.accuracy - expected.accuracy) <= 0.005
