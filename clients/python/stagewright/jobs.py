"""Jobs, workers and checkpoints as Python values."""

import dataclasses
import datetime
import pathlib

from .plans import Plan, plan_from_proto
from .proto import event_pb, jobs_pb, workers_pb

ENDED = ("succeeded", "failed", "cancelled")


@dataclasses.dataclass(frozen=True)
class Job:
    """A job as the planner last recorded it. `step`, `loss` and times are of its latest step."""

    name: str  # "jobs/7"
    display_name: str
    state: str  # "pending", "planning", "waiting_for_devices", "starting", "running", ..., "succeeded"
    message: str
    step: int
    total_steps: int
    loss: float | None
    step_seconds: float
    median_step_seconds: float
    recent_step_seconds: float  # Median of the last 64.
    predicted_step_seconds: float
    # By how much the last steps take longer than predicted, over the prediction, and what that comes from, a line each; 0
    # and none while they are within a tenth.
    drift_ratio: float
    drift_causes: tuple[str, ...]
    stragglers: tuple[str, ...]  # Devices that are slower than their like.
    accuracy: float | None
    evaluation_loss: float | None
    skipped_steps: int
    devices: tuple[str, ...]
    growth: str  # While it runs on fewer devices than it may grow to: why, or after which step it gets them.
    warnings: tuple[str, ...]
    owner: str  # Who submitted it; empty where nobody has to say who they are.
    tenant: str
    priority: int
    queue_position: int  # Among jobs that wait for devices, from 1; 0: it does not wait. `message` says why.
    restarts: int
    replans: int
    preemptions: int  # How often it was stopped for a job of higher priority.
    checkpoint_step: int  # Of its last whole checkpoint on the way; 0 without.
    checkpoint_path: pathlib.Path | None  # Of the final one.
    output_path: pathlib.Path
    create_time: datetime.datetime | None
    end_time: datetime.datetime | None
    version: int
    plan: Plan | None = dataclasses.field(default=None, repr=False)  # Not of jobs in a list.

    @property
    def ended(self) -> bool:
        return self.state in ENDED

    @property
    def succeeded(self) -> bool:
        return self.state == "succeeded"


@dataclasses.dataclass(frozen=True)
class WorkerDevice:
    """A device that a worker offers, and the job that holds it, if one does."""

    name: str
    kind: str
    memory_bytes: int
    job: str | None


@dataclasses.dataclass(frozen=True)
class Worker:
    """A worker that is connected now."""

    name: str
    version: str
    address: str
    devices: tuple[WorkerDevice, ...]
    last_heartbeat: datetime.datetime | None


@dataclasses.dataclass(frozen=True)
class Checkpoint:
    """A whole checkpoint of a job: the final one, a `.safetensors` file, or a directory to resume from."""

    step: int
    path: pathlib.Path
    final: bool


def state_to_proto(state: str) -> int:
    """ValueError, naming those that there are."""
    known = {name.removeprefix("JOB_STATE_").lower(): value for name, value in event_pb.JobState.items() if value}
    if state not in known:
        raise ValueError(f"no state {state!r}: expected one of {', '.join(known)}")
    return known[state]


def job_from_proto(job: "jobs_pb.Job") -> Job:
    metrics = job.metrics
    trained = metrics.step > 0
    return Job(
        name=job.name,
        display_name=job.spec.display_name,
        state=event_pb.JobState.Name(job.state).removeprefix("JOB_STATE_").lower(),
        message=job.message,
        step=metrics.step,
        total_steps=metrics.total_steps,
        loss=metrics.loss if trained else None,
        step_seconds=metrics.step_ns / 1e9,
        median_step_seconds=metrics.median_step_ns / 1e9,
        recent_step_seconds=metrics.recent_step_ns / 1e9,
        predicted_step_seconds=metrics.predicted_step_ns / 1e9,
        drift_ratio=job.drift.ratio,
        drift_causes=tuple(job.drift.causes),
        stragglers=tuple(straggler.device for straggler in job.stragglers),
        accuracy=metrics.accuracy if metrics.accuracy >= 0 and job.spec.evaluation_data_path else None,
        evaluation_loss=metrics.evaluation_loss if metrics.evaluation_loss != 0 else None,
        skipped_steps=metrics.skipped_steps,
        devices=tuple(job.devices),
        growth=job.growth,
        warnings=tuple(job.warnings),
        owner=job.spec.owner,
        tenant=job.spec.tenant,
        priority=job.spec.priority,
        queue_position=job.queue_position,
        restarts=job.restarts,
        replans=job.replans,
        preemptions=job.preemptions,
        checkpoint_step=job.checkpoint_step,
        checkpoint_path=pathlib.Path(job.checkpoint_path) if job.checkpoint_path else None,
        output_path=pathlib.Path(job.spec.output_path),
        create_time=_time(job.create_time),
        end_time=_time(job.end_time),
        version=job.version,
        # Without the names of nodes a plan says little: jobs in lists and streams come without.
        plan=plan_from_proto(job.plan, job.spec.graph) if job.HasField("plan") and job.spec.graph.nodes else None,
    )


def worker_from_proto(worker: "workers_pb.Worker") -> Worker:
    devices = tuple(WorkerDevice(d.name, d.kind, d.memory_bytes, d.job or None) for d in worker.devices)
    return Worker(worker.name, worker.version, worker.address, devices, _time(worker.last_heartbeat_time))


def checkpoints_of(job: Job) -> list[Checkpoint]:
    """Those that lie in the job's output directory, as far as this machine sees it: a directory counts once it has its
    manifest, which is written last."""
    found = []
    for manifest in sorted(job.output_path.glob("checkpoints/step-*/manifest.json")):
        found.append(Checkpoint(int(manifest.parent.name.removeprefix("step-")), manifest.parent, final=False))
    if job.checkpoint_path is not None and job.checkpoint_path.exists():
        found.append(Checkpoint(job.step, job.checkpoint_path, final=True))
    return found


def _time(stamp: object) -> datetime.datetime | None:
    return stamp.ToDatetime(tzinfo=datetime.timezone.utc) if stamp.seconds else None
