"""How long training waits for checkpoints: a GPT-2-like model on one and on two workers, saved every few steps.

python tests/integration/checkpoint_stall.py [STEPS] [EVERY] (with the environment of scripts/soak.sh) prints a table
and fails if a checkpoint takes more than a twentieth of a step.
"""

import json
import pathlib
import re
import sys
import urllib.request

from processes import Processes, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "bench" / "run"))
from stagewright_jobs import export_gpt, gpt_plan  # noqa: E402

MINI_BATCH = 8
MUST = 0.05


def metrics_of(system: Processes, worker: str) -> str:
    address = re.search(r"metrics on (\S+)", system.log(worker)).group(1)
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=10) as answer:
        return answer.read().decode()


def value(text: str, series: str) -> float:
    found = re.search(rf"^{series}{{[^}}]*}} (\S+)$", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0


def run(system: Processes, devices: int, steps: int, every: int) -> tuple[float, list[float]]:
    """The median step, and the mean stall of a checkpoint on each worker; `every` 0: none are taken."""
    stem, plan = system.path / "gpt", system.path / f"plan-{devices}.json"
    if not stem.with_suffix(".swg").exists():
        export_gpt(system.path, 64)
    plan.write_text(json.dumps(gpt_plan(devices, 1, 1, MINI_BATCH)))
    name = system.submit(
        "gpt", graph=f"{stem}.swg", weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", optimizer="adam",
        mini_batch=MINI_BATCH, steps=steps, lr=1e-4, devices=devices, plan_file=plan, keep=1 if every else None,
        out=system.path / f"out-{devices}-{every}", checkpoint_every=every or None,
    )  # fmt: skip
    stalls = {}

    def ended():
        # The series of a job end with it.
        for worker in system.workers:
            text = metrics_of(system, worker)
            count = value(text, "stagewright_worker_checkpoint_stall_seconds_count")
            if count > 0:
                stalls[worker] = value(text, "stagewright_worker_checkpoint_stall_seconds_sum") / count
        return system.job(name)["state"] in ("succeeded", "failed", "cancelled")

    wait_for(ended, "the end of the job", 1800)
    job = system.job(name)
    assert job["state"] == "succeeded", job["message"]
    assert len(stalls) == (devices if every else 0), stalls
    assert not any("checkpoint" in warning for warning in job.get("warnings", [])), job["warnings"]
    return job["median_step_seconds"], [*stalls.values()]


def main() -> None:
    steps, every = (int(text) for text in (sys.argv[1:] + ["17", "4"][len(sys.argv) - 1 :]))
    shares = []
    print("| devices | median step without, s | with checkpoints, s | stall of a checkpoint, ms | share of a step |")
    print("|---|---|---|---|---|")
    for devices in (1, 2):
        with Processes(measured=True) as system:
            for i in range(devices):
                system.start_worker(f"w{i}", "--metrics-listen", "127.0.0.1:0")
            system.await_workers(devices)
            without, _ = run(system, devices, steps, 0)
            step, stalls = run(system, devices, steps, every)
        shares.append(max(stalls) / step)
        listed = ", ".join(f"{1000 * stall:.2f}" for stall in stalls)
        print(f"| {devices} | {without:.3f} | {step:.3f} | {listed} | {shares[-1]:.2%} |", flush=True)
    if max(shares) > MUST:
        raise SystemExit(f"a checkpoint takes {max(shares):.1%} of a step")


if __name__ == "__main__":
    main()
