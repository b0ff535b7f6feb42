"""A planner, a worker and the command line as processes: a job from its submission to its merged checkpoint."""

import json
import pathlib
import re
import shutil
import signal
import subprocess
import time

from machine import Ended, Machine, run
from report import Finding, failed, judge, proved

MERGED = "model.safetensors"
LISTENING = re.compile(r"listening on ([^\s,]+)")


class Services:
    """Processes on loopback, all of which end with `close`."""

    def __init__(self, machine: Machine, folder: pathlib.Path):
        self.machine = machine
        self.folder = folder
        self.address = ""
        self.processes: dict[str, subprocess.Popen] = {}

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def start(self, name: str, *command) -> None:
        with open(self.folder / f"{name}.log", "w") as log:
            self.processes[name] = subprocess.Popen(
                list(map(str, command)), stderr=log, stdout=log, env=self.machine.environment(), cwd=self.folder
            )

    def log(self, name: str) -> str:
        return (self.folder / f"{name}.log").read_text()

    def start_planner(self, seconds: float) -> None:
        self.start(
            "planner", self.machine.program("stagewright-planner"), "--listen", "127.0.0.1:0", "--metrics-listen", "",
            "--state", self.folder / "state.db",
        )  # fmt: skip
        found = await_that(lambda: LISTENING.search(self.log("planner")), seconds)
        if not found:
            raise RuntimeError(f"the planner does not listen: {self.log('planner')[-500:]}")
        self.address = found.group(1)

    def start_worker(self, name: str, devices: str, *flags) -> None:
        program = self.machine.program("stagewright-worker")
        self.start(name, program, "--planner", self.address, "--name", name, "--devices", devices, *flags)

    def cli(self, *arguments, seconds: float) -> Ended:
        command = [self.machine.program("stagewright"), "--planner-address", self.address, *arguments]
        return run(command, seconds, self.machine.environment())

    def json(self, *arguments, seconds: float = 30):
        ended = self.cli(*arguments, "-o", "json", seconds=seconds)
        if not ended.ok:
            raise RuntimeError(f"stagewright {arguments[0]}: {ended.tail()}")
        return json.loads(ended.output)

    def close(self) -> None:
        for process in reversed(list(self.processes.values())):
            process.send_signal(signal.SIGTERM)
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def await_that(condition, seconds: float):
    """What the condition gives once that is true, or what it gave last."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.2)
    return found


def submit_flags(machine: Machine, stem: pathlib.Path, out: pathlib.Path, samples: int, steps: int) -> list:
    return [
        "submit", machine.bundle / f"graphs/{machine.sizes}.swg", "--weights", f"{stem}.safetensors",
        "--data", f"{stem}.data.safetensors", "--out", out, "--mini-batch", samples, "--steps", steps,
        "--optimizer", "adam", "--lr", "1e-4", "--no-shuffle", "--checkpoint-every", max(1, steps // 2),
    ]  # fmt: skip


def prove_service(
    machine: Machine, stem: pathlib.Path, samples: int, steps: int, flags: list, workers: list[str], seconds: float
) -> list[Finding]:
    """One job on so many workers; `workers` are their --devices."""
    folder = machine.work / f"services-{len(workers)}"
    folder.mkdir(parents=True)
    try:
        return prove_in(machine, folder, stem, samples, steps, flags, workers, seconds)
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # Checkpoints are large.


def prove_in(
    machine: Machine, folder: pathlib.Path, stem: pathlib.Path, samples: int, steps: int, flags: list,
    workers: list[str], seconds: float,
) -> list[Finding]:  # fmt: skip
    deadline = time.monotonic() + seconds
    with Services(machine, folder) as services:
        try:
            return job_findings(services, stem, samples, steps, flags, workers, deadline)
        except (RuntimeError, KeyError, json.JSONDecodeError) as error:
            logs = "\n".join(f"{name}: {services.log(name)[-400:]}" for name in services.processes)
            return [failed("planner and workers run a job", f"{error}\n{logs}")]


def job_findings(
    services: Services, stem: pathlib.Path, samples: int, steps: int, flags: list, workers: list[str], deadline: float
) -> list[Finding]:
    out = services.folder / "out"
    services.start_planner(20)
    for i, devices in enumerate(workers):
        services.start_worker(f"w{i}", devices)

    def registered() -> list[dict]:
        """All workers, or none yet."""
        for name, process in services.processes.items():
            if process.poll() is not None:
                raise RuntimeError(f"{name} ended with {process.returncode}")
        found = services.json("workers")["workers"]
        return found if len(found) == len(workers) else []

    # A worker registers with the rates that it has measured.
    offered = [device for worker in await_that(registered, deadline - time.monotonic()) for device in worker["devices"]]
    if not offered:
        raise RuntimeError("the workers did not register")
    words = [f"{device['name']}: {device['kind']}, {int(device['memory_bytes']) / 1e9:.0f} GB" for device in offered]
    findings = [proved("workers measure and register their devices", "; ".join(words))]
    submit = submit_flags(services.machine, stem, out, samples, steps)
    ended = services.cli(*submit, *flags, "--watch", "-o", "json", seconds=deadline - time.monotonic())
    state = json.loads(ended.output)["state"] if ended.ok else ended.tail()
    findings.append(judge(f"a job of {steps} steps succeeds", state == "succeeded", state))
    saved = sorted(path.name for path in out.rglob("*") if path.is_file()) if out.exists() else []
    names = f"{len(saved)} files: {', '.join(saved[:6])}"
    findings.append(judge("its checkpoint is merged", MERGED in saved, names))
    return findings
