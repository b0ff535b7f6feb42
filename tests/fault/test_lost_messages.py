"""Each kind of message between planner and worker is lost once, with the stream that it was on: jobs end as if nothing
had been, or start again; nobody waits for ever."""

import json
import signal

import faults
import pytest
from cutting_proxy import CuttingProxy
from processes import Processes, wait_for

STEPS = 300


@pytest.fixture(scope="module")
def system():
    # A machine that is busy has time to save what it has.
    with Processes(worker_flags=("--drain-timeout", "120")) as running:
        proxy = CuttingProxy(running.address)
        running.worker_address = proxy.address
        running.proxy = proxy
        for name in ("w0", "w1"):
            running.start_worker(name)
        running.await_workers(2)
        running.whole = faults.undisturbed(running, STEPS)
        yield running
        proxy.close()


def ready(system) -> None:
    """Both workers are there, and forgiven: whose stream breaks again and again is kept from jobs for a while."""
    system.await_workers(2)
    for name in ("w0", "w1"):
        assert system.cli("workers", "uncordon", name).returncode == 0


@pytest.fixture(autouse=True)
def jobs_end(system):
    yield
    system.proxy.cut()
    system.cancel_all()


def submit(system, case: str, **changes) -> str:
    """On all workers that there are: planner `auto` leaves one of them alone while the links between busy ones are slow."""
    flags = faults.settings(system, f"out-{case}", devices=2, steps=STEPS, max_restarts=3, planner="data-parallel")
    flags |= changes
    return system.submit(faults.MODEL, **flags)


def await_cuts(system) -> None:
    wait_for(lambda: not system.proxy.left(), f"a message of {system.proxy.left()}")


# What is lost; several are lost one after the other. While a job starts that costs a restart.
LOST = [
    ["prepare"],
    ["connect_peers"],
    ["start", "start"],
    ["start", "go_on"],
    ["write_manifest"],
    ["merge"],
    ["prepared"],
    ["connected"],
    ["progress", "steps_so_far"],
    ["shard_written"],
    ["checkpoint_written"],
    ["finished", "finished"],
    ["merged"],
]
RESTARTS = {"prepare", "connect_peers", "prepared", "connected"}


@pytest.mark.parametrize("kinds", LOST, ids=lambda kinds: "-".join(kinds))
def test_a_job_ends_as_if_nothing_had_been_lost(system, kinds):
    ready(system)
    system.proxy.cut(*kinds)
    job = submit(system, "-".join(kinds))
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]
    assert not system.proxy.left()
    assert ended["restarts"] == (1 if kinds[0] in RESTARTS else 0)
    faults.assert_same(ended["checkpoint"], system.job(system.whole)["checkpoint"])
    faults.assert_same_losses(faults.losses(system, job), faults.losses(system, system.whole))


def test_lines_that_are_lost_hurt_nothing_but_the_log(system):
    ready(system)
    system.proxy.cut("progress", "log_lines")  # Not while the job starts, which any break makes start again.
    job = submit(system, "log")
    ended = system.await_end(job)
    assert (ended["state"], ended["restarts"]) == ("succeeded", 0), ended["message"]
    assert not system.proxy.left()
    faults.assert_same(ended["checkpoint"], system.job(system.whole)["checkpoint"])
    faults.assert_same_losses(faults.losses(system, job), faults.losses(system, system.whole))
    lines = system.cli("jobs", "logs", job, "-o", "json").stdout.splitlines()
    assert len(set(lines)) == len(lines)
    # What the planner logged itself is all there, and what workers logged later has come.
    assert any("submitted" in line for line in lines)
    assert {json.loads(line).get("worker") for line in lines} >= {"w0", "w1"}


def fresh_workers(system) -> None:
    """They know no graph."""
    for name in ("w0", "w1"):
        assert system.stop(system.workers.pop(name)) == 0
        system.start_worker(name)
    ready(system)


def test_a_graph_is_sent_to_each_worker_once(system):
    fresh_workers(system)
    system.proxy.seen.clear()
    system.proxy.cut("connected")  # When both have the graph: who is to prepare again before that asks again, too.
    ended = system.await_end(submit(system, "graph"))
    assert (ended["state"], ended["restarts"]) == ("succeeded", 1), ended["message"]
    faults.assert_same(ended["checkpoint"], system.job(system.whole)["checkpoint"])
    again = system.await_end(submit(system, "graph-again", steps=5))
    assert again["state"] == "succeeded", again["message"]
    assert system.proxy.seen["prepare"] >= 5  # The job that starts again may do so on one of them.
    assert system.proxy.seen["needed_graph"] == 2


