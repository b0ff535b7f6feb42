"""Models of the coverage suite on real workers, beside PyTorch: each was once trained wrong without a word, or not at
all."""

import pathlib
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench" / "coverage"))
import zoo  # noqa: E402
from system import System  # noqa: E402
from trial import RIGHT, RIGHTLY_REFUSED, UNEVEN, Options, attempt  # noqa: E402

NAMES = [
    # Rows that are not one sample behind the other must not be dealt out as if they were.
    "Rows of all steps, the step first",
    "Siamese, cut by slices",
    "nn.Transformer",
    "nn.TransformerEncoder, padding mask",
    # A mean is over what counts, not over samples.
    "Ignored targets, a mean over tokens",
    "Cross entropy, class weights",
    "Mean over tokens plus mean over samples",
    # State that forward changes.
    "spectral_norm",
    "Running mean in a buffer, in place",
    "BatchNorm, one and two dimensions",
    # Samples that meet, in the model and in the loss.
    "Two towers, in-batch softmax, labels from the data",
    "Two towers, in-batch softmax, labels made in the loss",
    "Mixed with the sample before (roll)",
]


@pytest.fixture(scope="module")
def system():
    with System(workers=3) as running:
        yield running


def entry_of(name: str) -> zoo.Entry:
    return next(entry for entry in zoo.ENTRIES.values() if entry.name == name)


@pytest.mark.parametrize("name", NAMES)
def test_trains_as_pytorch_does(system, tmp_path, name):
    """Losses, weights, state and what changed of each, of the planner's own plan and of two that cut samples apart."""
    entry = entry_of(name)
    result = attempt(entry, system, tmp_path, Options(planned=(3,), jobs=("forced 2", "own 3", UNEVEN)))
    assert result.verdict == RIGHT or (entry.refusal and result.verdict == RIGHTLY_REFUSED), result.reason
