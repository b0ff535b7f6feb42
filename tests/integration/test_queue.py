"""Who gets devices when: a job that is stopped for one of higher priority goes on as if nothing had been."""

import os
import pathlib
import subprocess

import pytest
from processes import Processes

MODEL = "four_branches_f64"
LONG = 1_000_000  # Steps; such a job is ended by the test.


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2, planner_flags=("--quota", "nobody=1")) as running:
        yield running


def settings(system, out, **changes):
    return dict(
        out=system.path / out, optimizer="adam", lr=0.001, seed=3, no_shuffle=None, micro_batch=4, **changes
    )  # fmt: skip


def losses(system, name):
    return {step["step"]: step["loss"] for step in system.json("jobs", "losses", name)["steps"]}


def test_a_preempted_job_loses_no_step(system):
    # On both devices at every step: planner auto may leave one to others.
    both = dict(devices=2, planner="data-parallel")
    low = system.submit(MODEL, **settings(system, "low", **both, steps=LONG, preemptible=True))
    system.await_step(low, 20)
    high = system.submit(MODEL, **settings(system, "high", devices=2, steps=200, priority=5))
    urgent = system.await_end(high)
    assert urgent["state"] == "succeeded", urgent["message"]
    last = system.job(low)["step"] + 100  # Well after it went on.
    system.await_step(low, last)
    now = system.job(low)
    assert (now["state"], now["preemptions"], now["preempted"], now["restarts"]) == ("running", 1, False, 0)
    assert system.cli("cancel", low).returncode == 0
    whole = system.train(MODEL, **settings(system, "whole", **both, steps=last))
    assert whole["state"] == "succeeded", whole["message"]

    events = system.json("jobs", "events", low)["events"]
    (preempted,) = [event for event in events if event["kind"] == "preempted"]
    assert f"for {high} (priority 5)" in preempted["message"]
    expected, actual = losses(system, whole["name"]), losses(system, low)
    actual = {step: loss for step, loss in actual.items() if step <= last}
    assert list(actual) == list(expected) == list(range(1, last + 1))
    assert actual == pytest.approx(expected, rel=1e-9)


def test_a_job_that_waits_says_its_place_and_why(system):
    busy = system.submit(MODEL, **settings(system, "busy", devices=2, planner="data-parallel", steps=LONG))
    system.await_step(busy, 1)
    waits = system.submit(MODEL, **settings(system, "waits", devices=2, steps=5, priority=-7))
    job = system.job(waits)
    assert (job["state"], job["queue_position"], job["priority"]) == ("pending", 1, -7)
    assert job["message"] == "waits for 2 free devices: 0 are free"
    shown = system.cli("jobs", "describe", waits).stdout
    assert "priority         -7" in shown and "place 1: waits for 2 free devices" in shown
    listed = system.cli("jobs").stdout.splitlines()
    assert "priority" in listed[0] and "queue" in listed[0]
    system.cli("cancel", busy)
    assert system.await_end(waits)["state"] == "succeeded"


def test_quotas_that_are_none_are_named():
    planner = pathlib.Path(os.environ["STAGEWRIGHT_BIN"]) / "stagewright-planner"
    for flag, quotas, said in (
        ("--quota", ["alice"], '"alice" is no quota: expected OWNER=DEVICES'),
        ("--quota", ["alice=1", "alice=2"], "owner alice has two quotas"),
        ("--tenant-quota", ["vision"], '"vision" is no quota: expected TENANT=DEVICES'),
        ("--tenant-quota", ["vision=1", "vision=2"], "tenant vision has two quotas"),
    ):
        flags = [word for quota in quotas for word in (flag, quota)]
        result = subprocess.run([planner, "--state", ":memory:", *flags], capture_output=True, text=True, timeout=60)
        assert result.returncode != 0 and flag in result.stderr and said in result.stderr, result.stderr
