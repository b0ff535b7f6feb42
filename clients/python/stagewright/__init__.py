"""Trains unmodified ``torch.nn.Module``s with Stagewright.

stagewright.train(model, dataset, loss=nn.CrossEntropyLoss(), mini_batch=64, epochs=5, lr=1e-3)

or step by step:

stagewright.export(model, example_inputs, loss=nn.CrossEntropyLoss(), batch_dim=0)
stagewright.save_dataset("train.safetensors", x=images, target=labels)
client = stagewright.Client(); job = client.submit("model.swg", ...); client.wait(job.name)
stagewright.load_checkpoint(model, "checkpoint.safetensors")
"""

from .checkpoint import TrainingCheckpoint, import_state_dict, load_checkpoint, load_optimizer, read_checkpoint
from .client import AsyncClient, Client
from .dataset import save_dataset
from .errors import (
    CheckpointError,
    DatasetError,
    DeadlineError,
    ExportError,
    FrameworkError,
    GraphFileError,
    InvalidError,
    JobError,
    NoPlanError,
    NotFoundError,
    OptimizerError,
    PlanFileError,
    RefusedError,
    ServiceError,
    StagewrightError,
    UnavailableError,
    UnreachableError,
    VerificationError,
)
from .exporting import Exported, export
from .graph_file import load_graph, save_graph
from .history import History, Step
from .jobs import Checkpoint, Job, Worker
from .logs import LogLine
from .plans import Plan, Stage, load_plan
from .security import Security
from .settings import JobSettings, LearningRateSchedule, PlanOptions
from .training import Trained, train
from .verify import verify
from .version import __version__

__all__ = [
    "AsyncClient",
    "Checkpoint",
    "CheckpointError",
    "Client",
    "DatasetError",
    "DeadlineError",
    "ExportError",
    "Exported",
    "FrameworkError",
    "GraphFileError",
    "History",
    "InvalidError",
    "Job",
    "JobError",
    "JobSettings",
    "LearningRateSchedule",
    "LogLine",
    "NoPlanError",
    "NotFoundError",
    "OptimizerError",
    "Plan",
    "PlanFileError",
    "PlanOptions",
    "RefusedError",
    "Security",
    "ServiceError",
    "Stage",
    "StagewrightError",
    "Step",
    "Trained",
    "TrainingCheckpoint",
    "UnavailableError",
    "UnreachableError",
    "VerificationError",
    "Worker",
    "__version__",
    "export",
    "import_state_dict",
    "load_checkpoint",
    "load_graph",
    "load_optimizer",
    "load_plan",
    "read_checkpoint",
    "save_dataset",
    "save_graph",
    "train",
    "verify",
]
