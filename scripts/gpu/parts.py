"""The parts of a proof, most valuable first, each with its limit of time."""

import ctypes
import dataclasses
import os
import pathlib
import platform
import shutil
import time
from collections.abc import Callable

from machine import Machine, run
from report import Finding, Result, failed, judge, not_proved, proved
from services import Job, prove_service
from suites import hung_test, run_suite
from training import Setting, Shape, Trained, Training, as_fast, same_losses

PROGRAMS = ("stagewright-planner", "stagewright-worker", "stagewright", "job_bench", "engine_bench")
DEVICE_SUITES = (
    "cuda_runtime_test",
    "device_cuda_clock_test",
    "executor_accelerator_test_gpu",
    "torch_attention_test_gpu",
)
NCCL_SUITES = ("transport_conformance_test_gpu", "all_reduce_test_gpu")
ENGINE_NCCL_SUITES = ("executor_accelerator_memory_test_gpu",)
PROCESS_SUITES = ("transport_process_test_gpu",)
SUITES = (*DEVICE_SUITES, *NCCL_SUITES, *ENGINE_NCCL_SUITES, *PROCESS_SUITES)

LEAST_THROUGHPUT = {Shape(1): 0.95, Shape(4): 0.93}  # Of eager PyTorch's.


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    seconds: float
    must: bool
    prove: Callable[[Machine, float], tuple[list[Finding], dict]]

    def run(self, machine: Machine, seconds: float) -> Result:
        """Within its own time and that given. What it raises is a failure of this part, not of those after it."""
        start = time.monotonic()
        if seconds < 1:
            findings, figures = [not_proved(self.name, "no time was left")], {}
        else:
            try:
                findings, figures = self.prove(machine, min(seconds, self.seconds))
            except Exception as error:  # noqa: BLE001
                findings, figures = [failed(self.name, f"{type(error).__name__}: {error}")], {}
        return Result(self.name, self.must, tuple(findings), figures, time.monotonic() - start)


def nccl_version(library: pathlib.Path) -> int:
    version = ctypes.c_int()
    code = ctypes.CDLL(str(library)).ncclGetVersion(ctypes.byref(version))
    return version.value if code == 0 else 0


