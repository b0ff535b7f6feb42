"""A planner and workers under a mixture of work and faults for hours, watched from outside.

python tests/fault/soak_hours.py [HOURS] [SEED] (with the environment of scripts/soak.sh hours) prints a Markdown row; it
fails if a process grows, an acknowledged job is lost, an answer cannot be explained, or a job does not end as it should.
"""

import dataclasses
import os
import pathlib
import random
import signal
import statistics
import sys
import threading
import time

import planner_kills
from faults import replace
from history import History
from job_clients import Client, Jobs
from processes import MODELS, Processes, wait_for
from soak import resident_bytes

from stagewright.proto import jobs_pb

WORKERS = 3
CLIENTS = 3
PATIENCE = 120
PAUSE = 2  # Seconds between a client's calls: its history of hours is to fit into memory.
# A process has its threads, connections and caches after so many samples, and is looked at if it lives for as many again.
WARM_SAMPLES = 30
MEMORY_GROWTH = 0.05
MEMORY_SLACK = 16 << 20  # Bytes. Caches that have a bound, and what the planner knows of jobs that have ended.
SLACK = 8  # Files or threads. Thread pools grow with the most that they had to do at once; what is lost each time is more.
# The last worker is only drained, and the planner left alone in the second half, so that they can be seen growing.
KINDS = ("kill worker", "terminate worker", "drain worker", "terminate planner", "kill planner")
WEIGHTS = (6, 4, 6, 2, 2)


@dataclasses.dataclass(frozen=True)
class Sample:
    memory: int  # Resident bytes.
    files: int
    threads: int


@dataclasses.dataclass
class Life:
    """One process, from its start to its end."""

    name: str
    samples: list[Sample]


def sample(pid: int) -> Sample | None:
    """None: it has ended."""
    try:
        process = pathlib.Path(f"/proc/{pid}")
        return Sample(resident_bytes(pid), len(os.listdir(process / "fd")), len(os.listdir(process / "task")))
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None


class Watcher(threading.Thread):
    """Samples whatever processes there are."""

    def __init__(self, system: Processes, interval: float):
        super().__init__(name="watcher", daemon=True)
        self.system = system
        self.interval = interval
        self.lives: dict[int, Life] = {}
        self.stopping = threading.Event()

    def run(self) -> None:
        while not self.stopping.wait(self.interval):
            for name, process in {"planner": self.system.planner, **self.system.workers}.items():
                if found := sample(process.pid):
                    self.lives.setdefault(process.pid, Life(name, [])).samples.append(found)


