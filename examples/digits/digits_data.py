"""The digits as tensors, split into training and test samples with a fixed seed."""

import gzip
import pathlib

import numpy as np
import torch

DATA = pathlib.Path(__file__).resolve().parents[1] / "data" / "digits.csv.gz"
TEST_SAMPLES = 360


def load_digits() -> tuple[torch.Tensor, torch.Tensor]:
    """(images [1797, 8, 8] in 0..1, labels [1797])."""
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    images = torch.from_numpy(table[:, :64] / 16.0).reshape(-1, 8, 8)
    return images, torch.from_numpy(table[:, 64].astype(np.int64))


def split_digits(seed: int = 1998) -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """((training images, labels), (test images, labels)): 1437 and 360 samples in a fixed random order."""
    images, labels = load_digits()
    order = torch.from_numpy(np.random.RandomState(seed).permutation(len(images)))
    test, train = order[:TEST_SAMPLES], order[TEST_SAMPLES:]
    return (images[train], labels[train]), (images[test], labels[test])
