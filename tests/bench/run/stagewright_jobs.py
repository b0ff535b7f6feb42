"""Jobs on a planner and workers of our own, on loopback: one CPU device of one thread per worker."""

import json
import pathlib
import sys

import gpt
import stagewright
from safetensors.torch import save_file

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "integration"))
from processes import Processes, wait_for  # noqa: E402

FOREVER = 1_000_000  # Steps.


def export_gpt(directory: pathlib.Path, samples: int) -> pathlib.Path:
    """Graph, weights and data; the stem of their names."""
    ids, target = gpt.data(samples)
    stem = directory / "gpt"
    model = gpt.cut(1)[0]
    stagewright.export(model, {"input": ids[:2]}, loss=gpt.TokenLoss(), targets=target[:2], path=f"{stem}.swg")
    save_file({"input": ids, "target": target}, f"{stem}.data.safetensors")
    return stem


def interleaved_order(rank: int, devices: int, loops: int, micro_batches: int) -> str:
    """Megatron-LM's interleaved 1F1B: micro-batches in groups of `devices`, stages of the device in turn."""

    def passes(kind: str, turns: list[int]) -> list[str]:
        groups = range(0, micro_batches, devices)
        return [f"{kind}{rank + devices * t}.{g + i}" for g in groups for t in turns for i in range(devices)]

    forward, backward = passes("F", [*range(loops)]), passes("B", [*reversed(range(loops))])
    warm_up = min(len(forward), 2 * (devices - rank - 1) + (loops - 1) * devices)
    order = forward[:warm_up]
    for i, f in enumerate(forward[warm_up:]):
        order += [f, backward[i]]
    order += backward[len(forward) - warm_up :]
    return f"device {rank}: " + " ".join(order)


def gpt_plan(devices: int, loops: int, micro_batch: int, micro_batches: int) -> dict:
    """gpt.plan, with the orders that loops take."""
    plan = gpt.plan(devices, loops, micro_batch)
    if loops > 1:
        plan["orders"] = [interleaved_order(d, devices, loops, micro_batches) for d in range(devices)]
    return plan


def start_job(system: Processes, stem: pathlib.Path, mini_batch: int, **flags) -> str:
    """The name of a job that trains until it is cancelled, after its first steps; flags as of `stagewright submit`."""
    out = system.path / f"out-{len(list(system.path.glob('out-*')))}"
    arguments = ["submit", f"{stem}.swg", "--weights", f"{stem}.safetensors", "--data", f"{stem}.data.safetensors"]
    arguments += ["--out", out, "--mini-batch", mini_batch, "--steps", FOREVER, "--optimizer", "adam", "--lr", 1e-4]
    for name, value in flags.items():
        arguments += [f"--{name.replace('_', '-')}"] + ([] if value is True else [value])
    name = system.json(*arguments, "--no-shuffle")["name"]
    system.await_step(name, 2)
    return name


def await_more(system: Processes, name: str, count: int) -> None:
    """That the job takes so many more steps. A worker that was stopped may have to connect anew before it tells."""
    last = system.job(name)["step"] + count
    wait_for(lambda: system.job(name)["step"] >= last, f"step {last} of {name}", patience=600)


def steps_of(system: Processes, name: str) -> list[dict]:
    """Every step that the job has taken, with `step_seconds` and `loss`."""
    kept = system.json("jobs", "losses", name)
    if kept["stride"] != 1:
        raise SystemExit(f"{name} took so many steps that not all of them are kept: let turns be fewer or shorter")
    return kept["steps"]