def ends_of(values: list[int]) -> tuple[list[int], list[int]]:
    """The first and the last quarter of what a warm process had."""
    warm = values[WARM_SAMPLES:] or values
    quarter = max(1, len(warm) // 4)
    return warm[:quarter], warm[-quarter:]


def growth_of(life: Life) -> list[str]:
    """A line for each thing that it has more of. Connections, files and threads of a moment are none: the fewest count."""
    if len(life.samples) < 2 * WARM_SAMPLES:
        return []
    wrong = []
    first, last = (statistics.median(part) for part in ends_of([s.memory for s in life.samples]))
    if last - first > max(MEMORY_GROWTH * first, MEMORY_SLACK):
        wrong.append(f"{life.name}: {first / 2**20:.1f} MiB became {last / 2**20:.1f} MiB")
    for what in ("files", "threads"):
        first, last = (min(part) for part in ends_of([getattr(s, what) for s in life.samples]))
        if last > first + SLACK:
            wrong.append(f"{life.name}: {first} {what} became {last}")
    return wrong


class Planning(threading.Thread):
    """Asks for plans, of the command line, until it is stopped; a planner that is away is asked again."""

    def __init__(self, system: Processes, seed: int):
        super().__init__(name="planning", daemon=True)
        self.system = system
        self.chance = random.Random(seed)
        self.plans = 0
        self.stopping = threading.Event()

    def run(self) -> None:
        graph = MODELS / f"{planner_kills.MODEL}.swg"
        while not self.stopping.wait(self.chance.random() * 4):
            # Different questions, so that not all are answered by the cache.
            cluster, mini_batch = f"cpu:{self.chance.randint(1, 8)}", 16 * self.chance.randint(1, 64)
            asked = self.system.cli("plan", graph, "--cluster", cluster, "--mini-batch", mini_batch, timeout=PATIENCE)
            self.plans += asked.returncode == 0


def drain(system: Processes, worker: str, operator: Client) -> None:
    """Its jobs leave it, and it is opened again once nothing is on it."""

    def idle():
        listed = next((w for w in system.json("workers")["workers"] if w["name"] == worker), None)
        return listed is None or all(not device.get("job") for device in listed["devices"])

    def set_to(state: str):
        wait_for(lambda: operator.set_availability(worker, state)[0] == "OK", f"{worker} to be {state}", PATIENCE)

    set_to("DRAINING")
    wait_for(idle, f"jobs to leave {worker}", PATIENCE)
    set_to("OPEN")


def put(system: Processes, kind: str, chance: random.Random, operator: Client) -> None:
    """Carries the fault out; every process is there afterwards."""
    how = signal.SIGKILL if kind.startswith("kill") else signal.SIGTERM
    names = sorted(system.workers)
    if kind == "drain worker":
        return drain(system, chance.choice(names), operator)
    worker = chance.choice(names[:-1])
    if kind.endswith("planner"):
        system.stop(system.planner, how, patience=PATIENCE)
        return system.start_planner()
    system.stop(system.workers[worker], how, patience=PATIENCE)
    replace(system, worker)


def run(seconds: float, seed: int, interval: float, between: float) -> dict:
    """Figures for the table, and `wrong`, a list that should be empty. A fault comes every `between` seconds or so."""
    chance = random.Random(seed)
    with Processes(workers=WORKERS, planner_flags=("--worker-timeout", "5")) as system:
        names = sorted(system.workers)
        # The faults cordon workers themselves.
        jobs = Jobs(History(), planner_kills.Specs(system, len(names)), [])
        clients = [Client([system.address], jobs, seed * 100 + i, pause=PAUSE) for i in range(CLIENTS)]
        last = Client([system.address], jobs, seed)
        watcher, planning = Watcher(system, interval), Planning(system, seed)
        for thread in (*clients, watcher, planning):
            thread.start()
        begin, faults = time.monotonic(), 0
        end = begin + seconds
        while time.monotonic() < end:
            time.sleep(min(between * (0.5 + chance.random()), max(0, end - time.monotonic())))
            kinds = len(KINDS) if time.monotonic() < begin + seconds / 2 else KINDS.index("terminate planner")
            put(system, chance.choices(KINDS[:kinds], WEIGHTS[:kinds])[0], chance, last)
            faults += 1
        jobs.stopping.set()
        planning.stopping.set()
        for thread in (*clients, planning):
            thread.join(PATIENCE)
        wait_for(lambda: len(last.stubs.ListWorkers(jobs_pb.ListWorkersRequest()).workers) == WORKERS, "the workers")
        found = planner_kills.await_ends(jobs, last)
        planner_kills.look_at_all(jobs, last, found)
        last.channel.close()
        watcher.stopping.set()
        watcher.join()
    told = planner_kills.told(jobs, found)
    told["wrong"] += [line for life in watcher.lives.values() for line in growth_of(life)]
    longest = max((life for life in watcher.lives.values() if life.name == "planner"), key=lambda life: len(life.samples))
    first, final = (statistics.median(part) / 2**20 for part in ends_of([s.memory for s in longest.samples]))
    memory = f"{first:.1f}, {final:.1f} MiB"
    return {"hours": seconds / 3600, "faults": faults, "plans": planning.plans, "planner": memory, **told}


def main() -> None:
    hours, seed = float((sys.argv[1:] + ["8"])[0]), int((sys.argv[2:] + ["1"])[0])
    found = run(hours * 3600, seed, interval=min(10, hours * 60), between=min(30, hours * 180))
    wrong = found.pop("wrong")
    print("| " + " | ".join(found) + " | wrong |\n|" + "---|" * (len(found) + 1))
    cells = (f"{value:.2f}" if isinstance(value, float) else str(value) for value in found.values())
    print("| " + " | ".join(cells) + f" | {len(wrong)} |")
    if wrong:
        raise SystemExit("\n" + "\n".join(wrong))


if __name__ == "__main__":
    main()
