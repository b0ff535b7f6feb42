"""Faults that are put on a planner and its workers while a job trains, by a seed.

python tests/fault/faults.py [FAULTS] [SEED] [WORKERS...] (with the environment of scripts/fault.sh workers) puts so many on
jobs of so many workers, by default 2, 3, 4 and 8, and prints a table; it fails if a job does not end as if nothing had been, or
has done more steps again than docs/recovery.md says. SIGINT or SIGTERM ends it early, with the table of what was done until then.
"""

import collections
import contextlib
import dataclasses
import itertools
import random
import re
import resource
import signal
import sys
import time

import torch
from campaign import Campaign
from processes import ENDED, Processes, wait_for
from safetensors.torch import load_file
from slow_storage import SlowStorage
from tcp_proxy import TcpProxy

MODEL = "four_branches_f64"
HEARTBEAT_LIMIT = 3  # Seconds.
PATIENCE = 120
CHECKPOINT_EVERY = 50
WORKERS = (2, 3, 4, 8)
HANG = 6  # Seconds that a file system hangs, at most, and a step may take; half of it is how long a device waits for it.
# What is done to a worker, to the planner, or to what workers write to: "stop" lasts longer than the heartbeat limit, a
# network that is cut and a file system that hangs come back sooner or later than they are waited for.
KINDS = (
    "kill", "kill for good", "terminate", "stop", "cut network", "full disk", "hung path", "kill planner",
    "kill planner and worker",
)  # fmt: skip
# Steps that may be done again where they are more than an interval: if the planner dies with a worker, nobody may have said
# that the last checkpoint is whole; and there are none while the storage takes none.
MOST_AGAIN = {"kill planner and worker": 2 * CHECKPOINT_EVERY, "full disk": sys.maxsize, "hung path": sys.maxsize}


@dataclasses.dataclass(frozen=True)
class Outcome:
    workers: int
    kind: str
    state: str
    message: str
    restarts: int
    again: int  # Steps that were done again, at most.


def settings(system: Processes, out: str, **changes) -> dict:
    return dict(
        out=system.path / out, optimizer="adam", lr=0.01, seed=3, no_shuffle=None, micro_batch=4,
        checkpoint_every=CHECKPOINT_EVERY, **changes,
    )  # fmt: skip


def with_all_libraries(prefix: list[str]) -> list[str]:
    """Of settings of `env` that follow each other the last would hold, and the libraries of the others not be loaded."""
    setting = "LD_PRELOAD="
    libraries = ":".join(part.removeprefix(setting) for part in prefix if part.startswith(setting))
    return [setting + libraries if part.startswith(setting) else part for part in prefix]


class FaultySystem(Processes):
    """Each worker reaches the planner through a proxy of its own, and writes to storage that can be made to hang."""

    def __init__(self, workers: int):
        self.proxies: dict[str, TcpProxy] = {}
        super().__init__(planner_flags=("--worker-timeout", str(HEARTBEAT_LIMIT)))
        self.storage = SlowStorage(self.path)
        for i in range(workers):
            self.start_worker(f"w{i}")
        self.await_workers(workers)

    def start_worker(self, name: str, *flags: str, prefix: tuple | list = ()):
        self.worker_address = f"127.0.0.1:{self.proxy_of(name).port}"
        return super().start_worker(name, *flags, prefix=with_all_libraries([*prefix, *self.storage.prefix(name)]))

    def proxy_of(self, worker: str) -> TcpProxy:
        if worker not in self.proxies:
            self.proxies[worker] = TcpProxy(int(self.address.rpartition(":")[2]))
        return self.proxies[worker]

    def fill_disk(self, full: bool) -> None:
        """A file may not grow beyond 1 KiB: what a full disk is where nothing can be mounted."""
        limits = (1024 if full else resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        for worker in self.workers.values():
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, limits)

    def close(self):
        super().close()
        for proxy in self.proxies.values():
            proxy.close()


