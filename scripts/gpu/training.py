"""Jobs of one process (job_bench) beside eager PyTorch: the same weights, samples and micro-batches."""

import dataclasses
import json
import os
import pathlib
import statistics

from machine import Ended, Machine, run
from report import Finding, failed, judge, not_proved

WARM_UP = 5  # Steps that figures leave out.
MODEL = "tests/bench/run/gpt.py"
EAGER = "tests/bench/run/pytorch.py"


@dataclasses.dataclass(frozen=True)
class Setting:
    """What both sides train: `micro_batches` of `micro_batch` samples in a step."""

    precision: str  # fp32 or bf16.
    micro_batch: int
    micro_batches: int
    steps: int

    @property
    def samples(self) -> int:
        return self.micro_batch * self.micro_batches


@dataclasses.dataclass(frozen=True)
class Shape:
    """`stages` in all, in turn on so many devices of the job, all of which are the one there is. Between them tensors go
    by reference, or through NCCL."""

    stages: int
    devices: int = 1
    nccl: bool = False

    @property
    def name(self) -> str:
        stages = f"{self.stages} stage" + "s" * (self.stages > 1)
        devices = f"{self.devices} device" + "s" * (self.devices > 1)
        return f"{stages} on {devices}" + " over NCCL" * self.nccl


@dataclasses.dataclass(frozen=True)
class Trained:
    losses: list[float]
    seconds: list[float]
    peak_bytes: int | None = None

    def median_seconds(self) -> float:
        """Of a step, without those that warm up unless there are no others."""
        return statistics.median(self.seconds[WARM_UP:] or self.seconds)

    def row(self, setting: Setting) -> dict:
        median = self.median_seconds()
        row = {"step, s": median, "samples/s": setting.samples / median, "last loss": self.losses[-1]}
        if self.peak_bytes is not None:
            row["peak, GB"] = self.peak_bytes / 1e9
        return row


def first_difference(ours: list[float], theirs: list[float], tolerance: float) -> str:
    """The first step whose losses differ by more, relatively, or ""; as many steps on both sides, or that is said."""
    if len(ours) != len(theirs):
        return f"{len(ours)} steps and {len(theirs)}"
    for step, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        if not abs(mine - other) <= tolerance * abs(other):
            return f"step {step}: {mine:.8g} and {other:.8g}"
    return ""


def largest_difference(ours: list[float], theirs: list[float]) -> float:
    return max(abs(mine - other) / abs(other) for mine, other in zip(ours, theirs, strict=True))


class Training:
    """Files of a model, made from a seed, and runs with them."""

    def __init__(self, machine: Machine, sizes: str):
        self.machine = machine
        self.sizes = sizes
        self.graph = machine.bundle / "graphs" / f"{sizes}.swg"
        self.stem = machine.work / f"model-{sizes}"

    def make_model(self, samples: int, seconds: float) -> Ended:
        """So many samples, and the weights unless they are there from before."""
        write = ["data"] if pathlib.Path(f"{self.stem}.safetensors").exists() else ["weights", "data"]
        flags = ["--sizes", self.sizes, "--samples", samples, "--write", *write]
        command = self.machine.python(MODEL, self.stem, *flags)
        return run(command, seconds, dict(os.environ))

    def eager(self, setting: Setting, fused: bool, seconds: float) -> tuple[Trained | None, Ended]:
        out = self.machine.work / "eager.jsonl"
        out.unlink(missing_ok=True)
        command = self.machine.python(
            EAGER, "eager", "--sizes", self.sizes, "--micro-batch", setting.micro_batch,
            "--micro-batches", setting.micro_batches, "--steps", setting.steps, "--precision", setting.precision,
            "--device", self.machine.device, "--out", out, "--parent", os.getpid(), *(["--fused"] if fused else []),
        )  # fmt: skip
        ended = run(command, seconds, dict(os.environ))
        if not ended.ok:
            return None, ended
        lines = [json.loads(line) for line in out.read_text().splitlines()]
        return Trained([line["loss"] for line in lines], [line["step_seconds"] for line in lines]), ended

    def write_plan(self, shape: Shape, setting: Setting) -> pathlib.Path:
        """The model's own cut (gpt.plan), which takes torch to import."""
        path = self.machine.work / f"plan-{shape.stages}-{shape.devices}.json"
        code = (
            "import sys, json, gpt; sizes, devices, loops, micro_batch = sys.argv[1:];"
            "print(json.dumps(gpt.plan(int(devices), int(loops), int(micro_batch), gpt.sizes_of(sizes))))"
        )
        folder = (self.machine.root / MODEL).parent
        command = self.machine.python("tests/bench/run/gpt.py")[:1]
        arguments = [self.sizes, shape.devices, shape.stages // shape.devices, setting.micro_batch]
        environment = {**os.environ, "PYTHONPATH": str(folder)}
        ended = run([*command, "-W", "ignore", "-c", code, *arguments], 60, environment)
        path.write_text(ended.output.strip().splitlines()[-1] if ended.ok else "")
        return path

    def ours(self, setting: Setting, shape: Shape, seconds: float) -> tuple[Trained | None, Ended]:
        out = self.machine.work / "job.json"
        out.unlink(missing_ok=True)
        precision = "graph" if setting.precision == "fp32" else setting.precision
        command = [
            self.machine.program("job_bench"), "--graph", self.graph,
            "--weights", f"{self.stem}.safetensors", "--data", f"{self.stem}.data.safetensors",
            "--plan", self.write_plan(shape, setting), "--devices", shape.devices, "--mini-batch", setting.samples,
            *(["--nccl"] if shape.nccl else ["--torch-device", self.machine.device]),
            "--precision", precision, "--steps", setting.steps, "--json", out,
        ]  # fmt: skip
        ended = run(command, seconds, self.machine.of_nccl() if shape.nccl else self.machine.environment())
        if not ended.ok:
            return None, ended
        found = json.loads(out.read_text())
        return Trained(found["losses"], found["step_seconds"], found["peak_bytes"]), ended


def same_losses(name: str, ours: Trained | None, theirs: Trained | None, ended: Ended, tolerance: float) -> Finding:
    claim = f"{name}: losses of all steps within {tolerance:g} of eager PyTorch's"
    if ours is None:
        return failed(claim, ended.tail())
    if theirs is None:
        return not_proved(claim, "eager PyTorch did not train")
    difference = first_difference(ours.losses, theirs.losses, tolerance)
    if difference:
        return failed(claim, difference)
    return judge(claim, True, f"largest difference {largest_difference(ours.losses, theirs.losses):.1e}")


def as_fast(name: str, ours: Trained | None, theirs: Trained | None, least: float, dry: bool) -> Finding:
    """Throughput over that of eager PyTorch at its fastest."""
    claim = f"{name}: at least {least:g} of eager PyTorch's throughput"
    if ours is None or theirs is None:
        return not_proved(claim, "one of both did not train")
    ratio = theirs.median_seconds() / ours.median_seconds()
    if dry:
        return not_proved(claim, f"{ratio:.3f} on a CPU, of a small model, says nothing of a GPU")
    return judge(claim, ratio >= least, f"{ratio:.3f}")
