"""The clock of the planner's machine is set while it runs, as by whoever corrects one that was wrong since the boot."""

import pathlib
import signal
import tempfile
import time

import pytest
from processes import Processes, wait_for
from wrong_clock import WrongClock

HOUR = 3600
DAY = 24 * HOUR
TIMEOUT = 3  # Seconds of silence after which a worker is lost.


class ClockedPlanner(Processes):
    def __init__(self, folder: pathlib.Path):
        self.clock = WrongClock(folder)
        super().__init__(workers=2, planner_flags=("--worker-timeout", str(TIMEOUT), "--keep-days", "1"))

    def begin_planner(self, prefix: tuple | list = ()) -> int:
        return super().begin_planner([*prefix, *self.clock.prefix()])

    def connected(self) -> list[str]:
        return [worker["name"] for worker in self.json("workers")["workers"]]


@pytest.fixture
def system():
    with tempfile.TemporaryDirectory() as folder, ClockedPlanner(pathlib.Path(folder)) as running:
        running.clock.library.assert_loaded(running.planner.pid)
        yield running


def test_a_job_waits_no_longer_for_a_silent_worker_because_the_clock_was_set_back(system):
    plan = system.plan_by_hand("chain_f32", stages=2)
    job = system.submit("chain_f32", steps=100_000, checkpoint_every=500, max_restarts=5, plan_file=plan)
    system.await_step(job, 20)
    system.clock.set(-HOUR)
    time.sleep(2)
    system.workers["w1"].send_signal(signal.SIGSTOP)
    wait_for(lambda: system.job(job)["state"] == "recovering", "the loss of w1", patience=60)
    wait_for(lambda: system.job(job)["restarts"] == 1, "its end", patience=25)
    system.workers["w1"].send_signal(signal.SIGCONT)
    wait_for(lambda: system.job(job)["state"] == "running", "the job to go on", patience=60)


def test_nobody_is_late_and_nothing_too_old_because_the_clock_was_set(system):
    assert system.train("chain_f32", steps=1)["state"] == "succeeded"
    for seconds in (400 * DAY, 0, -HOUR, 0):
        system.clock.set(seconds)
        time.sleep(2 * TIMEOUT)
        assert system.connected() == ["w0", "w1"]
    system.clock.set(400 * DAY)
    time.sleep(12)  # Old jobs are looked for every ten seconds.
    assert [job["state"] for job in system.json("jobs")["jobs"]] == ["succeeded"]
    assert "worker_lost" not in system.log("planner")
    assert "stood still" not in system.log("planner")


def test_what_is_shown_is_the_clock_s_time(system):
    system.clock.set(5 * HOUR)
    time.sleep(2)
    found = system.json("workers")["workers"][0]["last_heartbeat"]
    shown = time.mktime(time.strptime(found, "%Y-%m-%dT%H:%M:%SZ")) - time.timezone
    assert abs(shown - (time.time() + 5 * HOUR)) < 60
