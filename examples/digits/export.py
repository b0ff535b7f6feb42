"""Writes the digits network as a graph with initial weights, and the data: everything a training job needs.

python examples/digits/export.py OUTPUT_DIRECTORY
"""

import argparse
import pathlib

import stagewright
import torch
from torch import nn

from digits_data import split_digits
from model import QuadrantNet


def export_digits(output: pathlib.Path, seed: int = 0) -> None:
    """`seed` is that of the initial weights."""
    output.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(seed)
    (train_images, train_labels), (test_images, test_labels) = split_digits()
    stagewright.export(QuadrantNet(), (train_images[:4],), loss=nn.CrossEntropyLoss(), path=output / "digits.swg")
    stagewright.save_dataset(output / "train.safetensors", image=train_images, target=train_labels)
    stagewright.save_dataset(output / "test.safetensors", image=test_images, target=test_labels)
    counts = f"{len(train_images)} training and {len(test_images)} test samples"
    print(f"{output}: digits.swg, digits.safetensors, {counts}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="directory for digits.swg and the .safetensors files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights")
    options = parser.parse_args()
    export_digits(options.output, options.seed)


if __name__ == "__main__":
    main()
