"""The models of the coverage suite."""

from . import circumstances, in_batch, losses, networks, state, torch_nn  # noqa: F401
from .entry import ENTRIES, MINI_BATCH, SAMPLES, Entry, Task

__all__ = ["ENTRIES", "MINI_BATCH", "SAMPLES", "Entry", "Task", "add_libraries"]


def add_libraries() -> None:
    """Adds the models that come from transformers and diffusers, which must be installed."""
    from . import audio, autoencoders, decoders, diffusion, encoders  # noqa: F401
    from . import multimodal, text_circumstances, translators, vision  # noqa: F401
