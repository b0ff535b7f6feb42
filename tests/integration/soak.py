"""A long job watched from outside: memory and file descriptors of the planner and the workers.

python tests/integration/soak.py [WORKERS] [STEPS] (with the environment of scripts/soak.sh) prints a table and fails if
one of them grows.
"""

import dataclasses
import json
import os
import pathlib
import statistics
import sys
import time

import torch
from processes import ENDED, Processes
from quality import CharacterLoss, Characters, Size, nodes

import stagewright

SETTLED = 50  # Steps, after which nothing may grow.
LEAST_SAMPLES = 9
MEMORY_GROWTH = 0.01
LOOKS = 3  # So many times as many steps, before what grows is believed to: a leak goes on, a busy moment does not.
SIZE = Size(width=64, layers=8, length=32, mini_batch=32)


@dataclasses.dataclass(frozen=True)
class Sample:
    step: int
    memory: dict[str, int]  # Resident bytes, by process.
    files: dict[str, int]  # Open descriptors.


@dataclasses.dataclass(frozen=True)
class Growth:
    process: str
    memory: float  # Relative to what it was.
    memory_bytes: int  # At the end.
    files_before: int  # The fewest at once in the first and the last tenth: connections come and go.
    files_after: int


def resident_bytes(pid: int) -> int:
    return int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def sample(system: Processes, step: int) -> Sample:
    processes = {"planner": system.planner, **system.workers}
    memory = {name: resident_bytes(process.pid) for name, process in processes.items()}
    return Sample(step, memory, {name: len(os.listdir(f"/proc/{p.pid}/fd")) for name, p in processes.items()})


def watch(system: Processes, job: str, steps: int, interval: float, allowed: float) -> list[Sample]:
    """Samples from the step on after which nothing may grow: for as many steps, and for as many samples as it takes."""
    samples = []

    def seen_enough(step: int) -> bool:
        if step < steps or len(samples) < LEAST_SAMPLES:
            return False
        return step >= LOOKS * steps or not violations(growth_of(samples), allowed)

    while not seen_enough((now := system.job(job))["step"]):
        assert now["state"] not in ENDED, now["message"]
        if now["state"] == "running" and now["step"] >= SETTLED:
            samples.append(sample(system, now["step"]))
        time.sleep(interval)
    system.cancel_all()
    return samples


def growth_of(samples: list[Sample]) -> list[Growth]:
    """Between the first and the last tenth of the samples, three at least: what a moment takes is no growth."""
    count = max(LEAST_SAMPLES // 3, len(samples) // 10)
    result = []
    for process in samples[0].memory:
        memory = [s.memory[process] for s in samples]
        before, after = statistics.median(memory[:count]), statistics.median(memory[-count:])
        files = [s.files[process] for s in samples]
        result.append(Growth(process, after / before - 1, int(after), min(files[:count]), min(files[-count:])))
    return result


def plan(workers: int) -> dict:
    """Layers in a row, a stage per worker; with a worker too many for that, the last stages are replicated."""
    stages = min(workers, SIZE.layers)
    share = SIZE.layers / stages
    parts = []
    for s in range(stages):
        layers = [f"layers.{i}" for i in range(int(share * s), int(share * (s + 1)))]
        inner = nodes(*(["embedding"] if s == 0 else []), *layers)
        parts.append({"nodes": inner if s + 1 < stages else ["*"], "devices": [s]})
    return {"micro_batch": SIZE.mini_batch // 4, "stages": parts}


def soak(system: Processes, steps: int, interval: float, allowed: float = MEMORY_GROWTH, **flags) -> list[Growth]:
    torch.manual_seed(0)
    stem = system.path / "soak"
    ids = torch.randint(64, (512, SIZE.length + 1))
    x, target = ids[:, :-1].contiguous(), ids[:, 1:].contiguous()
    model = Characters(64, SIZE)
    stagewright.export(model, {"ids": x[:2]}, loss=CharacterLoss(), targets=target[:2], path=f"{stem}.swg")
    stagewright.save_dataset(f"{stem}.data.safetensors", ids=x, target=target)
    (system.path / "soak.json").write_text(json.dumps(plan(len(system.workers))))
    job = system.submit(
        "soak", graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors",
        mini_batch=SIZE.mini_batch, steps=1_000_000, optimizer="adam", lr=1e-3, no_shuffle=None,
        devices=len(system.workers), plan_file=system.path / "soak.json", clip_norm=1, **flags,
    )  # fmt: skip
    return growth_of(watch(system, job, steps, interval, allowed))


def violations(growth: list[Growth], allowed: float = MEMORY_GROWTH) -> list[str]:
    found = [f"{g.process}: memory grew by {g.memory:.2%}" for g in growth if g.memory > allowed]
    for g in growth:
        if g.files_after > g.files_before:
            found.append(f"{g.process}: {g.files_before} open files became {g.files_after}")
    return found


def main() -> None:
    workers, steps = (int(text) for text in (sys.argv[1:] + ["8", "500"][len(sys.argv) - 1 :]))
    with Processes(workers=workers, measured=True) as system:
        growth = soak(system, steps, interval=0.5)
    print(f"{workers} workers, {steps} steps\n\n| process | memory | growth after step {SETTLED} | open files |")
    print("|---|---|---|---|")
    for g in growth:
        memory = f"{g.memory_bytes / 2**20:.1f} MiB | {g.memory:+.2%}"
        print(f"| {g.process} | {memory} | {g.files_before}, {g.files_after} |")
    if found := violations(growth):
        raise SystemExit("\n" + "\n".join(found))


if __name__ == "__main__":
    main()