def assert_same(path: str, other: str) -> None:
    """The same weights, to the rounding of sums in another order."""
    first, second = load_file(path), load_file(other)
    assert set(first) == set(second)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-9, atol=1e-10, msg=lambda m, n=name: f"{n}: {m}")


def busy_workers(job: dict) -> list[str]:
    """Those that take part."""
    return sorted({device.split("/")[0] for device in job["devices"]})


def losses(system: Processes, job: str) -> dict[int, float]:
    return {step["step"]: step["loss"] for step in system.json("jobs", "losses", job)["steps"]}


def assert_same_losses(found: dict[int, float], wanted: dict[int, float]) -> None:
    common = found.keys() & wanted.keys()
    assert common and max(common) == max(wanted), (sorted(found)[-3:], sorted(wanted)[-3:])
    for step in common:
        assert abs(found[step] - wanted[step]) <= 1e-8 * abs(wanted[step]) + 1e-12, (step, found[step], wanted[step])


def answers(system: Processes) -> bool:
    return system.cli("jobs", "-o", "json").returncode == 0


def living(system: Processes, job: str) -> dict:
    found = system.job(job)
    assert found["state"] not in ENDED, found["message"]
    return found


def replace(system: Processes, worker: str) -> None:
    """A worker of that name comes back; one that failed often is forgiven, as an operator would."""
    process = system.workers[worker]
    process.wait(PATIENCE)
    system.start_worker(worker)
    wait_for(lambda: worker in [w["name"] for w in system.json("workers")["workers"]], f"{worker} to register", PATIENCE)
    assert system.cli("workers", "uncordon", worker).returncode == 0


def disturb(system: FaultySystem, kind: str, worker: str, chance: random.Random) -> None:
    """For a while."""
    process, storage, proxy = system.workers[worker], system.storage, system.proxies[worker]
    begin, end, longest = {
        "stop": (lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT), 0),
        "cut network": (proxy.cut, proxy.heal, 3 * HEARTBEAT_LIMIT),
        "full disk": (lambda: system.fill_disk(True), lambda: system.fill_disk(False), 1),
        "hung path": (lambda: storage.hang(worker), lambda: storage.go_on(worker), HANG),
    }[kind]
    begin()
    time.sleep(chance.random() * longest if longest else HEARTBEAT_LIMIT * 2.5)
    end()


def put(system: FaultySystem, kind: str, worker: str, chance: random.Random) -> None:
    """Carries the fault out. Every process is there afterwards, but for one that is killed for good."""
    if kind in ("stop", "cut network", "full disk", "hung path"):
        return disturb(system, kind, worker, chance)
    process = system.workers[worker]
    if kind == "terminate":
        assert system.stop(process, signal.SIGTERM, patience=PATIENCE) == 0
        return replace(system, worker)
    if "planner" in kind:
        system.stop(system.planner, signal.SIGKILL)
    if kind != "kill planner":
        system.stop(process, signal.SIGKILL)
    if "planner" in kind:
        system.start_planner()
    if kind not in ("kill planner", "kill for good"):
        replace(system, worker)


def await_progress(system: Processes, job: str, beyond: int) -> None:
    """Until the job has done a step after that one, or has ended."""

    def further():
        if not answers(system):
            return False
        found = system.job(job)
        return found["state"] in ENDED or found["step"] > beyond

    wait_for(further, f"a step of {job} after {beyond}", PATIENCE)


def done_again(system: Processes, job: str, known: int) -> int:
    """Steps that any later run of the job did again, where `known` were known to be done before."""
    most = 0
    for event in system.json("jobs", "events", job)["events"]:
        if found := re.fullmatch(r"goes on after step (\d+); (\d+) steps are done again", event["message"]):
            most = max(most, known - int(found[1]), int(found[2]))
    return most