@pytest.mark.parametrize("kind", ["graph_needed", "needed_graph"])
def test_a_graph_that_is_lost_costs_a_restart(system, kind):
    fresh_workers(system)
    system.proxy.cut(kind)
    ended = system.await_end(submit(system, kind))
    assert (ended["state"], ended["restarts"]) == ("succeeded", 1), ended["message"]
    assert not system.proxy.left()


def test_a_worker_says_who_it_is_until_it_is_heard(system):
    ready(system)
    job = submit(system, "register", steps=1_000_000)
    system.await_step(job, 5)
    system.proxy.cut("progress", "register", "registered")  # The first breaks the stream of a worker that trains.
    await_cuts(system)
    system.await_step(job, system.job(job)["step"] + 100)
    assert system.job(job)["restarts"] == 0
    system.cli("cancel", job)
    system.proxy.cut("heartbeat")  # Which they send when they have nothing else to say.
    await_cuts(system)
    assert system.await_end(submit(system, "after-heartbeat", steps=5))["state"] == "succeeded"


def test_a_trace_that_nobody_heard_of_keeps_no_job(system):
    ready(system)
    job = submit(system, "trace", steps=1_000_000, checkpoint_every=None)
    system.await_step(job, 20)
    system.proxy.cut("trace_steps")
    await_cuts(system)  # When steps begin to drift, or after half a minute.
    system.await_step(job, system.job(job)["step"] + 100)
    assert system.job(job)["restarts"] == 0
    system.cli("cancel", job)


def test_a_checkpoint_by_the_clock_is_followed_by_others(system):
    ready(system)
    job = submit(system, "clock", steps=1_000_000, checkpoint_every=None, checkpoint_minutes=0.02)
    for kind in ("checkpoint_after", "shard_written"):
        system.proxy.cut(kind)
        await_cuts(system)
        before = system.job(job)["checkpoint_step"]
        wait_for(lambda before=before: system.job(job)["checkpoint_step"] > before, "another checkpoint")
    system.cli("cancel", job)


@pytest.mark.parametrize("kind", ["abort", "run_ended"])
def test_devices_are_free_after_a_job_that_is_cancelled(system, kind):
    ready(system)
    job = submit(system, kind, steps=1_000_000)
    system.await_step(job, 5)
    system.proxy.cut(kind)
    assert system.cli("cancel", job).returncode == 0
    await_cuts(system)
    assert system.await_end(submit(system, f"after-{kind}", steps=5))["state"] == "succeeded"


@pytest.mark.parametrize("kind", ["checkpoint_after", "shard_written", "write_manifest", "checkpoint_written"])
def test_a_job_leaves_a_worker_that_drains(system, kind):
    ready(system)
    job = submit(system, f"drain-{kind}", steps=1_000_000, checkpoint_every=None)
    system.await_step(job, 20)
    system.proxy.cut(kind)
    assert system.cli("workers", "drain", "w0").returncode == 0
    await_cuts(system)
    wait_for(lambda: system.job(job)["devices"] == ["w1/cpu0"], f"{job} to leave w0")
    assert system.cli("workers", "uncordon", "w0").returncode == 0
    system.cli("cancel", job)


def test_what_an_operator_said_of_a_worker_holds(system):
    ready(system)

    def availability():
        found = [w["availability"] for w in system.json("workers")["workers"] if w["name"] == "w1"]
        return found[0] if found else "away"

    for command, state in (("cordon", "cordoned"), ("uncordon", "open")):
        system.proxy.cut("set_availability")
        assert system.cli("workers", command, "w1").returncode == 0
        await_cuts(system)
        wait_for(lambda state=state: availability() == state, f"w1 to be {state}")


@pytest.mark.parametrize("kind", ["leave", "may_leave"])
def test_a_worker_that_is_to_end_ends(system, kind):
    ready(system)
    job = submit(system, kind, steps=1_000_000)
    system.await_step(job, 20)
    system.proxy.cut(kind)
    assert system.stop(system.workers["w1"], signal.SIGTERM) == 0
    assert not system.proxy.left()
    faults.replace(system, "w1")
    assert system.job(job)["state"] not in ("failed", "succeeded")
    system.cli("cancel", job)


def test_a_failure_is_told(system):
    ready(system)
    system.proxy.cut("failed")
    job = submit(system, "failed", on_nan="stop", lr=1e308, max_restarts=0)
    ended = system.await_end(job)
    assert ended["state"] == "failed"
    assert not system.proxy.left()
    assert "finite" in ended["message"] or "nan" in ended["message"] or "inf" in ended["message"], ended["message"]
