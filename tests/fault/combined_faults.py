"""Several faults at once, or one while a job recovers from another, by a seed.

python tests/fault/combined_faults.py [CASES] [SEED] [WORKERS...] (with the environment of scripts/fault.sh combined) puts so
many on jobs of 2, 3, 4 and 8 workers and prints a table; it fails if a job neither ends as if nothing had been nor, under
--on-loss fail, names a worker, if it has done more steps again than docs/recovery.md says, or if a worker is of no use to the
next job.
"""

import collections
import dataclasses
import itertools
import json
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import faults
from cut_peers import PeerNetwork
from processes import ENDED, wait_for

STEPS = 700
PATIENCE = 240
# The faults of a case: what, to whom ("first" and "second" are workers of the job, "all" are all that there are), and how
# many seconds after the one before it comes, at most.
CASES = {
    "kill two": (("kill", "first", 0), ("kill", "second", 0)),
    "kill all": (("kill", "all", 0),),
    "stop two": (("stop", "first", 0), ("stop", "second", 0.5)),
    "stop all": (("stop", "all", 0),),
    "cut network of two": (("cut network", "first", 0), ("cut network", "second", 0.5)),
    "cut network of all": (("cut network", "all", 0),),
    "terminate two": (("terminate", "first", 0), ("terminate", "second", 1)),
    "terminate all": (("terminate", "all", 0),),
    "stop one, kill another": (("stop", "first", 0), ("kill", "second", 1)),
    "kill one, stop another": (("kill", "first", 0), ("stop", "second", 1)),
    "terminate one, kill another": (("terminate", "first", 0), ("kill", "second", 2)),
    "hung path of one, kill another": (("hung path", "first", 0), ("kill", "second", 2)),
    "full disk, kill one": (("full disk", "all", 0), ("kill", "first", 1)),
    "cut network of one, kill planner": (("cut network", "first", 0), ("kill", "planner", 1)),
    "cut network of one, kill another": (("cut network", "first", 0), ("kill", "second", 1)),
    "stop planner, kill one": (("stop", "planner", 0), ("kill", "first", 2)),
    "stop planner, stop one": (("stop", "planner", 0), ("stop", "first", 2)),
    "kill planner and two": (("kill", "planner", 0), ("kill", "first", 0.2), ("kill", "second", 0.2)),
    "kill planner and all": (("kill", "planner", 0), ("kill", "all", 0.2)),
    "kill one, then another": (("kill", "first", 0), ("kill", "second", 3)),
    "kill one, then the planner": (("kill", "first", 0), ("kill", "planner", 3)),
    "kill one again": (("kill again", "first", 0), ("kill", "first", 2)),
}
# The same of workers that reach the planner and not each other.
PEER_CASES = {
    "cut one from its peers": (("cut peers", "first", 0),),
    "cut one from its peers, kill another": (("cut peers", "first", 0), ("kill", "second", 2)),
    "cut one from its peers, kill planner": (("cut peers", "first", 0), ("kill", "planner", 2)),
    "cut all from their peers": (("cut peers", "all", 0),),
}
POLICIES = ("shrink", "wait", "fail")
JOBS = ("plain", "replicas", "replicas", "sharded", "sharded", "asynchronous")
MOMENTS = ("starting", "training", "training", "training", "ending")
# An asynchronous job that leaves a worker is emptied where an undisturbed one is not.
LEAVES = "terminate"


@dataclasses.dataclass(frozen=True)
class Case:
    workers: int
    name: str
    policy: str
    job: str
    moment: str


@dataclasses.dataclass(frozen=True)
class Outcome:
    case: Case
    name: str
    state: str
    message: str
    restarts: int
    again: int  # Steps that were done again, at most.
    seconds: float


class System(faults.FaultySystem):
    """`over_tcp`: workers reach each other over TCP, which can be cut."""

    def __init__(self, workers: int, over_tcp: bool = False):
        self.whole: dict[str, tuple[str, dict[int, float]]] = {}  # Checkpoint and losses.
        self.over_tcp = over_tcp
        self.network: PeerNetwork | None = None
        super().__init__(workers)

    def start_worker(self, name: str, *flags: str, prefix: tuple | list = ()):
        if self.over_tcp and self.network is None:
            self.network = PeerNetwork(self.path)
        if self.network is not None:
            prefix = [*prefix, *self.network.prefix(name, self.proxy_of(name).port)]
        return super().start_worker(name, *flags, prefix=prefix)


def flags_of(system: System, job: str) -> dict:
    """How a job of the kind trains, on as many devices as there are workers."""
    if job in ("replicas", "sharded"):
        return dict(planner="data-parallel", shard_optimizer="states" if job == "sharded" else None, micro_batch=None)
    if job == "asynchronous":
        plan = system.plan_by_hand(faults.MODEL, stages=len(system.workers))
        plan.write_text(json.dumps(json.loads(plan.read_text()) | {"asynchronous": True}))
        return dict(plan_file=plan, micro_batch=None, lr=0.001)
    return {}


