"""Kills, stops and cuts off the leader of three planners over etcd under clients, and checks what they were told.

python tests/fault/leader_faults.py [FAULTS] [SEED] (with the environment of scripts/fault.sh) prints a table; it fails if
a write that was acknowledged is lost or done twice, an answer cannot be explained, or a job does not end. SIGINT or SIGTERM
ends it early, with the table of what was done until then.
"""

import collections
import random
import signal
import statistics
import sys
import time

from campaign import Campaign
from history import NEVER, History
from job_clients import Client, Jobs
from planner_group import LEASE, PlannerGroup
from planner_kills import Specs, await_calls, await_ends, known_so_far, look_at_all, stop, told
from processes import PATIENCE, wait_for

KINDS = ("kill", "stop", "cut")
CLIENTS = 3
WRITES = ("submit", "cancel", "delete", "set")


def put(group: PlannerGroup, kind: str, leader: str, patience: float = PATIENCE) -> None:
    """Carries the fault out, waits until another one leads, and undoes the fault."""
    process, way = group.planners[leader], group.ways[leader]
    if kind == "cut":
        way.cut()
    else:
        process.send_signal(signal.SIGKILL if kind == "kill" else signal.SIGSTOP)
    others = [address for address in group.planners if address != leader]
    wait_for(lambda: any(group.role(other) == "leading" for other in others), f"another leader after a {kind}", patience)
    if kind == "kill":
        process.wait()
        group.start(leader)
    elif kind == "stop":
        process.send_signal(signal.SIGCONT)
    else:
        way.heal()


def first_write_after(history: History, moment: float) -> float:
    """Seconds until a write was acknowledged that was asked for after the moment."""
    with history.lock:
        ends = [c.end for c in history.calls if c.kind in WRITES and c.begin > moment and c.end < NEVER]
    return min(ends) - moment if ends else NEVER


def run(faults: int, seed: int, workers: int = 1) -> dict:
    chance = random.Random(seed)
    gaps: dict[str, list[float]] = collections.defaultdict(list)
    with PlannerGroup() as group:
        for i in range(workers):
            group.start_worker(f"w{i}")
        jobs = Jobs(History(late=True), Specs(group, workers), sorted(group.workers))
        clients = [Client(list(group.planners), jobs, seed * 100 + i, pause=0.1) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        with Campaign(faults, lambda: known_so_far(jobs)) as campaign:
            for i in campaign:
                time.sleep(1 + chance.random() * 2)
                leader, kind = group.await_leader(), KINDS[i % len(KINDS)]
                begun = time.monotonic()
                put(group, kind, leader)
                wait_for(lambda begun=begun: first_write_after(jobs.history, begun) < NEVER, "a write")
                gaps[kind].append(first_write_after(jobs.history, begun))
        if campaign.interrupted:
            stop(clients, jobs)
            return {"campaign": campaign, "gaps": gaps, **told(jobs, [])}
        await_calls(jobs)
        stop(clients, jobs)
        last = Client([group.await_leader()], jobs, seed)
        found = await_ends(jobs, last)
        look_at_all(jobs, last, found)
        last.channel.close()
    return {"campaign": campaign, "gaps": gaps, **told(jobs, found)}


def main() -> None:
    faults, seed = (int(text) for text in (sys.argv[1:] + ["30", "1"][len(sys.argv) - 1 :]))
    found = run(faults, seed)
    print(f"{found['campaign'].done} faults, seed {seed}, a lease of {LEASE} s: {found['calls']} calls, {found['acknowledged']} jobs "
          f"acknowledged, {found['unanswered']} calls unanswered, {found['ended']}\n")  # fmt: skip
    print("| leader | times | next write after, median | at most |\n|---|---|---|---|")
    for kind, gaps in found["gaps"].items():
        print(f"| {kind} | {len(gaps)} | {statistics.median(gaps):.1f} s | {max(gaps):.1f} s |")
    found["campaign"].end(found["wrong"])


if __name__ == "__main__":
    main()
