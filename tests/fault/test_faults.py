"""The short form of scripts/fault.sh workers: kinds of faults on 2, 3 and 4 workers."""

import random
import re
import signal

import faults
import pytest

STEPS = 3000


@pytest.fixture(scope="module", params=[2, 3, 4])
def system(request):
    with faults.start(request.param) as running:
        running.whole = faults.undisturbed(running, STEPS)
        yield running


# Three kinds for each number of workers; the long form has all.
TRIED = {
    2: ("kill", "stop", "full disk"),
    3: ("kill for good", "kill planner and worker", "hung path"),
    4: ("kill", "terminate", "cut network"),
}


@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_job_goes_on_as_if_nothing_had_been(system, which):
    workers = len(system.workers)
    kind = TRIED[workers][which]
    chance = random.Random(10 * workers + which)
    outcome, job = faults.run_with_fault(system, kind, STEPS, chance, max_restarts=5)
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
