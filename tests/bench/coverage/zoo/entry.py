"""What the coverage suite tries: entries, each of which makes a model, data and a loss as a user has them."""

import dataclasses
from collections.abc import Callable

import torch
from torch import nn
from torch.utils import _pytree as pytree

SAMPLES = 16
MINI_BATCH = 8


@dataclasses.dataclass(frozen=True)
class Task:
    """A model to train. `inputs` and `targets` have SAMPLES samples along the batch dimension."""

    model: nn.Module
    # A tensor, a tuple of positional arguments or a dict of keyword arguments, as stagewright.export takes them.
    inputs: object
    # loss(output, target), or loss(output) where there are no targets; None where the model returns its loss.
    loss: Callable | None
    targets: object = None
    # Further arguments of stagewright.export: batch_dim and the like.
    options: dict = dataclasses.field(default_factory=dict)

    @property
    def batch_dim(self) -> int:
        return self.options.get("batch_dim", 0)

    def part(self, tree: object, first: int, count: int) -> object:
        """Samples [first, first + count) of inputs or targets."""
        return pytree.tree_map_only(torch.Tensor, lambda t: t.narrow(self.batch_dim, first, count), tree)


@dataclasses.dataclass(frozen=True)
class Entry:
    name: str
    source: str  # transformers, diffusers, torch.nn, written out or circumstance
    build: Callable[[], Task]
    # Whether a refusal is the right answer, and why.
    refusal: str = ""
    # Samples of a mini-batch depend on each other, so that only plans with the whole of it in one pass are right.
    whole: bool = False
    # Draws random numbers in its forward pass: compared with the same job on one device instead of with PyTorch.
    random: bool = False
    # How far a loss, a tensor or the change of one may be off, relative to its size.
    tolerance: float = 1e-4

    @property
    def key(self) -> str:
        """The name as part of a file's name."""
        return "".join(c if c.isalnum() else "-" for c in self.name.lower()).strip("-")

    def make(self) -> Task:
        """The same task at every call."""
        torch.manual_seed(0)
        task = self.build()
        task.model.train()
        return task


ENTRIES: dict[str, Entry] = {}


def add(name: str, source: str, build: Callable[[], Task], **properties) -> None:
    made = Entry(name, source, build, **properties)
    if made.key in ENTRIES:
        raise ValueError(f"two entries are called '{made.key}'")
    ENTRIES[made.key] = made


def entry(name: str, source: str, **properties):
    """Decorates the function that makes an entry's task."""

    def decorate(build: Callable[[], Task]) -> Callable[[], Task]:
        add(name, source, build, **properties)
        return build

    return decorate
