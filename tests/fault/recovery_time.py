"""How long a job takes from the death of a worker to its next step, and what passes meanwhile.

python tests/fault/recovery_time.py [DEATHS] (with the environment of scripts/fault.sh times) kills a worker under so many
jobs, of 2, 3, 4 and 8 workers in turn, some seconds after they began, and prints medians of the parts and of the whole; it
fails if that is over five seconds.
"""

import collections
import datetime
import signal
import statistics
import sys
import time

import faults
import stagewright
from processes import ENDED, Processes

STEPS = 1_000_000
MUST = 5.0  # Seconds, median.
RUNS = 10.0  # Seconds before the death, in which plans are made ahead.
# What ends a part: an event of the job, or the state that it comes to.
PARTS = {
    "worker_lost": "the planner hears of it",
    "restarted": "the run is given up",
    "starting": "its devices are free, and it is planned",
    "running": "prepared and connected",
    "step": "a step is done",
}


def moment(text: str) -> float:
    return datetime.datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def parts_of(events: list[dict], death: float, step: float) -> dict[str, float]:
    """Seconds of each part, by what ends it."""
    ends = {"step": step}
    for event in events:
        name = event["state"] if event["kind"] == "state" else event["kind"]
        at = moment(event["last_time"])
        if name in PARTS and at >= death - 0.001:
            ends.setdefault(name, at)
    taken, before = {}, death
    for name in PARTS:
        taken[name], before = ends[name] - before, ends[name]
    return taken


def await_next_step(system: Processes, job: str) -> float:
    """When the run after the present one has done a step."""
    known = None
    with stagewright.Client(system.address) as client:
        for seen in client.watch(job):
            assert seen.state not in ENDED, seen.message
            if seen.restarts == 0 or seen.state != "running":
                continue
            if known not in (None, seen.step):
                return time.time()
            known = seen.step
    raise AssertionError(f"{job} has ended")


def die_once(system: Processes, trial: int) -> tuple[dict[str, float], bool]:
    """Seconds of each part, and whether the plan had been made ahead."""
    flags = faults.settings(system, f"timed-{trial}", devices=len(system.workers), steps=STEPS, max_restarts=3)
    job = system.submit(faults.MODEL, **flags)
    system.await_step(job, 60)
    time.sleep(RUNS)
    busy = faults.busy_workers(system.job(job))
    worker = busy[trial % len(busy)]
    death = time.time()
    system.stop(system.workers[worker], signal.SIGKILL)
    step = await_next_step(system, job)
    events = system.json("jobs", "events", job)["events"]
    parts = parts_of(events, death, step)
    system.cli("cancel", job)
    faults.replace(system, worker)
    return parts, any(event["message"].startswith("planned ahead") for event in events)


def main() -> None:
    deaths = int(sys.argv[1]) if len(sys.argv) > 1 else 20
    found = collections.defaultdict(list)
    planned_ahead = 0
    for workers in faults.WORKERS:
        with Processes(workers=workers) as system:  # With the planner's own limits.
            for trial in range(-(-deaths // len(faults.WORKERS))):
                parts, ahead = die_once(system, trial)
                found[workers].append(parts)
                planned_ahead += ahead
                print(workers, {name: round(taken, 2) for name, taken in found[workers][-1].items()}, file=sys.stderr)
    print("| seconds, medians | " + " | ".join(f"{workers} workers" for workers in found) + " |")
    print("|---|" + "---|" * len(found))
    for name, what in PARTS.items():
        print(f"| {what} | " + " | ".join(f"{statistics.median(t[name] for t in each):.2f}" for each in found.values()) + " |")
    wholes = {workers: [sum(taken.values()) for taken in each] for workers, each in found.items()}
    print("| **all** | " + " | ".join(f"{statistics.median(each):.2f}, at most {max(each):.2f}" for each in wholes.values()) + " |")
    median = statistics.median([whole for each in wholes.values() for whole in each])
    print(f"\n{sum(map(len, wholes.values()))} deaths: {median:.2f} s in the median; {planned_ahead} plans were made ahead")
    if median > MUST:
        raise SystemExit(f"more than {MUST} s")


if __name__ == "__main__":
    main()
