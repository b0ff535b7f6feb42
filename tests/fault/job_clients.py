"""Clients that submit, look at, watch, cancel and delete jobs and cordon workers at random, and keep what was answered."""

import dataclasses
import random
import threading
import time

import grpc
from history import History
from job_model import seen, wrong_in_watch

from stagewright import rpc
from stagewright.proto import jobs_pb, workers_pb
from stagewright.security import Security

# Calls are not repeated by gRPC: each try is a call of its own. Nobody waits long for a planner that is back.
OPTIONS = (
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 200),
)
ANSWERS = ("NOT_FOUND", "FAILED_PRECONDITION")  # Of a planner that did nothing; other errors may come from anywhere.
UNANSWERED = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")
NOT_SENT = "failed to connect"  # gRPC had no connection on which it could have been.
TIMEOUT = 3


@dataclasses.dataclass
class Known:
    subject: str
    name: str
    spec: jobs_pb.JobSpec
    owner: "Client"
    waits: bool  # For more devices than there are.
    gone: bool = False


class Jobs:
    """What all clients know; thread-safe."""

    def __init__(self, history: History, specs, workers: list[str]):
        self.history = history
        self.specs = specs  # (random, subject) -> (JobSpec, whether it waits for ever).
        self.workers = workers
        self.lock = threading.Lock()
        self.known: list[Known] = []
        self.count = 0
        self.wrong: list[str] = []
        self.stopping = threading.Event()

    def new_subject(self) -> str:
        with self.lock:
            self.count += 1
            return f"job {self.count}"

    def some(self, chance: random.Random) -> Known | None:
        with self.lock:
            return chance.choice(self.known[-40:]) if self.known else None