def undisturbed(system: System, job: str) -> tuple[str, dict[int, float]]:
    """What weights and losses of such jobs must be; only those of an asynchronous one depend on its plan."""
    if job != "asynchronous":
        job = "plain"
    if job not in system.whole:
        flags = dict(devices=1 if job == "plain" else len(system.workers)) | flags_of(system, job)
        name = system.submit(faults.MODEL, **faults.settings(system, f"whole-{job}", steps=STEPS) | flags)
        ended = await_end(system, name)
        assert ended["state"] == "succeeded", ended["message"]
        system.whole[job] = (ended["checkpoint"], faults.losses(system, name))
    return system.whole[job]


def begin(system: System, kind: str, whom: str) -> Callable[[], None]:
    """Puts a fault on one process; what ends it."""
    if whom == "planner":
        if kind == "kill":
            system.stop(system.planner, signal.SIGKILL)
            return system.start_planner
        system.planner.send_signal(signal.SIGSTOP)
        return lambda: system.planner.send_signal(signal.SIGCONT)
    process, storage, proxy = system.workers[whom], system.storage, system.proxies[whom]
    if kind == "kill again":
        system.stop(process, signal.SIGKILL)
        system.start_worker(whom)
        return lambda: None
    if kind in ("kill", "terminate"):
        process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGTERM)

        def come_back():
            process.wait(PATIENCE)
            system.start_worker(whom)

        return come_back
    start, end = {
        "stop": (lambda: process.send_signal(signal.SIGSTOP), lambda: process.send_signal(signal.SIGCONT)),
        "cut network": (proxy.cut, proxy.heal),
        "cut peers": (lambda: system.network.cut(whom, process.pid), lambda: system.network.heal(whom)),
        "full disk": (lambda: system.fill_disk(True), lambda: system.fill_disk(False)),
        "hung path": (lambda: storage.hang(whom), lambda: storage.go_on(whom)),
    }[kind]
    start()
    return end


def faults_of(case: Case) -> tuple:
    return (CASES | PEER_CASES)[case.name]


def lasts(kinds: set[str], chance: random.Random) -> float:
    """Shorter than what is waited for, about as long, or longer."""
    if kinds <= {"kill", "kill again", "terminate"}:
        return chance.choice((0, 0, chance.random() * 3, chance.random() * 12))
    return chance.random() * 3 * faults.HEARTBEAT_LIMIT


def put(system: System, case: Case, workers: list[str], chance: random.Random) -> None:
    """Carries all faults out. Every process is there afterwards."""
    first, second = chance.sample(workers, 2) if len(workers) > 1 else workers * 2
    ends = []
    for kind, whom, within in faults_of(case):
        time.sleep(chance.random() * within)
        for one in {"first": [first], "second": [second], "all": list(system.workers)}.get(whom, [whom]):
            if kind == "kill" and system.workers.get(one) is not None and system.workers[one].poll() is not None:
                continue
            ends.append((one, begin(system, kind, one)))
            if kind == "full disk":
                break
    time.sleep(lasts({kind for kind, _, _ in faults_of(case)}, chance))
    chance.shuffle(ends)
    for _, end in ends:
        end()
    wait_for(lambda: faults.answers(system), "the planner to answer", PATIENCE)
    wait_for(lambda: connected(system) == set(system.workers), "all workers to register", PATIENCE)


def connected(system: System) -> set[str]:
    return {worker["name"] for worker in system.json("workers")["workers"]}


def forgive(system: System) -> None:
    for worker in system.workers:
        assert system.cli("workers", "uncordon", worker).returncode == 0


def await_end(system: System, job: str) -> dict:
    """However long it takes, if only it goes on."""
    last, since = None, time.monotonic()
    while True:
        found = system.job(job)
        if found["state"] in ENDED:
            return found
        now = (found["state"], found["step"], found["restarts"], found["message"])
        if now != last:
            last, since = now, time.monotonic()
        assert time.monotonic() - since < PATIENCE, f"{job} is stuck: {found}"
        time.sleep(0.2)


