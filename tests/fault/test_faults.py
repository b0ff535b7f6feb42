"""The short form of scripts/fault.sh workers: each kind of fault once, on 2 or 3 workers."""

import random
import re
import signal

import faults
import pytest

STEPS = 1000  # Several seconds, in which the fault begins, however short it is.


@pytest.fixture(scope="module", params=[2, 3])
def system(request):
    with faults.start(request.param) as running:
        running.whole = faults.undisturbed(running, STEPS)
        yield running


# The death of a planner alone is what test_planner_kills is about; the long form has all kinds on up to 8 workers.
TRIED = {
    2: ("kill", "stop", "full disk", "kill planner and worker"),
    3: ("kill for good", "hung path", "terminate", "cut network"),
}


@pytest.mark.parametrize("which", range(4))
def test_a_job_goes_on_as_if_nothing_had_been(system, which):
    workers = len(system.workers)
    chance = random.Random(10 * workers + which)
    outcome, job = faults.run_with_fault(system, TRIED[workers][which], STEPS, chance, max_restarts=5)
    faults.assert_as_if_nothing_had_been(system, outcome, job, system.whole)


def test_without_restarts_there_is_one_cause(system):
    workers = len(system.workers)
    job = system.submit(
        faults.MODEL, **faults.settings(system, f"none-{workers}", devices=workers, steps=100_000, max_restarts=0)
    )
    system.await_step(job, 60)
    worker = faults.busy_workers(system.job(job))[-1]
    system.stop(system.workers[worker], signal.SIGKILL)
    ended = system.await_end(job)
    faults.replace(system, worker)
    assert ended["state"] == "failed"
    assert re.match(rf"worker {worker} was lost after step \d+: ", ended["message"]) or re.match(
        r"worker w\d: .*has gone", ended["message"]
    ), ended["message"]
    assert len(ended["message"].splitlines()) == 1
