"""The loop from prediction to measurement and back: drifts are named, and a running job changes its plan."""

import json

import pytest
from processes import MODELS, Processes, wait_for

MODEL = "four_branches_f64"
STEPS = 3000


@pytest.fixture(scope="module")
def system():
    with Processes(workers=3) as running:
        yield running


def settings(system, out, **changes):
    return dict(
        out=system.path / out, steps=STEPS, optimizer="adam", lr=0.001, seed=3, no_shuffle=None, **changes
    )  # fmt: skip


def measured(system, name):
    """The job once its actions were compared with its plan's, operators among them."""
    shown = {}

    def compared():
        shown.update(system.json("jobs", "show", name))
        assert shown["state"] == "running" or shown["step"] == 0, shown
        return bool(shown.get("measurement", {}).get("operators"))

    wait_for(compared, f"measured actions of {name}")
    return shown


def losses(system, name):
    return {step["step"]: step["loss"] for step in system.json("jobs", "losses", name)["steps"]}


def test_a_running_job_changes_its_plan_and_trains_on_as_if_nothing_had_been(system):
    bad = system.plan_by_hand(MODEL, stages=3, micro_batch=1)  # Three messages for every sample, in a row.
    name = system.submit(MODEL, **settings(system, "replanned", plan_file=bad, devices=3))
    before = measured(system, name)
    assert before["recent_step_seconds"] > 0 and before["predicted_step_seconds"] > 0
    kinds = {action["kind"] for action in before["measurement"]["actions"]}
    assert {"forward", "backward", "send_activation", "send_gradient", "optimizer_step"} <= kinds
    assert all(operator["forward_seconds"] > 0 for operator in before["measurement"]["operators"])

    looked = system.json("jobs", "replan", name, "--time-limit", 20)
    assert not looked["applied"] and looked["better"], looked
    assert looked["better"]["iteration_seconds"] < looked["present"]["iteration_seconds"]
    assert system.job(name)["replans"] == 0

    changed = system.json("jobs", "replan", name, "--apply", "--time-limit", 20)
    assert changed["applied"], changed
    again = system.cli("jobs", "replan", name)
    assert again.returncode == 1 and "already" in again.stderr, again.stderr
    ended = system.await_end(name)
    assert ended["state"] == "succeeded", ended["message"]
    assert (ended["step"], ended["replans"], ended["restarts"]) == (STEPS, 1, 0)
    assert ended["checkpoint_step"] == changed["after_step"]
    assert system.json("plan", "show", name)["fingerprint"] != looked["present"]["fingerprint"]

    whole = system.train(MODEL, **settings(system, "undisturbed", devices=1))
    assert whole["state"] == "succeeded", whole["message"]
    expected, actual = losses(system, whole["name"]), losses(system, name)
    assert list(actual) == list(expected) == list(range(1, STEPS + 1))
    assert actual == pytest.approx(expected, rel=1e-9)


def test_what_cannot_be_planned_anew_is_told(system):
    unknown = system.cli("jobs", "replan", "jobs/999")
    assert unknown.returncode == 1 and 'no job "jobs/999"' in unknown.stderr
    done = system.train(MODEL, out=system.path / "done")
    refused = system.cli("jobs", "replan", done["name"], "--apply")
    assert refused.returncode == 1 and "is not running: it is succeeded" in refused.stderr


def test_where_no_plan_is_better_it_stays(system):
    best = settings(system, "best", devices=1, micro_batch=16) | {"steps": 1_000_000}
    name = system.submit(MODEL, **best)
    measured(system, name)
    answer = system.json("jobs", "replan", name, "--apply", "--time-limit", 20)
    assert "better" not in answer and not answer["applied"], answer
    assert "no better plan" in answer["message"]
    assert system.job(name)["replans"] == 0


def test_a_drift_is_named_with_its_operators(system):
    """A profile says that one operator takes a hundred times as long as it does."""
    path = system.path / "profiles.json"
    assert system.cli("profile", MODELS / f"{MODEL}.swg", "--samples", 16).returncode == 0
    assert system.cli("profiles", "export", path).returncode == 0
    profile = json.loads(path.read_text())
    (device,) = profile["devices"]
    slowest = max(
        (operator for operator in device["operators"] if "linear" in operator["signature"]),
        key=lambda operator: operator["samples"][-1]["forward_ns"],
    )
    for sample in slowest["samples"]:
        for field in ("forward_ns", "backward_ns", "backward_input_ns", "backward_weight_ns"):
            sample[field] *= 100
    path.write_text(json.dumps(profile))
    assert system.cli("profiles", "import", path).returncode == 0

    flags = settings(system, "drifting", devices=1, micro_batch=16) | {"steps": 1_000_000}
    name = system.submit(MODEL, **flags)
    wait_for(lambda: system.job(name).get("drift", {}).get("causes"), "the causes of a drift")
    drift = system.job(name)["drift"]
    assert drift["ratio"] < -0.5
    assert any("pass" in cause and "linear" in cause.split("): ")[-1] for cause in drift["causes"]), drift
    shown = system.cli("jobs", "show", name).stdout
    assert drift["causes"][0].split(":")[0] in shown and "drift" in shown
