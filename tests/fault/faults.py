"""Faults that are put on a planner and its workers while a job trains, by a seed.

python tests/fault/faults.py [FAULTS] [SEED] (with the environment of scripts/fault.sh) puts so many on jobs of 2, 3 and 4
workers and prints a table; it fails if a job does not end as if nothing had been.
"""

import collections
import dataclasses
import random
import signal
import sys
import time

import torch
from processes import ENDED, Processes, wait_for
from safetensors.torch import load_file

MODEL = "four_branches_f64"
HEARTBEAT_LIMIT = 3  # Seconds.
PATIENCE = 120
# What is done to whom; SIGSTOP lasts longer than the heartbeat limit.
KINDS = ("kill", "kill for good", "terminate", "stop", "kill planner", "kill planner and worker")


@dataclasses.dataclass(frozen=True)
class Outcome:
    workers: int
    kind: str
    state: str
    message: str
    restarts: int
    seconds: float  # Until the job did a new step.


def settings(system: Processes, out: str, **changes) -> dict:
    return dict(
        out=system.path / out, optimizer="adam", lr=0.01, seed=3, no_shuffle=None, micro_batch=4,
        checkpoint_every=50, **changes,
    )  # fmt: skip


def assert_same(path: str, other: str) -> None:
    """The same weights, to the rounding of sums in another order."""
    first, second = load_file(path), load_file(other)
    assert set(first) == set(second)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def losses(system: Processes, job: str) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in system.json("jobs", "losses", job)["steps"]}


def assert_same_losses(found: dict[int, float], wanted: dict[int, float]) -> None:
    common = found.keys() & wanted.keys()
    assert common and max(common) == max(wanted), (sorted(found)[-3:], sorted(wanted)[-3:])
    for step in common:
        assert abs(found[step] - wanted[step]) <= 1e-8 * abs(wanted[step]) + 1e-12, (step, found[step], wanted[step])


def answers(system: Processes) -> bool:
    return system.cli("jobs", "-o", "json").returncode == 0


def step_of(system: Processes, job: str) -> int:
    found = system.job(job)
    assert found["state"] not in ENDED, found["message"]
    return found["step"]


def replace(system: Processes, worker: str) -> None:
    """A worker of that name comes back; one that failed often is forgiven, as an operator would."""
    process = system.workers[worker]
    process.wait(PATIENCE)
    system.start_worker(worker)
    wait_for(lambda: worker in [w["name"] for w in system.json("workers")["workers"]], f"{worker} to register", PATIENCE)
    assert system.cli("workers", "uncordon", worker).returncode == 0


def put(system: Processes, kind: str, worker: str) -> None:
    """Carries the fault out. Every process is there afterwards, but for one that is killed for good."""
    process = system.workers[worker]
    if "planner" in kind:
        system.stop(system.planner, signal.SIGKILL)
    if "worker" in kind or kind.startswith("kill") and "planner" not in kind:
        system.stop(process, signal.SIGKILL)
    if "planner" in kind:
        system.start_planner()
    if kind == "terminate":
        assert system.stop(process, signal.SIGTERM, patience=PATIENCE) == 0
    if kind == "stop":
        process.send_signal(signal.SIGSTOP)
        time.sleep(HEARTBEAT_LIMIT * 2.5)
        process.send_signal(signal.SIGCONT)
    elif kind != "kill planner" and kind != "kill for good":
        replace(system, worker)


def await_progress(system: Processes, job: str, beyond: int) -> float:
    """Seconds until the job has done a step that it had not done before, or has ended."""
    begun = time.monotonic()

    def further():
        if not answers(system):
            return False
        found = system.job(job)
        return found["state"] in ENDED or found["step"] > beyond

    wait_for(further, f"a step of {job} after {beyond}", PATIENCE)
    return time.monotonic() - begun


def run_with_fault(system: Processes, kind: str, steps: int, chance: random.Random, **flags) -> tuple[Outcome, str]:
    workers = len(system.workers)
    job = system.submit(MODEL, **settings(system, f"out-{chance.random()}", devices=workers, steps=steps, **flags))
    system.await_step(job, chance.randrange(60, 140))
    time.sleep(chance.random() * 0.2)  # Between steps, in a checkpoint, ...
    before = step_of(system, job)
    worker = chance.choice(sorted(system.workers))
    put(system, kind, worker)
    seconds = await_progress(system, job, before)
    ended = system.await_end(job)
    if kind == "kill for good":
        replace(system, worker)
    system.await_workers(workers)
    return Outcome(workers, kind, ended["state"], ended["message"], ended["restarts"], seconds), job


def start(workers: int) -> Processes:
    return Processes(workers=workers, planner_flags=("--worker-timeout", str(HEARTBEAT_LIMIT)))


def undisturbed(system: Processes, steps: int) -> str:
    job = system.train(MODEL, **settings(system, f"whole-{steps}", devices=len(system.workers), steps=steps))
    assert job["state"] == "succeeded", job["message"]
    return job["name"]


def assert_as_if_nothing_had_been(system: Processes, outcome: Outcome, job: str, whole: str) -> None:
    assert outcome.state == "succeeded", outcome
    assert_same(system.job(job)["checkpoint"], system.job(whole)["checkpoint"])
    assert_same_losses(losses(system, job), losses(system, whole))


def main() -> None:
    count, seed = (int(text) for text in (sys.argv[1:] + ["60", "1"][len(sys.argv) - 1 :]))
    chance = random.Random(seed)
    outcomes: dict[tuple[int, str], list[Outcome]] = collections.defaultdict(list)
    wrong = []
    for workers in (2, 3, 4):
        with start(workers) as system:
            whole = undisturbed(system, 3000)
            for i in range(count // 3):
                kind = KINDS[i % len(KINDS)]
                outcome, job = run_with_fault(system, kind, 3000, chance, max_restarts=5)
                outcomes[workers, kind].append(outcome)
                try:
                    assert_as_if_nothing_had_been(system, outcome, job, whole)
                except AssertionError as error:
                    wrong.append(f"{workers} workers, {kind}: {error}")
                    print(wrong[-1], file=sys.stderr, flush=True)
    print(f"{count} faults, seed {seed}\n\n| workers | fault | went on | next step after |\n|---|---|---|---|")
    for (workers, kind), found in sorted(outcomes.items()):
        good = sum(outcome.state == "succeeded" for outcome in found)
        longest = max(outcome.seconds for outcome in found)
        print(f"| {workers} | {kind} | {good} of {len(found)} | {longest:.1f} s at most |")
    if wrong:
        raise SystemExit("\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
