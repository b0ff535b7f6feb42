"""Workers that are cordoned and drained, and that are renewed one after the other, fail no job and cost no step."""

import signal

import faults
import pytest
from processes import wait_for

LONG = 1_000_000


@pytest.fixture(scope="module")
def system():
    with faults.start(3) as running:
        yield running


def worker(system, name):
    return next(w for w in system.json("workers")["workers"] if w["name"] == name)


def jobs_of(system, name):
    return [device["job"] or device["ending"] for device in worker(system, name)["devices"]]


def test_a_cordoned_worker_keeps_its_job_and_gets_no_other(system):
    job = system.submit(faults.MODEL, **faults.settings(system, "cordon", devices=3, steps=LONG))
    system.await_step(job, 5)
    assert system.json("workers", "cordon", "w1")["workers"][0]["availability"] == "cordoned"
    before = system.job(job)["step"]
    system.await_step(job, before + 5)
    assert system.job(job)["restarts"] == 0
    system.cli("cancel", job)
    wait_for(lambda: jobs_of(system, "w1") == [""], "w1 to be free")
    waits = system.submit(faults.MODEL, **faults.settings(system, "waits", devices=3, steps=5))
    wait_for(lambda: "2 are connected" in system.job(waits)["message"], "the job to wait")
    # The planner knows it after a restart, too.
    system.stop(system.planner, signal.SIGKILL)
    system.start_planner()
    system.await_workers(3)
    assert worker(system, "w1")["availability"] == "cordoned"
    assert system.cli("workers", "uncordon", "w1").returncode == 0
    assert system.await_end(waits)["state"] == "succeeded"


def test_drain_takes_a_job_off_a_worker_without_losing_a_step(system):
    whole = faults.undisturbed(system, 3000)
    # No checkpoints of its own: those of the drain are enough.
    flags = faults.settings(system, "drained", devices=3, steps=3000) | {"checkpoint_every": None}
    job = system.submit(faults.MODEL, **flags)
    system.await_step(job, 20)
    assert system.cli("workers", "drain", "w0").returncode == 0
    wait_for(lambda: jobs_of(system, "w0") == [""], "w0 to be free")
    assert worker(system, "w0")["availability"] == "draining"
    ended = system.await_end(job)
    assert system.cli("workers", "uncordon", "w0").returncode == 0
    assert (ended["state"], ended["restarts"]) == ("succeeded", 0), ended["message"]
    assert all(not device.startswith("w0/") for device in ended["devices"])
    faults.assert_same(ended["checkpoint"], system.job(whole)["checkpoint"])
    faults.assert_same_losses(faults.losses(system, job), faults.losses(system, whole))


@pytest.mark.parametrize("policy", ["shrink", "wait"])
def test_renewing_all_workers_one_after_the_other_fails_no_job(system, policy):
    flags = faults.settings(system, f"rolled-{policy}", devices=3, steps=LONG, on_loss=policy, max_restarts=0)
    job = system.submit(faults.MODEL, **flags)
    for name in ("w0", "w1", "w2"):
        faults.await_progress(system, job, system.job(job)["step"] + 5)
        assert system.stop(system.workers[name], signal.SIGTERM, patience=60) == 0
        before = system.job(job)
        assert before["state"] not in ("failed", "succeeded"), before["message"]
        if policy == "wait":
            wait_for(lambda: "2 are free" in system.job(job)["message"], "the job to say what it waits for")
        faults.replace(system, name)
    now = system.job(job)
    faults.await_progress(system, job, now["step"])
    now = system.job(job)
    assert now["state"] not in ("failed", "succeeded"), now["message"]
    assert now["restarts"] == 0
    system.cli("cancel", job)


def test_unknown_workers_are_named(system):
    result = system.cli("workers", "drain", "nobody")
    assert result.returncode == 1 and 'no worker "nobody"' in result.stderr
