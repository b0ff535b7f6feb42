"""Trains the digits with torch.distributed.pipelining from a plan of Stagewright, and the plain module beside it.

torchrun --nproc-per-node 2 examples/frameworks/train.py DIRECTORY

DIRECTORY holds what `examples/digits/export.py` wrote, and `schedule.csv` with `schedule.stages.json`, written by
`python -m stagewright.frameworks pipelining`. Every process runs the stages of one rank on its CPU.
"""

import argparse
import pathlib
import sys

import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch import nn

from stagewright.frameworks.training import Pipeline

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "digits"))
from model import QuadrantNet  # noqa: E402

LEARNING_RATE = 0.05
TOLERANCE = 1e-5
# Sums over micro-batches round differently; where that moves a ReLU across zero, a weight may differ by a little more.
WEIGHT_TOLERANCE = 1e-4


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    pipeline = Pipeline(
        options.directory / "schedule.csv",
        options.directory / "digits.swg",
        weights=options.directory / "digits.safetensors",
    )
    data = load_file(options.directory / "train.safetensors")
    samples = pipeline.chain.mini_batch
    batches = [{name: t[step * samples :][:samples] for name, t in data.items()} for step in range(options.steps)]

    update = torch.optim.SGD(pipeline.parameters(), lr=LEARNING_RATE, momentum=0.9)
    losses = []
    for batch in batches:
        update.zero_grad()
        losses.append(pipeline.step(batch))
        update.step()

    parts = [None] * dist.get_world_size()
    dist.all_gather_object(parts, pipeline.state_dict())
    if losses[-1] is not None:  # The process of the last stage knows the losses.
        compare(options.directory, batches, losses, {name: t for part in parts for name, t in part.items()})
    dist.destroy_process_group()


def compare(directory: pathlib.Path, batches: list[dict], losses: list[float], trained: dict) -> None:
    """Prints the losses beside those of the plain module; ends the program if one differs, or a trained weight."""
    model, loss_function = QuadrantNet(), nn.CrossEntropyLoss()
    model.load_state_dict(load_file(directory / "digits.safetensors"))
    update = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=0.9)
    for step, (batch, loss) in enumerate(zip(batches, losses, strict=True)):
        update.zero_grad()
        plain = loss_function(model(batch["image"]), batch["target"])
        plain.backward()
        update.step()
        print(f"step {step:3}  pipeline {loss:.6f}  plain {plain.item():.6f}")
        if abs(loss - plain.item()) > TOLERANCE:
            sys.exit(f"step {step}: the losses differ by {abs(loss - plain.item()):.1e}, more than {TOLERANCE}")
    for name, tensor in model.state_dict().items():
        if (tensor - trained[name]).abs().max() > WEIGHT_TOLERANCE:
            sys.exit(f"'{name}' differs after training")
    model.load_state_dict(trained)
    print(f"all losses agree within {TOLERANCE}, the trained weights within {WEIGHT_TOLERANCE}")


if __name__ == "__main__":
    main()
