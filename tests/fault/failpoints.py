"""Planner and worker die at every durable step, one after the other; a client that asks again gets one job that ends well.
Planners over etcd die so as leaders, and a client that asks again, whoever leads, has submitted each job once.

python tests/fault/failpoints.py (with the environment of scripts/fault.sh points) prints a table. Points are found in the
sources; how often each is reached is found by dying there for the first time, the second, and so on.
"""

import itertools
import json
import pathlib
import random
import re
import signal

import faults
import grpc
from planner_group import PlannerGroup
from planner_kills import Specs, all_jobs
from processes import Processes, wait_for

from stagewright import rpc
from stagewright.proto import jobs_pb
from stagewright.security import Security

ROOT = pathlib.Path(__file__).parents[2]
POINT = re.compile(r'STAGEWRIGHT_FAILPOINT\("([\w.]+)"\)')
STEPS = 300


def points(*folders: str) -> list[str]:
    """Of the sources below the folders."""
    sources = [source for folder in folders for source in sorted((ROOT / folder).rglob("*.cc"))]
    return sorted({name for source in sources for name in POINT.findall(source.read_text())})


PLANNERS = [name for name in points("planner_service") if not name.startswith("etcd.")]
LEADERS = [name for name in points("planner_service") if name.startswith("etcd.")]
WORKERS = points("common", "worker_daemon")


def armed(name: str, count: int) -> list[str]:
    return ["env", f"STAGEWRIGHT_FAILPOINTS={name}:crash@{count}"]


def flags_of(system: Processes, name: str) -> dict:
    """A job with several checkpoints, of which the last stays."""
    return faults.settings(system, name, devices=1, steps=STEPS, max_restarts=5, name=name) | dict(
        model=faults.MODEL, checkpoint_every=STEPS // 3, keep=1, request_id=name
    )


def is_one_good_job(system: Processes, name: str, job: str, whole: str) -> None:
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]
    faults.assert_same(ended["checkpoint"], system.job(whole)["checkpoint"])
    same = [j["name"] for j in system.json("jobs")["jobs"] if j["display_name"] == name]
    assert same == [job], same


def renew_worker(system: Processes, prefix: list | tuple = ()):
    system.stop(system.workers.pop("w0"), signal.SIGKILL)
    wait_for(lambda: not system.json("workers")["workers"], "w0 to be gone")
    return system.start_worker("w0", prefix=prefix)


def die_in_worker(system: Processes, point: str, count: int, whole: str) -> bool:
    """Whether the worker came so far that it died."""
    name = f"{point}-{count}"
    worker = renew_worker(system, armed(point, count))
    wait_for(lambda: worker.poll() is not None or system.json("workers")["workers"], "w0 to come or to die")
    job = system.submit(**flags_of(system, name))
    wait_for(lambda: worker.poll() is not None or system.job(job)["state"] in faults.ENDED, f"{point} {count}")
    died = worker.poll() == -signal.SIGKILL
    if died:
        assert f"failpoint {point}: crash" in system.log("w0")
        system.start_worker("w0")
        system.await_workers(1)
        assert system.cli("workers", "uncordon", "w0").returncode == 0
    is_one_good_job(system, name, job, whole)
    return died


def die_in_planner(system: Processes, point: str, count: int, whole: str) -> bool:
    """The same of the planner, with a state of its own where that is made."""
    name = f"{point}-{count}"
    system.stop(system.planner, signal.SIGKILL)
    if point.startswith("store.make"):
        for file in system.path.glob("state.db*"):
            file.unlink()
    begin = system.begin_planner(armed(point, count))
    begun = system.planner

    def restarted():
        """It is started again when it dies, as systemd would."""
        if system.planner.poll() is None:
            return False
        assert f"failpoint {point}: crash" in system.log("planner")[begin:]
        system.start_planner()
        return True

    job = None
    while job is None:  # It may die before it listens, while it is asked, and when it has answered.
        restarted()
        result = system.cli(*system.submit_flags(**flags_of(system, name)), "-o", "json")
        if result.returncode == 0:
            job = json.loads(result.stdout)["name"]
    wait_for(lambda: restarted() or is_over(system, job), f"{point} {count}")
    died = system.planner is not begun
    if not died:  # It goes on to write, of the workers and of what they measure, and may come to the step while it is asked.
        system.stop(begun, signal.SIGKILL)
        system.start_planner()
    is_one_good_job(system, name, job, whole)
    return died


