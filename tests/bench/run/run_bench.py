"""Step times of jobs on workers, as two Markdown tables: beside PyTorch's, and of a graph of stages beside a sequence.

In float32 with Adam; every stage has one thread. The first model is GPT-2-like (gpt.py), the second has four branches
(branches.py). The runs of a pair alternate, so that a change of the machine's speed meets both; a row shows medians over
all rounds and the median ratio of the pairs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

import branches
from stagewright_jobs import Processes, export_gpt, gpt_plan, run_job

HERE = pathlib.Path(__file__).parent
# Name of PyTorch's schedule, devices, stages per device.
ROWS = {
    "one device": ("eager", 1, 1),
    "1F1B, 2 devices": ("1f1b", 2, 1),
    "interleaved 1F1B, 2 devices, 2 stages each": ("interleaved", 2, 2),
}


def theirs(schedule: str, devices: int, options: argparse.Namespace) -> tuple[float, float]:
    """Seconds of a step (the median), and the last loss."""
    command = [sys.executable, HERE / "pytorch.py", schedule, "--devices", devices]
    command += ["--micro-batch", options.micro_batch, "--micro-batches", options.micro_batches, "--steps", options.steps]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    done = subprocess.run(list(map(str, command)), env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise SystemExit(done.stderr)
    measured = json.loads(done.stdout.splitlines()[-1])
    return measured["median"], measured["loss"]


def beside_pytorch(options: argparse.Namespace) -> None:
    mini_batch = options.micro_batch * options.micro_batches
    print("| schedule | ours, s | PyTorch, s | ratio | predicted, s | difference of the losses |")
    print("|---|---|---|---|---|---|")
    for name, (schedule, devices, loops) in ROWS.items():
        if options.only and options.only not in name:
            continue
        pairs = []
        with Processes(workers=devices) as system:
            stem = export_gpt(system.path, mini_batch)
            plan = system.path / "plan.json"
            plan.write_text(json.dumps(gpt_plan(devices, loops, options.micro_batch, options.micro_batches)))
            for _ in range(options.rounds):
                job = run_job(system, stem, options.steps + 3, mini_batch, plan_file=plan, devices=devices)
                pairs.append((job, *theirs(schedule, devices, options)))
        ours = statistics.median(job["median_step_seconds"] for job, _, _ in pairs)
        other = statistics.median(seconds for _, seconds, _ in pairs)
        ratio = statistics.median(job["median_step_seconds"] / seconds for job, seconds, _ in pairs)
        predicted = pairs[-1][0]["predicted_step_seconds"]
        difference = max(abs(job["loss"] - loss) for job, _, loss in pairs)
        print(f"| {name} | {ours:.2f} | {other:.2f} | {ratio:.2f} | {predicted:.2f} | {difference:.1e} |", flush=True)


def gain_of_graphs(options: argparse.Namespace) -> None:
    """Of the best plan for two devices over sequences of stages: predicted, and measured with the same runtime."""
    mini_batch = options.micro_batch * options.micro_batches
    asked = dict(no_replicas=True, micro_batch=options.micro_batch)
    graph = dict(planner="auto")
    sequences = {
        "a stage per device": dict(planner="graphpipe", sequential=True),
        "several stages per device": dict(planner="auto", sequential=True),
    }
    print("| graph of stages over sequences of | graph, s | sequence, s | predicted gain | gain | gain / predicted |")
    print("|---|---|---|---|---|---|")
    with Processes(workers=2) as system:
        stem = branches.export(system.path, mini_batch)
        for name, sequence in sequences.items():
            pairs = [
                [run_job(system, stem, options.steps + 3, mini_batch, **asked, **kind) for kind in (graph, sequence)]
                for _ in range(options.rounds)
            ]
            seconds = [statistics.median(pair[i]["median_step_seconds"] for pair in pairs) for i in (0, 1)]
            predicted, gain = (
                statistics.median(second[key] / first[key] for first, second in pairs)
                for key in ("predicted_step_seconds", "median_step_seconds")
            )
            times = " | ".join(f"{value:.3f}" for value in [*seconds, predicted, gain, gain / predicted])
            print(f"| {name} | {times} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--micro-batch", type=int, default=4, help="samples")
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step")
    parser.add_argument("--steps", type=int, default=12, help="of a run that count; three more warm up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="rows whose name has this in it; of the second table: branches")
    options = parser.parse_args()
    print(f"{options.micro_batches} micro-batches of {options.micro_batch} samples, {options.rounds} rounds\n")
    if options.only != "branches":
        beside_pytorch(options)
        print()
    if options.only in (None, "branches"):
        gain_of_graphs(options)


if __name__ == "__main__":
    main()
