"""Workers of different versions: the planner takes those of one, the others wait and say why."""

import contextlib
import os
import subprocess
import time

import pytest
from processes import Processes, wait_for


@contextlib.contextmanager
def other_version(system, version, name="other"):
    """A worker of that version, connected until the end of the block."""
    command = [os.environ["STAGEWRIGHT_OTHER_VERSION_WORKER"], system.address, name, version]
    pipes = dict(stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    process = subprocess.Popen(command, text=True, **pipes)
    try:
        yield process
    finally:
        process.stdin.close()
        process.wait(10)
        process.stdout.close()
        process.stderr.close()


def cpu_seconds(process) -> float:
    fields = open(f"/proc/{process.pid}/stat").read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@pytest.fixture
def system():
    with Processes(workers=0, planner_flags=("--worker-timeout", "30")) as running:
        yield running


def test_a_worker_of_another_version_is_refused_and_the_job_goes_on(system):
    system.start_worker("w0")
    system.await_workers(1)
    job = system.submit("chain_f32", devices=1, steps=1_000_000)
    system.await_step(job, 5)
    with other_version(system, "0.0.1-other") as refused:
        assert refused.wait(20) == 1
        message = refused.stderr.read().strip()
    assert 'worker "other" is of version "0.0.1-other", but the connected worker "w0" is of version "' in message
    assert "\n" not in message
    system.await_step(job, system.job(job)["step"] + 50)
    assert system.cli("cancel", job).returncode == 0
    assert len(system.json("workers")["workers"]) == 1


def test_a_refused_worker_says_why_once_waits_and_joins_when_it_may(system):
    with other_version(system, "0.0.1-other") as other:
        assert other.stdout.readline() == "registered\n", other.stderr.read()
        worker = system.start_worker("w0")
        wait_for(lambda: "version" in system.log("w0"), "the reason")
        before = cpu_seconds(worker)
        time.sleep(8)  # Several attempts.
        assert cpu_seconds(worker) - before < 0.4
        assert worker.poll() is None
        lines = system.log("w0").splitlines()
        assert len(lines) == 1, lines
        for part in ('"w0" is of version', 'worker "other" is of version "0.0.1-other"', "all workers must be of one"):
            assert part in lines[0], lines
        assert [entry["name"] for entry in system.json("workers")["workers"]] == ["other"]
    # The other one has left.
    wait_for(lambda: [entry["name"] for entry in system.json("workers")["workers"]] == ["w0"], "the worker", 20)
    assert system.train("chain_f32", devices=1, steps=2)["state"] == "succeeded"
    assert system.stop(worker) == 0
