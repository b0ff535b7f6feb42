"""Trains the digits network on the workers of a running planner, and says how well the module then does.

python examples/digits/train.py [--address HOST:PORT] [--epochs N] [--directory DIRECTORY]
"""

import argparse

import stagewright
import torch
from torch import nn
from torch.utils.data import TensorDataset

from digits_data import split_digits
from model import QuadrantNet


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--address", help="of the planner (default: $STAGEWRIGHT_PLANNER, else 127.0.0.1:7070)")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--directory", help="where graph, data and checkpoints go")
    options = parser.parse_args()

    torch.manual_seed(0)
    training, (test_images, test_labels) = split_digits()
    model = QuadrantNet()
    result = stagewright.train(
        model,
        TensorDataset(*training),
        loss=nn.CrossEntropyLoss(),
        mini_batch=64,
        epochs=options.epochs,
        optimizer=torch.optim.AdamW(model.parameters(), lr=3e-4),
        schedule=stagewright.LearningRateSchedule(decay="cosine", warmup_steps=20),
        address=options.address,
        directory=options.directory,
    )
    print(result.plan)
    print(result.history)
    model.eval()
    with torch.no_grad():
        accuracy = (model(test_images).argmax(dim=1) == test_labels).float().mean().item()
    print(f"accuracy {accuracy:.4f}, weights in {result.checkpoint}")


if __name__ == "__main__":
    main()
