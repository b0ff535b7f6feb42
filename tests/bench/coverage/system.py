"""What the suite asks the command line for: plans, and jobs on the workers of one planner."""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

from reference import LEARNING_RATE, STEPS
from zoo import MINI_BATCH

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "integration"))
import processes  # noqa: E402

# The state of this step is saved on the way.
SAVED_STEP = 3
PATIENCE = 240.0


class System(processes.Processes):
    """A planner and workers, for as many jobs as the suite has."""

    def replace_lost(self) -> None:
        """Starts workers anew that a model has brought down, so that the next one is judged by itself."""
        lost = [name for name, worker in self.workers.items() if worker.poll() is not None]
        for name in lost:
            self.start_worker(name)
        if lost:
            self.await_workers(len(self.workers))


@dataclasses.dataclass(frozen=True)
class Files:
    """The graph, its weights and the data, and a folder for what jobs write."""

    graph: pathlib.Path
    weights: pathlib.Path | None
    data: pathlib.Path
    folder: pathlib.Path


@dataclasses.dataclass
class Answer:
    """Of the command line. `error` is empty, or why there is no value."""

    value: dict
    error: str = ""
    warnings: list[str] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Job:
    """A job that has ended. `error` says why it is none, `planned` whether it got as far as running."""

    error: str = ""
    planned: bool = False
    stages: int = 0
    warnings: list[str] = dataclasses.field(default_factory=list)
    losses: list[float] = dataclasses.field(default_factory=list)
    checkpoint: pathlib.Path | None = None
    on_the_way: pathlib.Path | None = None


def plan(files: Files, devices: int, time_limit: float) -> Answer:
    """The plan that `stagewright plan --local` makes for as many CPUs."""
    command = [processes.BIN / "stagewright", "plan", "--local", files.graph, "--cluster", f"cpu:{devices}"]
    command += ["--mini-batch", MINI_BATCH, "--time-limit", time_limit, "-o", "json"]
    return _answer(subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=PATIENCE))


def train(system: System, files: Files, devices: int, **flags) -> Job:
    """Trains for STEPS steps under the plan that the flags of `stagewright submit` ask for."""
    out = files.folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    options = dict(
        weights=files.weights, data=files.data, out=out, mini_batch=MINI_BATCH, steps=STEPS, optimizer="sgd",
        lr=LEARNING_RATE, no_shuffle=True, checkpoint_every=SAVED_STEP, devices=devices, **flags,
    )  # fmt: skip
    arguments = ["submit", files.graph]
    for name, value in options.items():
        if value is not None:
            arguments += [f"--{name.replace('_', '-')}"] + ([] if value is True else [value])
    answer = _answer(system.cli(*arguments, "--watch", "-o", "json", timeout=PATIENCE))
    job = Job(error=answer.error, warnings=answer.warnings)
    if not answer.value:
        return job
    name = answer.value["name"]
    job.stages = len(_answer(system.cli("plan", "show", name, "-o", "json")).value.get("stages", ()))
    job.planned = job.stages > 0
    job.error = answer.value["message"] or answer.error if answer.value["state"] != "succeeded" else ""
    losses = _answer(system.cli("jobs", "losses", name, "-o", "json"))
    job.losses = [step["loss"] for step in losses.value.get("steps", ())]
    if not job.error and len(job.losses) != STEPS:
        job.error = f"the planner has the losses of {len(job.losses)} of {STEPS} steps {losses.error}"
    if job.error:
        return job
    job.checkpoint = out / "model.safetensors"
    on_the_way = out / "checkpoints" / f"step-{SAVED_STEP:010d}"
    job.on_the_way = on_the_way if (on_the_way / "manifest.json").is_file() else None
    return job


def uneven_plan(system: System, files: Files) -> pathlib.Path | None:
    """A plan by hand that deals the rows of a cut anew: the first half of the operators on one device with the whole
    mini-batch, the second half on two devices with smaller micro-batches. None for graphs of one operator."""
    shown = _answer(system.cli("graph", "show", files.graph, "-o", "json")).value
    nodes = [node for operator in shown["operators"] for node in operator["nodes"]]
    if len(shown["operators"]) < 2:
        return None
    half = sum(len(operator["nodes"]) for operator in shown["operators"][: len(shown["operators"]) // 2])
    path = files.folder / "uneven.json"
    stages = [
        {"nodes": nodes[:half], "devices": [0], "micro_batch": MINI_BATCH},
        {"nodes": ["*"], "devices": [1, 2], "micro_batch": MINI_BATCH // 2},
    ]
    path.write_text(json.dumps({"micro_batch": MINI_BATCH, "stages": stages}))
    return path


def _answer(done: subprocess.CompletedProcess) -> Answer:
    """JSON of standard output; the warnings of standard error and, if the command failed, why."""
    lines = [line.removeprefix("stagewright: ") for line in done.stderr.splitlines() if line.strip()]
    try:
        value = json.loads(done.stdout) if done.stdout.strip() else {}
    except json.JSONDecodeError:
        value = {}
    warnings = [line.removeprefix("warning: ") for line in lines if line.startswith("warning")]
    if done.returncode != 0:
        said = next((line for line in reversed(lines) if not line.startswith("warning")), "")
        return Answer(value, value.get("reason") or said or f"exit code {done.returncode}", warnings)
    return Answer(value, "", warnings)
