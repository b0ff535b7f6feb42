"""A worker that the plan gives nothing to do is no part of the job: it serves others, and its death disturbs nobody."""

import signal

import faults
from processes import Processes, wait_for

LONG = 1_000_000


def test_the_death_of_a_worker_that_has_nothing_to_do_disturbs_no_job():
    with Processes(workers=2, planner_flags=("--worker-timeout", str(faults.HEARTBEAT_LIMIT))) as system:
        plan = system.plan_by_hand(faults.MODEL, stages=1)
        flags = dict(devices=2, plan_file=plan, micro_batch=None, max_restarts=0)
        job = system.submit(faults.MODEL, **faults.settings(system, "narrow", steps=LONG) | flags)
        system.await_step(job, 20)
        assert len(system.job(job)["devices"]) == 1
        (idle,) = {"w0", "w1"} - set(faults.busy_workers(system.job(job)))
        other = system.train(faults.MODEL, **faults.settings(system, "other", steps=5, devices=1))
        assert other["state"] == "succeeded" and faults.busy_workers(other) == [idle], other

        system.stop(system.workers[idle], signal.SIGKILL)
        wait_for(lambda: len(system.json("workers")["workers"]) == 1, f"{idle} to be gone")
        faults.await_progress(system, job, system.job(job)["step"] + 20)
        now = system.job(job)
        assert (now["state"], now["restarts"], now["message"]) == ("running", 0, ""), now
        assert "worker_lost" not in [event["kind"] for event in system.json("jobs", "events", job)["events"]]
        system.cli("cancel", job)