class Client(threading.Thread):
    """Of several addresses it goes to the next one where it gets no answer."""

    def __init__(self, addresses: list[str], jobs: Jobs, seed: int, pause: float = 0.05):
        super().__init__(name=f"client {seed}", daemon=True)
        self.addresses = addresses
        self.jobs = jobs
        self.chance = random.Random(seed)
        self.pause = pause
        self.channel = None
        self.connect()

    def connect(self) -> None:
        if self.channel is not None:
            self.channel.close()
        self.addresses = [*self.addresses[1:], self.addresses[0]]
        self.channel = grpc.insecure_channel(self.addresses[-1], options=OPTIONS)
        self.stubs = rpc.Stubs(self.channel, Security())

    def run(self) -> None:
        actions = [(self.submit, 4), (self.look, 6), (self.list, 4), (self.watch, 2), (self.cancel, 3), (self.delete, 2),
                   (self.again, 1), (self.cordon, 1), (self.look_at_workers, 2)]  # fmt: skip
        try:
            while not self.jobs.stopping.is_set():
                [action] = self.chance.choices([a for a, _ in actions], [weight for _, weight in actions])
                action()
                time.sleep(self.chance.random() * 2 * self.pause)
        except Exception as error:  # noqa: BLE001 - a client that is silent would let the check pass.
            self.jobs.wrong.append(f"{self.name}: {error!r}")
        self.channel.close()

    def call(self, subject: str, kind: str, method, request, told, argument=None):
        """Code and answer, None without one; `told` makes of the answer what is kept."""
        begin = time.monotonic()
        try:
            answer = method(request, timeout=TIMEOUT)
        except grpc.RpcError as error:
            code = error.code().name
            if code in ANSWERS:
                self.jobs.history.add(subject, kind, argument, begin, code)
            elif code not in UNANSWERED:
                self.jobs.wrong.append(f"{kind} {subject}: {code} {error.details()}")
            elif kind != "look" and NOT_SENT not in error.details():
                self.jobs.history.add(subject, kind, argument, begin, None)
            if code in UNANSWERED and len(self.addresses) > 1:
                self.connect()
            return code, None
        self.jobs.history.add(subject, kind, argument, begin, told(answer))
        return "OK", answer

    def try_to_submit(self, subject: str, spec: jobs_pb.JobSpec):
        request = jobs_pb.SubmitJobRequest(spec=spec, request_id=subject)
        return self.call(subject, "submit", self.stubs.SubmitJob, request, lambda answer: seen(answer.job))

    def submit(self) -> None:
        """Until it is acknowledged, as the command line does."""
        subject = self.jobs.new_subject()
        spec, waits = self.jobs.specs(self.chance, subject)
        while not self.jobs.stopping.is_set():
            _, answer = self.try_to_submit(subject, spec)
            if answer is not None:
                with self.jobs.lock:
                    self.jobs.known.append(Known(subject, answer.job.name, spec, self, waits))
                return
            time.sleep(0.05)

    def mine(self) -> Known | None:
        with self.jobs.lock:
            mine = [job for job in self.jobs.known[-100:] if job.owner is self and not job.gone]
        return self.chance.choice(mine) if mine else None

    def again(self) -> None:
        """A request that was acknowledged long ago is made once more. Only its owner does, who also deletes it."""
        if job := self.mine():
            self.try_to_submit(job.subject, job.spec)

    def look(self) -> None:
        if job := self.jobs.some(self.chance):
            request = jobs_pb.GetJobRequest(name=job.name)
            self.call(job.subject, "look", self.stubs.GetJob, request, lambda answer: seen(answer.job))

    def cancel(self) -> None:
        if job := self.jobs.some(self.chance):
            request = jobs_pb.CancelJobRequest(name=job.name)
            self.call(job.subject, "cancel", self.stubs.CancelJob, request, lambda answer: seen(answer.job))

    def delete(self) -> None:
        if not (job := self.mine()):
            return
        request = jobs_pb.DeleteJobRequest(name=job.name)
        job.gone = True  # Its request must not be repeated once it may be forgotten.
        code, _ = self.call(job.subject, "delete", self.stubs.DeleteJob, request, lambda _: "OK")
        job.gone = code != "FAILED_PRECONDITION"

    def list(self) -> None:
        """One page: whoever is on it is looked at. Who is not, is looked for by name, above."""
        begin = time.monotonic()
        try:
            page = self.stubs.ListJobs(jobs_pb.ListJobsRequest(page_size=20), timeout=TIMEOUT)
        except grpc.RpcError:
            return
        for job in page.jobs:
            self.jobs.history.add(job.spec.display_name, "look", None, begin, seen(job))

    def watch(self) -> None:
        """For some messages, or until the planner is gone, and then from there on."""
        if not (job := self.jobs.some(self.chance)):
            return
        after = 0
        for _ in range(2):
            stream = self.stubs.WatchJob(jobs_pb.WatchJobRequest(name=job.name, after_version=after), timeout=1)
            messages = []
            try:
                for message in stream:
                    messages.append(seen(message.job))
                    if len(messages) == 5:
                        stream.cancel()
                        break
            except grpc.RpcError:
                pass
            if why := wrong_in_watch(after, messages):
                self.jobs.wrong.append(f"{job.subject}: {why}")
            after = messages[-1].version if messages else after

    def cordon(self) -> None:
        if self.jobs.workers:
            name = self.chance.choice(self.jobs.workers)
            state = self.chance.choice(["OPEN", "OPEN", "CORDONED", "DRAINING"])
            self.set_availability(name, state)

    def set_availability(self, name: str, state: str):
        value = workers_pb.WorkerAvailability.Value(f"WORKER_AVAILABILITY_{state}")
        request = jobs_pb.SetWorkerAvailabilityRequest(name=name, availability=value)
        return self.call(f"worker {name}", "set", self.stubs.SetWorkerAvailability, request, lambda _: "OK", argument=state)

    def look_at_workers(self) -> None:
        begin = time.monotonic()
        try:
            answer = self.stubs.ListWorkers(jobs_pb.ListWorkersRequest(), timeout=TIMEOUT)
        except grpc.RpcError:
            return
        for worker in answer.workers:
            state = workers_pb.WorkerAvailability.Name(worker.availability).removeprefix("WORKER_AVAILABILITY_")
            self.jobs.history.add(f"worker {worker.name}", "look", None, begin, state)
