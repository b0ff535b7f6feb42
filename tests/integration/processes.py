"""A planner and workers as real processes on loopback, and the command line that talks to them."""

import json
import os
import pathlib
import re
import signal
import subprocess
import tempfile
import time

from ports import free_ports

BIN = pathlib.Path(os.environ["STAGEWRIGHT_BIN"])
MODELS = pathlib.Path(os.environ["STAGEWRIGHT_TEST_MODELS"])
# Seconds. What is waited for may take long on a busy machine; only what hangs has to end before CTest ends the suite.
PATIENCE = 150.0
ENDED = ("failed", "cancelled", "succeeded")
# Plans are the same on any machine, however busy.
NOT_MEASURED = ("--device-kind", "cpu-core")


class Processes:
    """Starts what a test asks for; `close` ends all of it. `measured`: jobs are planned on what workers measure."""

    def __init__(
        self, workers: int = 0, planner_flags: tuple = (), worker_flags: tuple = (), measured: bool = False
    ):  # fmt: skip
        self.directory = tempfile.TemporaryDirectory(prefix="stagewright_")
        self.path = pathlib.Path(self.directory.name)
        self.planner_flags = planner_flags
        self.worker_flags = worker_flags if measured else (*NOT_MEASURED, *worker_flags)
        self.planner = None
        self.address = f"127.0.0.1:{free_ports(1)[0]}"  # It stays free for a planner that is started again.
        self.worker_address = None  # Where workers find the planner, if not there.
        self.workers: dict[str, subprocess.Popen] = {}
        self.start_planner()
        for i in range(workers):
            self.start_worker(f"w{i}")
        self.await_workers(workers)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.close()

    def begin_planner(self, prefix: tuple | list = ()) -> int:
        """Starts one without waiting for it; where its log begins. `prefix`: a program that becomes the planner."""
        command = [*prefix, BIN / "stagewright-planner", "--listen", self.address, "--metrics-listen", ""]
        command += ["--state", self.path / "state.db", *self.planner_flags]
        # A file: a pipe that nobody reads would fill up with the planner's log and hold it up.
        with open(self.path / "planner.log", "a") as log:
            self.planner = subprocess.Popen(command, stderr=log)
            return log.tell()

    def start_planner(self) -> None:
        """On the address of the planner before it, if there was one."""
        path = self.path / "planner.log"
        begin = self.begin_planner()

        def announced():
            return re.search(r"listening on (\S+?),? ?$", path.read_text()[begin:], re.MULTILINE)

        wait_for(lambda: announced() or self.planner.poll() is not None, "the planner to listen")
        assert announced(), path.read_text()[begin:]
        self.address = announced().group(1)

    def start_worker(self, name: str, *flags: str, prefix: tuple | list = ()) -> subprocess.Popen:
        """`prefix`: a program that becomes the worker."""
        log = open(self.path / f"{name}.log", "a")  # noqa: SIM115
        planner = self.worker_address or self.address
        command = [*prefix, BIN / "stagewright-worker", "--planner", planner, "--name", name]
        command += [*self.worker_flags, *flags]
        self.workers[name] = subprocess.Popen(command, stderr=log)
        log.close()
        return self.workers[name]

    def log(self, name: str) -> str:
        return (self.path / f"{name}.log").read_text()

    def await_workers(self, count: int) -> None:
        def connected():
            return len(self.json("workers")["workers"])

        wait_for(lambda: connected() == count, f"{count} workers", seen=lambda: self.json("workers"))

    def cli(self, *arguments, timeout: float = PATIENCE) -> subprocess.CompletedProcess:
        command = [BIN / "stagewright", "--planner-address", self.address, *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, timeout=timeout)

    def json(self, *arguments):
        result = self.cli(*arguments, "-o", "json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def submit_flags(self, model: str, **changes) -> list:
        """A job as the references were made: `steps=5` sets --steps 5, None leaves a flag out. Directories are used again."""
        stem = MODELS / model
        flags = dict(
            weights=f"{stem}.safetensors", data=f"{stem}.data.safetensors", out=self.path / f"out-{model}",
            mini_batch=16, steps=5, optimizer="sgd", lr=0.1, no_shuffle=True, overwrite=True,
        )  # fmt: skip
        flags.update(changes)
        graph = flags.pop("graph", f"{stem}.swg")
        arguments = ["submit", graph]
        for name, value in flags.items():
            if value is not None:
                arguments += [f"--{name.replace('_', '-')}"] + ([] if value is True else [value])
        return arguments

    def plan_by_hand(self, model: str, stages: int, micro_batch: int = 4) -> pathlib.Path:
        """A plan of as many stages, in a row, of about as many nodes each, on a device each."""
        path = self.path / f"{model}-{stages}-{micro_batch}.json"
        operators = self.json("graph", "show", MODELS / f"{model}.swg")["operators"]
        names = [node for operator in operators for node in operator["nodes"]]
        cuts = [len(names) * i // stages for i in range(stages)]
        parts = [{"nodes": names[a:b], "devices": [i]} for i, (a, b) in enumerate(zip(cuts, cuts[1:], strict=False))]
        parts.append({"nodes": ["*"], "devices": [stages - 1]})
        path.write_text(json.dumps({"micro_batch": micro_batch, "stages": parts}))
        return path

    def train(self, model: str, **changes) -> dict:
        """Submits and watches; the job at its end."""
        result = self.cli(*self.submit_flags(model, **changes), "--watch", "-o", "json")
        assert result.returncode in (0, 5), result.stderr
        return json.loads(result.stdout)

    def submit(self, model: str, **changes) -> str:
        return self.json(*self.submit_flags(model, **changes))["name"]

    def job(self, name: str) -> dict:
        return next(job for job in self.json("jobs")["jobs"] if job["name"] == name)

    def await_step(self, name: str, step: int) -> None:
        """However long it takes, if only the job goes on."""

        def done():
            job = self.job(name)
            assert job["state"] not in ENDED, job
            return job["step"]

        while (now := done()) < step:
            wait_for(lambda now=now: done() > now, f"a step of {name} after {now}, to reach {step}", seen=lambda: self.job(name))

    def await_end(self, name: str) -> dict:
        """However long it takes, if only it goes on."""
        while True:
            step = self.job(name)["step"]
            wait_for(
                lambda step=step: self.job(name)["state"] in ENDED or self.job(name)["step"] > step,
                f"the end of {name}, or another step after {step}", seen=lambda: self.job(name),
            )  # fmt: skip
            job = self.job(name)
            if job["state"] in ENDED:
                return job

    def cancel_all(self) -> None:
        """Ends what still runs, if the planner answers: it would hold devices that the next job waits for."""
        listed = self.cli("jobs", "-o", "json")
        jobs = json.loads(listed.stdout)["jobs"] if listed.returncode == 0 else []
        for job in jobs:
            if job["state"] not in ENDED:
                self.cli("cancel", job["name"])

    def stop(self, process: subprocess.Popen, how: signal.Signals = signal.SIGTERM, patience: float = PATIENCE) -> int:
        process.send_signal(how)
        code = process.wait(patience)
        if process.stderr is not None:
            process.stderr.close()
        return code

    def close(self) -> None:
        for process in [*self.workers.values(), self.planner]:
            if process.poll() is None:
                process.kill()
                process.wait()
            if process.stderr is not None:
                process.stderr.close()
        self.directory.cleanup()


def wait_for(condition, what: str, patience: float = PATIENCE, seen=lambda: ""):
    """What the condition was when it was met. `seen`: what there is instead, for whoever reads that it was not."""
    deadline = time.monotonic() + patience
    while True:
        looked = time.monotonic()
        if found := condition():
            return found
        now = time.monotonic()
        assert now < deadline, f"waited {patience} s for {what} {seen()}"
        time.sleep(0.1 + min(0.4, 2 * (now - looked)))  # Looking takes the processor from what is waited for.