def run_with_fault(system: FaultySystem, kind: str, steps: int, chance: random.Random, **flags) -> tuple[Outcome, str]:
    workers = len(system.workers)
    if kind == "hung path":
        flags["step_timeout"] = HANG
    job = system.submit(MODEL, **settings(system, f"out-{chance.random()}", devices=workers, steps=steps, **flags))
    system.await_step(job, chance.randrange(60, 140))
    time.sleep(chance.random() * 0.2)  # Between steps, in a checkpoint, ...
    before = living(system, job)
    worker = chance.choice(busy_workers(before))
    put(system, kind, worker, chance)
    await_progress(system, job, before["step"])
    ended = system.await_end(job)
    if kind == "kill for good":
        replace(system, worker)
    system.await_workers(workers)
    again = done_again(system, job, before["step"])
    return Outcome(workers, kind, ended["state"], ended["message"], ended["restarts"], again), job


def start(workers: int) -> FaultySystem:
    return FaultySystem(workers)


def undisturbed(system: Processes, steps: int) -> str:
    """On one device, where it is soon over: what is learnt does not depend on the plan."""
    job = system.submit(MODEL, **settings(system, f"whole-{steps}", devices=1, steps=steps))
    job = system.await_end(job)
    assert job["state"] == "succeeded", job["message"]
    return job["name"]


def assert_as_if_nothing_had_been(system: Processes, outcome: Outcome, job: str, whole: str) -> None:
    assert outcome.state == "succeeded", outcome
    assert outcome.again <= MOST_AGAIN.get(outcome.kind, CHECKPOINT_EVERY), outcome
    assert_same(system.job(job)["checkpoint"], system.job(whole)["checkpoint"])
    assert_same_losses(losses(system, job), losses(system, whole))


def run(
    count: int, sizes: list[int], chance: random.Random, outcomes: list[Outcome], wrong: list[str]
) -> Campaign:
    """Adds to both lists as it goes."""

    def known() -> dict:
        return {"ended well": sum(outcome.state == "succeeded" for outcome in outcomes), "wrong": len(wrong)}

    per_size = -(-count // len(sizes))
    kinds = itertools.cycle(KINDS)
    with contextlib.ExitStack() as systems, Campaign(per_size * len(sizes), known) as campaign:
        for i in campaign:
            if i % per_size == 0:
                systems.close()
                system = systems.enter_context(start(sizes[i // per_size]))
                whole = undisturbed(system, 3000)
            outcome, job = run_with_fault(system, next(kinds), 3000, chance, max_restarts=5)
            outcomes.append(outcome)
            print(outcome, file=sys.stderr, flush=True)
            try:
                assert_as_if_nothing_had_been(system, outcome, job, whole)
            except AssertionError as error:
                wrong.append(f"{outcome.workers} workers, {outcome.kind}: {error}")
                print(wrong[-1], file=sys.stderr, flush=True)
    return campaign


def arguments() -> tuple[int, int, list[int]]:
    """How many faults, by which seed, on jobs of how many workers."""
    count, seed = (int(text) for text in [*sys.argv[1:3], *["60", "1"][len(sys.argv[1:3]) :]])
    return count, seed, [int(text) for text in sys.argv[3:]] or list(WORKERS)


def main() -> None:
    count, seed, sizes = arguments()
    outcomes, wrong = [], []
    campaign = run(count, sizes, random.Random(seed), outcomes, wrong)
    print(f"{campaign.done} faults, seed {seed}\n\n| workers | fault | ended well | steps done again, at most |\n"
          "|---|---|---|---|")  # fmt: skip
    by_fault: dict[tuple[int, str], list[Outcome]] = collections.defaultdict(list)
    for outcome in outcomes:
        by_fault[outcome.workers, outcome.kind].append(outcome)
    for (workers, kind), found in sorted(by_fault.items()):
        good = sum(outcome.state == "succeeded" for outcome in found)
        again = max(outcome.again for outcome in found)
        print(f"| {workers} | {kind} | {good} of {len(found)} | {again} |")
    campaign.end(wrong)


if __name__ == "__main__":
    main()
