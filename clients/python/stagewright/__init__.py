"""Captures an unmodified ``torch.nn.Module`` for Stagewright.

stagewright.export(model, example_inputs, loss=nn.CrossEntropyLoss(), batch_dim=0)
stagewright.save_dataset("train.safetensors", x=images, target=labels)
stagewright.load_checkpoint(model, "checkpoint.safetensors")
"""

from .checkpoint import TrainingCheckpoint, import_state_dict, load_checkpoint, load_optimizer, read_checkpoint
from .dataset import save_dataset
from .errors import (
    CheckpointError,
    DatasetError,
    ExportError,
    FrameworkError,
    GraphFileError,
    PlanFileError,
    StagewrightError,
)
from .exporting import Exported, export
from .graph_file import load_graph, save_graph
from .version import __version__

__all__ = [
    "CheckpointError",
    "DatasetError",
    "ExportError",
    "Exported",
    "FrameworkError",
    "GraphFileError",
    "PlanFileError",
    "StagewrightError",
    "TrainingCheckpoint",
    "__version__",
    "export",
    "import_state_dict",
    "load_checkpoint",
    "load_graph",
    "load_optimizer",
    "read_checkpoint",
    "save_dataset",
    "save_graph",
]
