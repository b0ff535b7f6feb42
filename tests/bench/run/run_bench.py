"""Step times of jobs on workers, as two Markdown tables: beside PyTorch's, and of a graph of stages beside a sequence.

In float32 with Adam; every stage has one thread. The first model is GPT-2-like (gpt.py), the second has four branches
(branches.py). The two of a row train all the time and take turns (turns.py); a row shows the median over the turns of the
ratio of their steps, with its 95 % interval.
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator

import branches
from stagewright_jobs import Processes, await_more, export_gpt, gpt_plan, start_job, steps_of
from turns import median_with_interval, take_turns, turns_of

HERE = pathlib.Path(__file__).parent
# Name of PyTorch's schedule, devices, stages per device.
ROWS = {
    "one device": ("eager", 1, 1),
    "1F1B, 2 devices": ("1f1b", 2, 1),
    "interleaved 1F1B, 2 devices, 2 stages each": ("interleaved", 2, 2),
}
PATIENT = ("--worker-timeout", "3600")  # A worker whose turn it is not is silent.


def await_lines(out: pathlib.Path, count: int, process: subprocess.Popen) -> None:
    """That the process writes so many more."""
    before = None
    while before is None or out.read_text().count("\n") < before + count:
        if process.poll() is not None:
            raise SystemExit(f"PyTorch ended with {process.returncode}")
        if before is None and out.exists():
            before = out.read_text().count("\n")
        time.sleep(0.2)


@contextlib.contextmanager
def theirs(schedule: str, devices: int, out: pathlib.Path, options: argparse.Namespace) -> Iterator[subprocess.Popen]:
    """PyTorch's training after its first steps, as a group of processes of its own that end with this one."""
    command = [sys.executable, HERE / "pytorch.py", schedule, "--devices", devices, "--out", out]
    command += ["--micro-batch", options.micro_batch, "--micro-batches", options.micro_batches]
    command += ["--parent", os.getpid()]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    process = subprocess.Popen(list(map(str, command)), env=environment, start_new_session=True)
    try:
        await_lines(out, 2, process)
        yield process
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def paired(ours: list[float], others: list[float], options: argparse.Namespace) -> list[tuple[float, float]]:
    """Medians of the turns, without the first of each, which warms up."""
    turns = [turns_of(steps, options.seconds) for steps in (ours, others)]
    if any(len(of_one) != options.pairs + 1 for of_one in turns):
        found = " and ".join(str(len(of_one)) for of_one in turns)
        raise SystemExit(f"{found} of {options.pairs + 1} turns have a whole step: give them more --seconds")
    return list(zip(*turns, strict=True))[1:]


def interval(values: list[float]) -> str:
    median, low, high = median_with_interval(values)
    return f"{median:.3f} ({low:.3f} to {high:.3f})"


def beside_pytorch(options: argparse.Namespace) -> None:
    mini_batch = options.micro_batch * options.micro_batches
    print("| schedule | ours, s | PyTorch, s | ratio (95 %) | predicted, s | difference of the losses |")
    print("|---|---|---|---|---|---|")
    for name, (schedule, devices, loops) in ROWS.items():
        if options.only not in (None, name):
            continue
        with Processes(workers=devices, planner_flags=PATIENT, measured=True) as system:
            stem = export_gpt(system.path, mini_batch)
            plan = system.path / "plan.json"
            plan.write_text(json.dumps(gpt_plan(devices, loops, options.micro_batch, options.micro_batches)))
            job = start_job(system, stem, mini_batch, plan_file=plan, devices=devices)
            workers = [worker.pid for worker in system.workers.values()]
            out = system.path / "pytorch.jsonl"
            with theirs(schedule, devices, out, options) as pytorch:
                take_turns([workers, [-pytorch.pid]], options.seconds, options.pairs + 1)
                await_lines(out, 2, pytorch)  # The one that was stopped last is among them.
                await_more(system, job, 2)
                their_steps = [json.loads(line) for line in out.read_text().splitlines()]
            our_steps = steps_of(system, job)
            predicted = system.job(job)["predicted_step_seconds"]
        pairs = paired(*([step["step_seconds"] for step in steps] for steps in (our_steps, their_steps)), options)
        ours, other = (statistics.median(pair[i] for pair in pairs) for i in (0, 1))
        ratio = interval([mine / other for mine, other in pairs])
        difference = max(abs(a["loss"] - b["loss"]) for a, b in zip(our_steps[:5], their_steps[:5], strict=True))
        print(f"| {name} | {ours:.2f} | {other:.2f} | {ratio} | {predicted:.2f} | {difference:.1e} |", flush=True)


def gain_of_graphs(options: argparse.Namespace) -> None:
    """Of the best plan for two devices over sequences of stages: predicted, and measured with the same runtime."""
    mini_batch = options.micro_batch * options.micro_batches
    asked = dict(no_replicas=True, micro_batch=options.micro_batch)
    graph = dict(planner="auto")
    sequences = {
        "a stage per device": dict(planner="graphpipe", sequential=True),
        "several stages per device": dict(planner="auto", sequential=True),
    }
    print("| graph of stages over sequences of | graph, s | sequence, s | predicted gain | gain (95 %) | gain / predicted |")
    print("|---|---|---|---|---|---|")
    for name, sequence in sequences.items():
        with contextlib.ExitStack() as stack:
            # Not measured: both predictions are made with the same costs, so that their ratio is the plans' alone.
            systems = [stack.enter_context(Processes(workers=2, planner_flags=PATIENT)) for _ in range(2)]
            jobs = []
            for system, kind in zip(systems, (graph, sequence), strict=True):
                stem = branches.export(system.path, mini_batch)
                jobs.append(start_job(system, stem, mini_batch, **asked, **kind))
            workers = [[worker.pid for worker in system.workers.values()] for system in systems]
            take_turns(workers, options.seconds, options.pairs + 1)
            for system, job in zip(systems, jobs, strict=True):
                await_more(system, job, 2)
            steps = [steps_of(system, job) for system, job in zip(systems, jobs, strict=True)]
            predicted = [
                system.job(job)["predicted_step_seconds"] for system, job in zip(systems, jobs, strict=True)
            ]
        pairs = paired(*([step["step_seconds"] for step in taken] for taken in steps), options)
        times = " | ".join(f"{statistics.median(pair[i] for pair in pairs):.3f}" for i in (0, 1))
        expected = predicted[1] / predicted[0]
        gains = [other / mine for mine, other in pairs]
        share = statistics.median(gains) / expected
        print(f"| {name} | {times} | {expected:.3f} | {interval(gains)} | {share:.3f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--micro-batch", type=int, default=4, help="samples")
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step")
    parser.add_argument("--pairs", type=int, default=30, help="turns of each that count")
    parser.add_argument("--seconds", type=float, default=10, help="of a turn: several steps")
    parser.add_argument("--only", choices=(*ROWS, "branches"), help="a row; branches: the second table")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # What was started is ended on the way out.
    print(f"{options.micro_batches} micro-batches of {options.micro_batch} samples, {options.pairs} pairs of turns\n")
    if options.only != "branches":
        beside_pytorch(options)
        print()
    if options.only in (None, "branches"):
        gain_of_graphs(options)


if __name__ == "__main__":
    main()
