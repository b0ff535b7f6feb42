"""A planner that learns from real steps: every strategy it tries is a job on the workers."""

import json

import pytest
from processes import BIN, MODELS, PATIENCE, Processes

pytestmark = pytest.mark.skipif(
    not (BIN.parent / "lib" / "libstagewright_drl_pp.so").exists(), reason="built without drl_pp"
)
STEM = MODELS / "chain_f32"


def measure(system, time_limit, cluster="cpu:2", data=f"{STEM}.data.safetensors"):
    return system.cli(
        "plan", f"{STEM}.swg", "--cluster", cluster, "--mini-batch", 8, "--micro-batch", 4, "--optimizer", "sgd",
        "--planner", "drl_pp", "--weights", f"{STEM}.safetensors", "--data", data, "--measure-steps", 3,
        "--no-sequential", "--time-limit", time_limit, "-o", "json", timeout=time_limit + PATIENCE,
    )  # fmt: skip


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2, measured=True) as running:
        yield running


def test_the_plan_is_the_strategy_whose_job_had_the_shortest_steps(system):
    for time_limit in (25, 50, 100):  # The first, unless the machine is busy.
        before = {job["name"] for job in system.json("jobs")["jobs"]}
        result = measure(system, time_limit)
        assert result.returncode == 0, result.stderr
        plan = json.loads(result.stdout)
        if plan["measured"]["jobs"] >= 4 and plan["search_states"] >= 8:  # Two steps of the policy at least.
            break
    jobs = [job for job in system.json("jobs")["jobs"] if job["name"] not in before]
    measured = plan["measured"]
    assert measured["jobs"] == len(jobs) >= 4
    assert plan["search_states"] >= 8

    done = [job for job in jobs if job["state"] == "succeeded"]
    assert measured["failed"] == len(jobs) - len(done) <= 1  # The time limit may end one.
    assert all((job["display_name"], job["step"]) == ("measure chain_f32", 3) for job in done)
    best = min(done, key=lambda job: job["median_step_seconds"])
    assert measured["step_seconds"] == pytest.approx(best["median_step_seconds"], rel=1e-9)
    # Strategies differ from job to job, and the fastest one is the answer.
    plans = {job["name"]: system.json("plan", "show", job["name"]) for job in done}
    assert len({chosen["fingerprint"] for chosen in plans.values()}) == len(done)
    assert [stage["operators"] for stage in plans[best["name"]]["stages"]] == [s["operators"] for s in plan["stages"]]


def test_what_no_job_can_run_without_is_named(system):
    too_few = measure(system, 4, cluster="cpu:3")
    assert too_few.returncode == 1
    assert too_few.stderr == (
        "stagewright: --measure-steps: the cluster has 3 devices, the connected workers 2\n"
    )
    for time_limit in (4, 16, 64):  # The first, unless the machine is too busy for one job to fail in it.
        missing = measure(system, time_limit, data="/nowhere.safetensors")
        assert missing.returncode == 3, missing.stderr
        reason = json.loads(missing.stdout)["reason"]
        if "at the time limit" not in reason:
            break
    assert "/nowhere.safetensors" in reason
    other = system.cli("plan", f"{STEM}.swg", "--cluster", "cpu:2", "--mini-batch", 8, "--measure-steps", 3)
    assert other.returncode == 2
    assert "drl_pp" in other.stderr
