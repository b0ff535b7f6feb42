"""Kills the planner at random points under clients that write and read, and checks what they were told.

python tests/fault/planner_kills.py [KILLS] [SEED] (with the environment of scripts/fault.sh) prints a table; it fails if
a write that was acknowledged is lost or done twice, an answer cannot be explained, or a job does not end as it should.
SIGINT or SIGTERM ends it early, with the table of what was done until then.
"""

import collections
import random
import signal
import sys
import time

import grpc
from campaign import Campaign
from history import History
from job_clients import Client, Jobs
from job_model import seen, wrong_in
from planner_group import PlannerGroup
from processes import MODELS, Processes, wait_for

from stagewright import rpc
from stagewright.graph_file import load_graph
from stagewright.proto import jobs_pb, planner_pb
from stagewright.security import Security

MODEL = "chain_f32"
MISSING = "nobody.safetensors"  # Of every job that is made to fail.
MORE_THAN_THERE_ARE = 64
PATIENCE = 120.0
CLIENTS = 4
LEAST_JOBS, LEAST_CALLS = 3, 50


class Specs:
    """Jobs that train on one or two devices for a while, that fail, and that wait for more devices than there are."""

    def __init__(self, system: Processes | PlannerGroup, devices: int):
        self.path = system.path
        self.devices = devices
        self.graph = load_graph(MODELS / f"{MODEL}.swg")

    def __call__(self, chance: random.Random, subject: str) -> tuple[jobs_pb.JobSpec, bool]:
        waits = not self.devices or chance.random() < 0.5
        weights = f"{MODEL}.safetensors" if chance.random() < 0.9 else MISSING
        spec = jobs_pb.JobSpec(
            display_name=subject, graph=self.graph, weights_path=str(MODELS / weights),
            data_path=str(MODELS / f"{MODEL}.data.safetensors"), output_path=str(self.path / subject.replace(" ", "-")),
            optimizer=jobs_pb.OptimizerConfig(kind=planner_pb.OPTIMIZER_SGD, learning_rate=0.1), mini_batch=16,
            steps=chance.choice([1, 50, 400]), planner="graphpipe", max_restarts=50, priority=chance.randrange(3),
            num_devices=MORE_THAN_THERE_ARE if waits else chance.randint(1, self.devices),
        )  # fmt: skip
        return spec, waits


def kill(system: Processes, chance: random.Random) -> None:
    """After a random time, now and then one that lets jobs get on; one in four dies again before it listens."""
    time.sleep(chance.random() * 8 if chance.random() < 0.05 else chance.random() * 0.6)
    system.stop(system.planner, signal.SIGKILL)
    while chance.random() < 0.25:
        system.begin_planner()
        time.sleep(chance.random() * 0.15)
        if system.planner.poll() is None:
            system.stop(system.planner, signal.SIGKILL)
    system.start_planner()


def page_of(stubs: rpc.Stubs, token: str) -> jobs_pb.ListJobsResponse | None:
    """None while nobody leads."""
    try:
        return stubs.ListJobs(jobs_pb.ListJobsRequest(page_size=500, page_token=token), timeout=60)
    except grpc.RpcError as error:
        assert error.code() is grpc.StatusCode.UNAVAILABLE, error
        return None


def all_jobs(stubs: rpc.Stubs) -> list[jobs_pb.Job]:
    found, token = [], ""
    while True:
        page = wait_for(lambda: page_of(stubs, token), "a list of jobs")
        found += page.jobs
        token = page.next_page_token
        if not token:
            return found


def await_calls(jobs: Jobs) -> None:
    """Enough to judge by: on a busy machine few are made before the last fault."""
    wait_for(lambda: len(jobs.known) > LEAST_JOBS and len(jobs.history.calls) > LEAST_CALLS, "calls of clients")


def await_ends(jobs: Jobs, client: Client) -> list[jobs_pb.Job]:
    """Cancels what waits for ever, opens the workers, and waits for the rest for as long as any of it gets on."""
    never = {job.subject for job in jobs.known if job.waits}
    begun, last = time.monotonic(), None
    while True:
        for worker in jobs.workers:  # When they are back.
            client.set_availability(worker, "OPEN")
        found = all_jobs(client.stubs)
        living = [job for job in found if seen(job).phase == "ACTIVE"]
        for job in living:
            # Those of nobody were submitted by a client that was stopped before it heard so.
            if job.spec.num_devices == MORE_THAN_THERE_ARE or job.spec.display_name in never:
                request = jobs_pb.CancelJobRequest(name=job.name)
                client.call(job.spec.display_name, "cancel", client.stubs.CancelJob, request, lambda a: seen(a.job))
        if not living:
            return found
        now = [(job.name, job.state, job.metrics.step) for job in living]
        begun, last = (begun, last) if now == last else (time.monotonic(), now)
        if time.monotonic() - begun > PATIENCE:
            jobs.wrong += [f"{job.name} does not end: {seen(job)}: {job.message}" for job in living]
            return found
        time.sleep(1)