def await_moment(system: System, job: str, moment: str, chance: random.Random) -> dict:
    if moment == "starting":
        time.sleep(chance.random())
    else:
        step = chance.randrange(60, STEPS // 2) if moment == "training" else STEPS - chance.randrange(1, 100)
        wait_for(lambda: reached(system.job(job), step), f"step {step} of {job}", PATIENCE)
    time.sleep(chance.random() * 0.3)
    return system.job(job)


def reached(job: dict, step: int) -> bool:
    return job["step"] >= step or job["state"] in ENDED


def run(system: System, case: Case, chance: random.Random) -> Outcome:
    undisturbed(system, case.job)
    forgive(system)
    changes = dict(devices=len(system.workers), steps=STEPS, on_loss=case.policy, max_restarts=20)
    changes |= flags_of(system, case.job)
    if "hung path" in case.name or case.name in PEER_CASES:
        changes["step_timeout"] = faults.HANG
    job = system.submit(faults.MODEL, **faults.settings(system, f"out-{chance.random()}") | changes)
    before = await_moment(system, job, case.moment, chance)
    begun = time.monotonic()
    put(system, case, faults.busy_workers(before) or list(system.workers), chance)
    forgive(system)
    ended = await_end(system, job)
    seconds = time.monotonic() - begun
    again = faults.done_again(system, job, before["step"])
    return Outcome(case, job, ended["state"], ended["message"], ended["restarts"], again, seconds)


def most_again(case: Case) -> int:
    """Steps: see docs/recovery.md."""
    unheard = "cut network" in case.name and "kill another" in case.name
    if unheard or any(text in case.name for text in ("full disk", "hung path")):
        return sys.maxsize
    return (2 if "planner" in case.name else 1) * faults.CHECKPOINT_EVERY


def check(system: System, outcome: Outcome) -> None:
    case = outcome.case
    if case.policy == "fail" and outcome.state == "failed":
        assert re.search(r"worker w\d", outcome.message) and len(outcome.message.splitlines()) == 1, outcome
        return
    assert outcome.state == "succeeded", outcome
    assert outcome.again <= most_again(case), outcome
    weights, losses = undisturbed(system, case.job)
    faults.assert_same(system.job(outcome.name)["checkpoint"], weights)
    faults.assert_same_losses(faults.losses(system, outcome.name), losses)


def check_all_are_of_use(system: System) -> None:
    """The next job gets every worker."""
    forgive(system)
    used = system.submit(
        faults.MODEL, **faults.settings(system, "used", devices=len(system.workers), steps=5, planner="data-parallel")
        | dict(micro_batch=None)
    )  # fmt: skip
    ended = await_end(system, used)
    assert ended["state"] == "succeeded", ended["message"]
    assert faults.busy_workers(ended) == sorted(system.workers), ended["devices"]


def makes_sense(case: Case) -> bool:
    return not (case.job == "asynchronous" and LEAVES in case.name)


def cases_of(workers: int, names: list[str], chance: random.Random) -> list[Case]:
    """Each name three times, in an order of the seed, once under each policy."""
    chance.shuffle(names)
    policies = itertools.cycle(POLICIES)
    cases = []
    for name in names * 3:
        job = chance.choice(JOBS)
        case = Case(workers, name, next(policies), job, chance.choice(MOMENTS))
        cases.append(case if makes_sense(case) else dataclasses.replace(case, job="plain"))
    return cases


def run_all(workers: int, cases: list[Case], chance: random.Random) -> tuple[list[Outcome], list[str]]:
    """What became of them, and what was wrong with it."""
    outcomes, wrong = [], []
    while cases:  # What follows on something wrong begins with processes that nothing happened to.
        with System(workers, over_tcp=cases[0].name in PEER_CASES) as system:
            while cases and (cases[0].name in PEER_CASES) == system.over_tcp:
                case = cases.pop(0)
                try:
                    outcomes.append(run(system, case, chance))
                    print(outcomes[-1], file=sys.stderr, flush=True)
                    check(system, outcomes[-1])
                    check_all_are_of_use(system)
                except (AssertionError, subprocess.SubprocessError) as error:
                    wrong.append(f"{case}: {error}")
                    print("wrong:", wrong[-1], file=sys.stderr, flush=True)
                    break
    return outcomes, wrong


def main() -> None:
    count, seed, sizes = faults.arguments()
    chance = random.Random(seed)
    each = -(-count // len(sizes))
    outcomes: dict[tuple[int, str], list[Outcome]] = collections.defaultdict(list)
    wrong = []
    for workers in sizes:
        names, peer_names = list(CASES), list(PEER_CASES)
        chance.shuffle(names)
        peers = max(1, each // 10)
        cases = cases_of(workers, names, chance)[: each - peers] + cases_of(workers, peer_names, chance)[:peers]
        found, bad = run_all(workers, cases, chance)
        wrong += bad
        for outcome in found:
            outcomes[workers, outcome.case.name].append(outcome)
    print(f"{count} cases, seed {seed}\n\n| workers | faults | ended well | said why not | steps done again, at most |\n"
          "|---|---|---|---|---|")  # fmt: skip
    for (workers, name), found in sorted(outcomes.items()):
        good = sum(outcome.state == "succeeded" for outcome in found)
        again = max(outcome.again for outcome in found)
        print(f"| {workers} | {name} | {good} of {len(found)} | {len(found) - good} | {again} |")
    if wrong:
        raise SystemExit("\n" + "\n".join(wrong))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *unused: sys.exit(143))  # All that was started ends, too.
    main()
