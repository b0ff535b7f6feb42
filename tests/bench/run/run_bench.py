"""Step times of jobs on workers beside those of PyTorch on the same machine, as one Markdown table.

A GPT-2-like model (gpt.py) in float32 with Adam; every stage has one thread. Ours and PyTorch's runs alternate, so that a
change of the machine's speed meets both; a row shows medians over all rounds and the median ratio of the pairs.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--micro-batch", type=int, default=4, help="samples")
    parser.add_argument("--micro-batches", type=int, default=8, help="of a step")
    parser.add_argument("--steps", type=int, default=12, help="of a run that count; three more warm up")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", help="rows whose name has this in it")
    options = parser.parse_args()
    mini_batch = options.micro_batch * options.micro_batches
    print(f"{options.micro_batches} micro-batches of {options.micro_batch} sequences, {options.rounds} rounds\n")
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


if __name__ == "__main__":
    main()
