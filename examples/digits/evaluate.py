"""Loads a checkpoint into the plain PyTorch model and prints its accuracy on a data file.

python examples/digits/evaluate.py CHECKPOINT.safetensors test.safetensors
"""

import argparse

import torch
from safetensors.torch import load_file

from model import QuadrantNet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("checkpoint")
    parser.add_argument("data")
    options = parser.parse_args()

    model = QuadrantNet()
    model.load_state_dict(load_file(options.checkpoint))
    model.eval()
    data = load_file(options.data)
    with torch.no_grad():
        correct = (model(data["image"]).argmax(dim=1) == data["target"]).sum().item()
    print(f"accuracy {correct / len(data['target']):.4f} ({correct} of {len(data['target'])})")


if __name__ == "__main__":
    main()