def is_over(system: Processes, job: str) -> bool:
    result = system.cli("jobs", "-o", "json")
    return result.returncode == 0 and any(
        j["name"] == job and j["state"] in faults.ENDED for j in json.loads(result.stdout)["jobs"]
    )


def times(die, stride: int) -> int:
    """How often a point is reached, where every `stride`th time is tried."""
    count = 1
    while die(count):
        count += stride
    return count - stride


def walk(stride: int) -> dict[str, int]:
    """By point, the last time that it was died at."""
    reached = {}
    with Processes(workers=1, planner_flags=("--worker-timeout", str(faults.HEARTBEAT_LIMIT))) as system:
        whole = faults.undisturbed(system, STEPS)
        for point in WORKERS:
            reached[point] = times(lambda count, p=point: die_in_worker(system, p, count, whole), stride)
        renew_worker(system)
        for point in PLANNERS:
            reached[point] = times(lambda count, p=point: die_in_planner(system, p, count, whole), stride)
    return reached


class Submitting:
    """A client that submits one job after the other, each under one request id until it is acknowledged."""

    def __init__(self, group: PlannerGroup):
        self.specs = Specs(group, devices=0)
        self.chance = random.Random(1)
        self.submitted: list[str] = []
        self.begin()

    def begin(self) -> None:
        self.name = f"job {len(self.submitted)}"
        spec = self.specs(self.chance, self.name)[0]
        self.request = jobs_pb.SubmitJobRequest(spec=spec, request_id=self.name)

    def ask(self, address: str) -> bool:
        with grpc.insecure_channel(address) as channel:
            try:
                rpc.Stubs(channel, Security()).SubmitJob(self.request, timeout=60)
            except grpc.RpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE, error
                return False
        self.submitted.append(self.name)
        self.begin()
        return True


def died_under(client: Submitting, group: PlannerGroup) -> str:
    """Who has died, if anybody has; else the client submits a job."""
    dead = next((address for address, process in group.planners.items() if process.poll() is not None), "")
    if not dead and (leader := group.leader()) is not None:
        client.ask(leader)
    return dead


def await_role(group: PlannerGroup, address: str, roles: tuple[str, ...]) -> None:
    """Who is armed writes as soon as it leads, and may die before it says so."""
    wait_for(
        lambda: group.role(address).startswith(roles) or group.planners[address].poll() is not None,
        f"{address} to be {' or '.join(roles)}",
        seen=lambda: group.log(address).read_text(),
    )


def walk_leaders(times: int) -> dict[str, int]:
    """Each leader dies at a step of its own. By point, how often."""
    steps = [(point, count) for count in range(1, times + 1) for point in LEADERS]
    arms = itertools.chain((armed(*step) for step in steps), itertools.repeat(()))
    died = dict.fromkeys(LEADERS, 0)
    with PlannerGroup(count=2) as group:
        first = group.await_leader()
        second = next(address for address in group.planners if address != first)
        for address in (second, first):  # The leader that is not armed goes last.
            group.planners[address].terminate()
            group.planners[address].wait()
            group.start(address, next(arms))
            await_role(group, address, ("leading", "following"))
        client = Submitting(group)
        for _ in steps:
            wait_for(lambda: died_under(client, group), "a leader to die")
            dead = died_under(client, group)
            died[re.search(r"failpoint (\S+): crash", group.log(dead).read_text()[group.begun[dead] :]).group(1)] += 1
            other = next(address for address in group.planners if address != dead)
            await_role(group, other, ("leading",))  # It is armed, and must not be beaten to it.
            group.start(dead, next(arms))
        wait_for(lambda: client.ask(group.await_leader()), "the last job")
        with grpc.insecure_channel(group.await_leader()) as channel:
            names = [job.spec.display_name for job in all_jobs(rpc.Stubs(channel, Security()))]
    assert sorted(names) == sorted(client.submitted)
    return died


def main() -> None:
    reached = walk(stride=1) | walk_leaders(times=10)
    print("| point | died there | all jobs |\n|---|---|---|")
    for point, count in reached.items():
        print(f"| {point} | {count} times | ended well, once |")
    unreached = [point for point, count in reached.items() if count < 1]
    if unreached:
        raise SystemExit(f"never reached: {unreached}")


if __name__ == "__main__":
    main()