def facts(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
    """That programs start with the libraries of this machine, and LibTorch's CUDA among them."""
    deadline = time.monotonic() + seconds
    figures = {"machine": platform.platform(), "libc": " ".join(platform.libc_ver())}
    findings = []
    for name in (*PROGRAMS, *SUITES):
        linked = run(["ldd", machine.program(name)], 20, machine.environment())
        missing = [line.split()[0] for line in linked.output.splitlines() if "not found" in line]
        torch = name not in ("stagewright-planner", "stagewright", *NCCL_SUITES, *PROCESS_SUITES, *DEVICE_SUITES[:2])
        cuda = not torch or "libtorch_cuda.so" in linked.output
        why = f"missing: {', '.join(missing)}" if missing else "" if cuda else "does not load libtorch_cuda.so"
        if not linked.ok or why:
            findings.append(failed(f"{name} finds its libraries", why or linked.tail()))
    if not findings:
        findings.append(proved("all programs find their libraries, LibTorch's CUDA among them"))
    figures["NCCL packed"] = nccl_version(machine.bundle / "nccl" / "libnccl.so.2")
    code = "import torch; print(torch.__version__, torch.cuda.is_available() and torch.cuda.get_device_name())"
    seen = run([*machine.python("")[:1], "-W", "ignore", "-c", code], deadline - time.monotonic(), dict(os.environ))
    figures["torch"] = seen.output.strip()
    there = seen.ok and not seen.output.strip().endswith("False")
    findings.append(judge("PyTorch sees the GPU", there, seen.output.strip() or seen.tail()) if not machine.dry
                    else not_proved("PyTorch sees the GPU", "a dry run uses none"))  # fmt: skip
    if shutil.which("nvidia-smi"):
        figures["nvidia-smi"] = run(
            ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"], 20,
            dict(os.environ),
        ).output.strip()  # fmt: skip
    return findings, figures


def suites_part(names: tuple[str, ...], nccl: bool) -> Callable[[Machine, float], tuple[list[Finding], dict]]:
    """Suites, one after the other. The test in which one hangs is run once more, NCCL saying all that it does."""

    def prove(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
        deadline = time.monotonic() + seconds
        environment = machine.of_nccl() if nccl else machine.environment()
        findings, figures = [], {}
        for i, name in enumerate(names):
            share = (deadline - time.monotonic()) / (len(names) - i)
            finding, ended = run_suite(machine, machine.program(name), share * 0.85, environment)
            findings.append(finding)
            test = hung_test(ended.output) if ended.code is None else ""
            if test:
                again = run_suite(machine, machine.program(name), share * 0.15, {**environment, "NCCL_DEBUG": "INFO"},
                                  f"--gtest_filter={test}")[1]  # fmt: skip
                figures[f"{test} again"] = (again.output + again.errors)[-20000:]
        return findings, figures

    return prove


def training_part(
    setting: Setting, shapes: tuple[Shape, ...], tolerance: float, compare_speed: bool
) -> Callable[[Machine, float], tuple[list[Finding], dict]]:
    def prove(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
        deadline = time.monotonic() + seconds
        own = dataclasses.replace(setting, steps=6, micro_batch=2) if machine.dry else setting
        training = Training(machine, machine.sizes)
        made = training.make_model(own.samples, deadline - time.monotonic())
        if not made.ok:
            return [failed("the model is made", made.tail())], {}
        rows, findings = {}, []
        theirs: Trained | None = None
        for fused in (False, True) if compare_speed else (False,):
            found, ended = training.eager(own, fused, deadline - time.monotonic())
            name = f"eager PyTorch, {own.precision}" + (", fused Adam" if fused else "")
            if found is None:
                findings.append(failed(f"{name} trains", ended.tail()))
                continue
            rows[name] = found.row(own)
            if theirs is None or found.median_seconds() < theirs.median_seconds():
                theirs = found
        for shape in shapes:
            name = f"{shape.name}, {own.precision}"
            ours, ended = training.ours(own, shape, deadline - time.monotonic())
            findings.append(same_losses(name, ours, theirs, ended, tolerance))
            if ours is not None:
                rows[name] = ours.row(own)
            if compare_speed and shape in LEAST_THROUGHPUT:
                findings.append(as_fast(name, ours, theirs, LEAST_THROUGHPUT[shape], machine.dry))
        return on_this_device(machine, findings), {"rows": rows}

    return prove


def on_this_device(machine: Machine, findings: list[Finding]) -> list[Finding]:
    """What holds on a CPU is still open on a GPU; what fails, fails."""
    if not machine.dry:
        return findings
    return [*findings, not_proved("the same on a GPU, with a larger model", "a dry run trains a small one on a CPU")]


def services_part(workers: int) -> Callable[[Machine, float], tuple[list[Finding], dict]]:
    """A job of one stage on one worker, or of a stage on each of several, all on the one device."""

    def prove(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
        deadline = time.monotonic() + seconds
        setting = Setting("fp32", 2, 4, 4)
        training = Training(machine, machine.small_sizes)
        made = training.make_model(setting.samples, seconds)
        if not made.ok:
            return [failed("the model is made", made.tail())], {}
        job = Job(
            graph=training.graph, stem=training.stem, plan=training.write_plan(Shape(workers, workers), setting),
            samples=setting.samples, steps=setting.steps,
        )  # fmt: skip
        devices = ["cpu:1" if machine.dry else machine.device] * workers
        findings = prove_service(machine, job, devices, deadline - time.monotonic())
        return on_this_device(machine, findings), {}

    return prove


def engine_over_nccl(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
    """Small jobs as on the processor, then the model's losses, both with a device of the job for each stage."""
    start = time.monotonic()
    findings, figures = suites_part(ENGINE_NCCL_SUITES, nccl=True)(machine, seconds / 2)
    shape = Shape(4, 4, nccl=True)
    if machine.dry:
        return [*findings, not_proved(f"{shape.name}: losses as eager PyTorch's", "a dry run uses no GPU")], figures
    left = seconds - (time.monotonic() - start)
    more, rows = training_part(FP32, (shape,), 1e-4, compare_speed=False)(machine, left)
    return [*findings, *more], {**figures, **rows}


def overhead(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
    """What the engine costs for each action: stages of one tiny operator, whose kernels take next to nothing."""
    flags = ["--torch-device", machine.device, "--micro-batches", 256, *([] if machine.dry else ["--nccl"])]
    ended = run([machine.program("engine_bench"), *flags], seconds, machine.of_nccl())
    claim = "the engine's cost for each action was measured"
    if not ended.ok:
        return [failed(claim, ended.tail())], {}
    lines = [" ".join(line.split()) for line in ended.output.strip().splitlines()]
    return on_this_device(machine, [judge(claim, True, "; ".join(lines))]), {"engine": lines}


def sanitizer(machine: Machine, seconds: float) -> tuple[list[Finding], dict]:
    claim = "compute-sanitizer finds no bad access in a job"
    tool = shutil.which("compute-sanitizer", path="/usr/local/cuda/bin:/usr/bin:/bin")
    if machine.dry or tool is None:
        return [not_proved(claim, "a dry run uses no GPU" if machine.dry else "the tool is not there")], {}
    program = machine.program("executor_accelerator_test_gpu")
    flags = ["--tool", "memcheck", "--error-exitcode", 9, program, "--gtest_filter=*TheLossAloneMaySkipAStep"]
    ended = run([tool, *flags], seconds, machine.environment(STAGEWRIGHT_REQUIRE_GPU="1"))
    if ended.code is None:
        return [not_proved(claim, ended.tail())], {}
    return [judge(claim, ended.ok, ended.tail(2))], {}


FP32 = Setting("fp32", micro_batch=4, micro_batches=4, steps=20)
BF16 = Setting("bf16", micro_batch=8, micro_batches=4, steps=20)

PARTS = (
    Part("facts", 40, True, facts),
    Part("device", 60, True, suites_part(DEVICE_SUITES, nccl=False)),
    Part("nccl", 120, True, suites_part(NCCL_SUITES, nccl=True)),
    Part("fp32", 130, True, training_part(FP32, (Shape(1), Shape(4)), 1e-4, compare_speed=False)),
    Part("bf16", 130, True,
         training_part(BF16, (Shape(1), Shape(4), Shape(8), Shape(4, 4)), 2e-2, compare_speed=True)),
    Part("services", 60, True, services_part(1)),
    Part("overhead", 30, False, overhead),
    Part("engine over nccl", 90, False, engine_over_nccl),
    Part("two workers", 45, False, services_part(2)),
    Part("nccl between processes", 60, False, suites_part(PROCESS_SUITES, nccl=True)),
    Part("sanitizer", 30, False, sanitizer),
)  # fmt: skip
