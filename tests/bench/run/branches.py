"""A small MMT: four branches of Transformer layers that a head joins."""

import pathlib
import sys

import stagewright
import torch
from safetensors.torch import save_file
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[3] / "examples" / "models"))
from transformer import MultiModalTransformer  # noqa: E402

LAYERS, WIDTH, HEADS, LENGTH = 2, 256, 4, 128


class FourBranches(MultiModalTransformer):
    """With arguments of names of their own, which name the graph's inputs."""

    def forward(self, text, image, audio, video):
        return super().forward(text, image, audio, video)


def export(directory: pathlib.Path, samples: int) -> pathlib.Path:
    """Graph, weights and data; the stem of their names."""
    torch.manual_seed(0)
    model = FourBranches(4, LAYERS, WIDTH, HEADS, 4 * WIDTH)
    inputs = {name: torch.randn(samples, LENGTH, WIDTH) for name in ("text", "image", "audio", "video")}
    target = torch.randn(samples, 1)
    stem = directory / "branches"
    example = {name: value[:2] for name, value in inputs.items()}
    stagewright.export(model, example, loss=nn.MSELoss(), targets=target[:2], path=f"{stem}.swg")
    save_file({**inputs, "target": target}, f"{stem}.data.safetensors")
    return stem
