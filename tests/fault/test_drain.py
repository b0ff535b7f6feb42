"""Workers that are cordoned and drained, and that are renewed one after the other, fail no job and cost no step."""

import json
import re
import signal

import faults
import pytest
from processes import Processes, wait_for

LONG = 1_000_000


@pytest.fixture(scope="module")
def system():
    # A machine that is busy has time to save what it has.
    with Processes(3, worker_flags=("--drain-timeout", "120")) as running:
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


def left_after(system, job) -> int:
    """The step after which the job left a worker."""
    events = system.json("jobs", "events", job)["events"]
    (left,) = [found for e in events if (found := re.search(r"left \w+ after step (\d+)", e["message"]))]
    return int(left.group(1))


def test_drain_takes_a_job_off_a_worker_without_losing_a_step(system):
    # No checkpoints of its own: those of the drain are enough.
    flags = faults.settings(system, "drained", devices=3, steps=LONG) | {"checkpoint_every": None}
    job = system.submit(faults.MODEL, **flags)
    system.await_step(job, 20)
    leaver = faults.busy_workers(system.job(job))[0]
    assert system.cli("workers", "drain", leaver).returncode == 0
    wait_for(lambda: jobs_of(system, leaver) == [""], f"{leaver} to be free", faults.PATIENCE)
    assert worker(system, leaver)["availability"] == "draining"
    last = left_after(system, job) + 50
    system.await_step(job, last)
    now = system.job(job)
    assert now["restarts"] == 0, now
    assert leaver not in faults.busy_workers(now)
    system.cli("cancel", job)
    assert system.cli("workers", "uncordon", leaver).returncode == 0
    found, expected = faults.losses(system, job), faults.losses(system, faults.undisturbed(system, last))
    faults.assert_same_losses({step: loss for step, loss in found.items() if step <= last}, expected)


def test_an_asynchronous_job_leaves_with_the_losses_of_a_schedule_that_is_flushed_there(system):
    plan = system.plan_by_hand(faults.MODEL, stages=2)
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"asynchronous": True}))

    def flags(out, **changes):
        common = dict(devices=2, plan_file=plan, on_loss="wait", micro_batch=None, checkpoint_every=None, lr=0.001)
        return faults.settings(system, f"asynchronous-{out}", steps=LONG) | common | changes

    job = system.submit(faults.MODEL, **flags("drained"))
    system.await_step(job, 20)
    leaver = system.job(job)["devices"][0].split("/")[0]
    assert system.cli("workers", "drain", leaver).returncode == 0
    wait_for(lambda: jobs_of(system, leaver) == [""], f"{leaver} to be free", faults.PATIENCE)
    assert system.cli("workers", "uncordon", leaver).returncode == 0
    step = left_after(system, job)
    system.await_step(job, 2 * step)
    assert system.job(job)["restarts"] == 0
    assert all(not device.startswith(f"{leaver}/") for device in system.job(job)["devices"])
    system.cli("cancel", job)

    flushed = system.await_end(system.submit(faults.MODEL, **flags("flushed", steps=2 * step, checkpoint_every=step)))
    never = system.await_end(system.submit(faults.MODEL, **flags("never", steps=2 * step)))
    assert (flushed["state"], never["state"]) == ("succeeded", "succeeded"), flushed["message"]
    found, expected = faults.losses(system, job), faults.losses(system, flushed["name"])
    common = found.keys() & expected.keys()
    assert min(common) == 1 and max(common) > step
    assert {s: found[s] for s in common} == pytest.approx({s: expected[s] for s in common}, rel=1e-9)
    # It is not the same without the flush.
    unflushed = faults.losses(system, never["name"])
    assert any(abs(unflushed[s] - expected[s]) > 1e-9 * abs(expected[s]) for s in common & unflushed.keys())


@pytest.mark.parametrize("policy", ["shrink", "wait"])
def test_renewing_all_workers_one_after_the_other_fails_no_job(system, policy):
    flags = faults.settings(system, f"rolled-{policy}", devices=3, steps=LONG, on_loss=policy, max_restarts=0)
    job = system.submit(faults.MODEL, **flags)
    for name in ("w0", "w1", "w2"):
        faults.await_progress(system, job, system.job(job)["step"] + 5)
        all_take_part = len(faults.busy_workers(system.job(job))) == 3
        assert system.stop(system.workers[name], signal.SIGTERM, patience=faults.PATIENCE + 30) == 0
        before = system.job(job)
        assert before["state"] not in ("failed", "succeeded"), before["message"]
        if policy == "wait" and all_take_part:
            wait_for(lambda: "2 are connected" in system.job(job)["message"], "the job to say what it waits for")
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
