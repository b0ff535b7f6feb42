"""Loads a checkpoint into the plain PyTorch model and prints its accuracy on a data file.

python examples/digits/evaluate.py CHECKPOINT.safetensors test.safetensors
"""

import argparse
import os

import torch
from safetensors.torch import load_file

from model import QuadrantNet


def count_correct(checkpoint: os.PathLike | str, data: os.PathLike | str) -> tuple[int, int]:
    """(samples that the checkpoint's model gets right, samples) of a data file."""
    model = QuadrantNet()
    model.load_state_dict(load_file(checkpoint))
    model.eval()
    samples = load_file(data)
    with torch.no_grad():
        correct = (model(samples["image"]).argmax(dim=1) == samples["target"]).sum().item()
    return correct, len(samples["target"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("data")
    options = parser.parse_args()
    correct, samples = count_correct(options.checkpoint, options.data)
    print(f"accuracy {correct / samples:.4f} ({correct} of {samples})")


if __name__ == "__main__":
    main()