def look_at_all(jobs: Jobs, client: Client, found: list[jobs_pb.Job]) -> None:
    """The last looks of the history: what the list has, what it has not, and each job by its name."""
    begin = time.monotonic()
    for job in found:
        jobs.history.add(job.spec.display_name, "look", None, begin, seen(job))
    listed = {job.spec.display_name for job in found}
    doubled = collections.Counter(job.spec.display_name for job in found)
    jobs.wrong += [f"{subject} is {count} jobs" for subject, count in doubled.items() if count > 1]
    for job in jobs.known:
        if job.subject not in listed:
            jobs.history.add(job.subject, "look", None, begin, "NOT_FOUND")
        request = jobs_pb.GetJobRequest(name=job.name)
        client.call(job.subject, "look", client.stubs.GetJob, request, lambda answer: seen(answer.job))


def counted(jobs: Jobs) -> dict:
    with jobs.history.lock:
        unanswered = sum(call.answer is None for call in jobs.history.calls)
        return {"calls": len(jobs.history.calls), "acknowledged": len(jobs.known), "unanswered": unanswered}


def known_so_far(jobs: Jobs) -> dict:
    """While clients call: what calls under way explain is not judged yet."""
    return {**counted(jobs), "wrong": len(jobs.wrong)}


def ended_otherwise(found: list[jobs_pb.Job]) -> list[str]:
    """Jobs that failed though nothing but the faults was in their way, and those that were made to fail and did not."""
    unlike = {"SUCCEEDED": True, "FAILED": False}  # Whether a job with this end should have failed.
    return [
        f"{job.name} is {seen(job)}: {job.message}"
        for job in found
        if unlike.get(seen(job).state) == job.spec.weights_path.endswith(MISSING)
    ]


def told(jobs: Jobs, found: list[jobs_pb.Job]) -> dict:
    """Figures of a history whose clients have ended, and `wrong`, a list that should be empty."""
    states = collections.Counter(seen(job).state for job in found)
    wrong = jobs.wrong + ended_otherwise(found) + wrong_in(jobs.history)
    return {**counted(jobs), "ended": dict(sorted(states.items())), "wrong": wrong}


def stop(clients: list[Client], jobs: Jobs) -> None:
    jobs.stopping.set()
    for client in clients:
        client.join(60)


def run(kills: int, seed: int, workers: int = 2, planner_flags: tuple = ()) -> dict:
    """Figures for the table, and `wrong`, a list that should be empty."""
    chance = random.Random(seed)
    with Processes(workers=workers, planner_flags=("--worker-timeout", "5", *planner_flags)) as system:
        names = sorted(system.workers)
        jobs = Jobs(History(), Specs(system, len(names)), names)
        clients = [Client([system.address], jobs, seed * 100 + i) for i in range(CLIENTS)]
        for client in clients:
            client.start()
        with Campaign(kills, lambda: known_so_far(jobs)) as campaign:
            for _ in campaign:
                kill(system, chance)
        figures = {"campaign": campaign, "kills": campaign.done, "seconds": time.monotonic() - campaign.begun}
        if campaign.interrupted:
            stop(clients, jobs)
            return {**figures, **told(jobs, [])}
        await_calls(jobs)
        stop(clients, jobs)
        last = Client([system.address], jobs, seed)
        wait_for(lambda: len(last.stubs.ListWorkers(jobs_pb.ListWorkersRequest()).workers) == workers, "the workers")
        found = await_ends(jobs, last)
        look_at_all(jobs, last, found)
        last.channel.close()
    return {**figures, **told(jobs, found)}


def main() -> None:
    kills, seed = (int(text) for text in (sys.argv[1:] + ["200", "1"][len(sys.argv) - 1 :]))
    found = run(kills, seed)
    campaign, wrong = found.pop("campaign"), found.pop("wrong")
    print("| " + " | ".join(found) + " | wrong |\n|" + "---|" * (len(found) + 1))
    print("| " + " | ".join(f"{v:.0f}" if isinstance(v, float) else str(v) for v in found.values()) + f" | {len(wrong)} |")
    campaign.end(wrong)


if __name__ == "__main__":
    main()
