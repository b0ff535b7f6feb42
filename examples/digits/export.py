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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", type=pathlib.Path, help="directory for digits.swg and the .safetensors files")
    parser.add_argument("--seed", type=int, default=0, help="seed of the initial weights")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)

    torch.manual_seed(options.seed)
    (train_images, train_labels), (test_images, test_labels) = split_digits()
    stagewright.export(
        QuadrantNet(), (train_images[:4],), loss=nn.CrossEntropyLoss(), path=options.output / "digits.swg"
    )
    stagewright.save_dataset(options.output / "train.safetensors", image=train_images, target=train_labels)
    stagewright.save_dataset(options.output / "test.safetensors", image=test_images, target=test_labels)
    counts = f"{len(train_images)} training and {len(test_images)} test samples"
    print(f"{options.output}: digits.swg, digits.safetensors, {counts}")


if __name__ == "__main__":
    main()
