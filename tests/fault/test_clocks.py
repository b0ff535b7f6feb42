"""The clocks of machines are set while a planner and workers run, as by whoever corrects one that was wrong since the boot."""

import pathlib
import signal
import subprocess
import tempfile
import time

import pytest
from processes import Processes, wait_for
from wrong_clock import WrongClock

HOUR = 3600
DAY = 24 * HOUR
TIMEOUT = 3  # Seconds of silence after which a worker is lost.


class ClockedProcesses(Processes):
    """The planner and each worker are on machines with clocks of their own."""

    def __init__(self, folder: pathlib.Path):
        self.folder = folder
        self.clocks: dict[str, WrongClock] = {}
        super().__init__(workers=2, planner_flags=("--worker-timeout", str(TIMEOUT), "--keep-days", "1"))

    def clock(self, name: str) -> WrongClock:
        if name not in self.clocks:
            self.clocks[name] = WrongClock(self.folder / name)
        return self.clocks[name]

    def begin_planner(self, prefix: tuple | list = ()) -> int:
        return super().begin_planner([*prefix, *self.clock("planner").prefix()])

    def start_worker(self, name: str, *flags: str, prefix: tuple | list = ()) -> subprocess.Popen:
        return super().start_worker(name, *flags, prefix=[*prefix, *self.clock(name).prefix()])

    def set_workers(self, seconds: int) -> None:
        for name in self.workers:
            self.clock(name).set(seconds)

    def connected(self) -> list[str]:
        return [worker["name"] for worker in self.json("workers")["workers"]]

    def begin_job(self, **changes) -> str:
        plan = self.plan_by_hand("chain_f32", stages=2)
        job = self.submit("chain_f32", steps=100_000, checkpoint_every=500, max_restarts=5, plan_file=plan, **changes)
        self.await_step(job, 20)
        return job


@pytest.fixture
def system():
    with tempfile.TemporaryDirectory() as folder, ClockedProcesses(pathlib.Path(folder)) as running:
        for name, process in {"planner": running.planner, **running.workers}.items():
            running.clock(name).library.assert_loaded(process.pid)
        yield running


def test_a_job_waits_no_longer_for_a_silent_worker_because_the_clock_was_set_back(system):
    job = system.begin_job()
    system.workers["w1"].send_signal(signal.SIGSTOP)
    wait_for(lambda: system.job(job)["state"] == "recovering", "the loss of w1", patience=60)
    system.clock("planner").set(-HOUR)
    wait_for(lambda: system.job(job)["restarts"] == 1, "its end", patience=25)
    system.workers["w1"].send_signal(signal.SIGCONT)
    wait_for(lambda: system.job(job)["state"] == "running", "the job to go on", patience=60)


def test_nobody_is_late_and_nothing_too_old_because_the_clock_was_set(system):
    assert system.train("chain_f32", steps=1)["state"] == "succeeded"
    for seconds in (400 * DAY, 0, -HOUR, 0):
        system.clock("planner").set(seconds)
        time.sleep(2 * TIMEOUT)
        assert system.connected() == ["w0", "w1"]
    system.clock("planner").set(400 * DAY)
    time.sleep(12)  # Old jobs are looked for every ten seconds.
    assert [job["state"] for job in system.json("jobs")["jobs"]] == ["succeeded"]
    assert "worker_lost" not in system.log("planner")
    assert "stood still" not in system.log("planner")


def test_a_run_goes_on_while_its_workers_clocks_are_set(system):
    job = system.begin_job(step_timeout=60)
    for seconds in (HOUR, 0, -HOUR, 0, HOUR, -HOUR):
        system.set_workers(seconds)
        system.await_step(job, system.job(job)["step"] + 50)
    assert system.job(job)["restarts"] == 0, system.log("planner")
    system.clock("w0").set(HOUR)  # Each machine has its own.
    system.await_step(job, system.job(job)["step"] + 50)
    assert system.job(job)["restarts"] == 0, system.log("planner")


def test_workers_without_work_are_heard_of_while_their_clocks_are_set(system):
    for seconds in (-HOUR, 0, HOUR):
        system.set_workers(seconds)
        time.sleep(2 * TIMEOUT)
        assert system.connected() == ["w0", "w1"]
    assert "worker_lost" not in system.log("planner")


def test_what_is_shown_is_the_clock_s_time(system):
    system.clock("planner").set(5 * HOUR)
    time.sleep(2)
    found = system.json("workers")["workers"][0]["last_heartbeat"]
    shown = time.mktime(time.strptime(found, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert abs(shown - (time.time() + 5 * HOUR)) < 60
