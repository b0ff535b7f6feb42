"""Operators are measured on a worker, kept, and plan the jobs that follow."""

import json

import pytest
from processes import MODELS, Processes, wait_for

MODEL = "chain_f32"


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2, measured=True) as running:
        yield running


def test_profile_measures_keeps_and_plans(system):
    before = system.train(MODEL, out=system.path / "before")
    assert before["state"] == "succeeded", before["message"]
    assert system.json("plan", "show", before["name"])["cost_model"].startswith("analytic")
    assert system.json("profiles") == {"profiles": []}

    measured = system.json("profile", MODELS / f"{MODEL}.swg", "--samples", 16, "--device", "w1")
    assert measured["device"] == "w1/cpu0"
    assert measured["unmeasured"] == []
    (device,) = measured["profile"]["devices"]
    kind = device["device_kind"]
    assert kind == system.json("workers")["workers"][1]["devices"][0]["kind"]
    assert "1 thread" in device["software"]
    for operator in device["operators"]:
        assert [sample["samples"] for sample in operator["samples"]] in ([1], [1, 2, 4, 8, 16]), operator
    (kept,) = system.json("profiles")["profiles"]
    assert kept["operators"] == len(device["operators"])

    # The device is free again, and a job is planned by what is known.
    job = system.train(MODEL, out=system.path / "after")
    assert job["state"] == "succeeded", job["message"]
    shown = system.cli("plan", "show", job["name"])
    assert shown.returncode == 0, shown.stderr
    assert "costs: profile of " in shown.stdout


def test_profiles_survive_the_planner_and_travel_as_files(system):
    path = system.path / "profiles.json"
    assert system.cli("profiles", "export", path).returncode == 0
    system.planner.kill()
    system.planner.wait()
    system.start_planner()
    system.await_workers(2)
    again = system.path / "again.json"
    assert system.cli("profiles", "export", again).returncode == 0
    assert again.read_text() == path.read_text()

    profile = json.loads(path.read_text())
    kind = profile["devices"][0]["device_kind"]
    profile["devices"][0]["device_kind"] = "another"
    path.write_text(json.dumps(profile))
    imported = system.cli("profiles", "import", path)
    assert imported.returncode == 0, imported.stderr
    assert {entry["device_kind"] for entry in system.json("profiles")["profiles"]} == {kind, "another"}

    profile["devices"][0]["operators"][0]["samples"][0]["forward_ns"] = -1
    path.write_text(json.dumps(profile))
    refused = system.cli("profiles", "import", path)
    assert refused.returncode == 1
    assert "profiles.json" in refused.stderr and "forward_ns is -1" in refused.stderr


def test_plans_without_a_service_take_a_profile_from_a_file(system):
    path, cluster = system.path / "local.json", system.path / "cluster.json"
    assert system.cli("profiles", "export", path).returncode == 0
    assert system.cli("topology", "measure", "--out", cluster).returncode == 0
    plan = ("plan", MODELS / f"{MODEL}.swg", "--cluster", cluster, "--mini-batch", 16, "--local")
    analytic, profiled = system.json(*plan), system.json(*plan, "--profile", path)
    assert "analytic" in analytic["cost_model"]
    assert "profile" in profiled["cost_model"]
    assert system.cli(*plan, "--profile", system.path / "none.json").returncode == 1


def test_a_plan_is_applied_only_while_what_it_was_made_from_holds(system):
    path, cluster, plan = system.path / "applied.json", system.path / "workers.json", system.path / "plan.json"
    assert system.cli("topology", "measure", "--out", cluster).returncode == 0
    question = (MODELS / f"{MODEL}.swg", "--cluster", cluster, "--mini-batch", 16, "--optimizer", "sgd")
    made = system.cli("plan", *question, "--save", plan)
    assert made.returncode == 0, made.stderr
    flags = dict(plan=plan, check_version=True)
    job = system.train(MODEL, **flags)
    assert job["state"] == "succeeded", job["message"]

    def refusal(model=MODEL, **changes) -> str:
        refused = system.cli(*system.submit_flags(model, **(flags | changes)))
        assert refused.returncode == 1 and "the plan was made for something else: " in refused.stderr, refused.stderr
        return refused.stderr

    assert "the mini-batch is 32, it was 16" in refusal(mini_batch=32)
    assert "operator " in refusal("four_branches_f64")
    elsewhere, slow = json.loads(cluster.read_text()), system.path / "slow.json"
    for link in elsewhere["links"]:
        link["bytes_per_second"] /= 10
    slow.write_text(json.dumps(elsewhere))
    other = ("--cluster", slow, "--mini-batch", 16, "--optimizer", "sgd")
    made = system.cli("plan", MODELS / f"{MODEL}.swg", *other, "--save", system.path / "slow-plan.json")
    assert made.returncode == 0, made.stderr
    assert "the link from w0/cpu0 to w1/cpu0 has a bandwidth of " in refusal(plan=system.path / "slow-plan.json")
    assert system.cli("profiles", "export", path).returncode == 0
    profile = json.loads(path.read_text())
    sample = profile["devices"][0]["operators"][0]["samples"][0]
    sample["forward_ns"] += 1000
    path.write_text(json.dumps(profile))
    assert system.cli("profiles", "import", path).returncode == 0
    assert f'the profile of "{profile["devices"][0]["device_kind"]}" is another' in refusal()
    sample["forward_ns"] -= 1000
    path.write_text(json.dumps(profile))
    assert system.cli("profiles", "import", path).returncode == 0
    assert system.cli(*system.submit_flags(MODEL, **flags), "--validate-only").returncode == 0

    system.stop(system.workers.pop("w1"))
    system.await_workers(1)
    assert "device w1/cpu0 is gone" in refusal()
    system.start_worker("w1")
    system.await_workers(2)
    by_hand = system.cli(*system.submit_flags(MODEL, plan=system.plan_by_hand(MODEL, 2), check_version=True))
    assert by_hand.returncode == 1 and "not a saved plan" in by_hand.stderr, by_hand.stderr


def test_a_device_that_is_not_there_is_told(system):
    refused = system.cli("profile", MODELS / f"{MODEL}.swg", "--device", "w7/cpu0")
    assert refused.returncode == 1
    assert 'device "w7/cpu0" is not connected' in refused.stderr


def test_what_operators_take_in_a_job_is_kept_beside_what_was_measured_by_itself(system):
    path = system.path / "jobs.json"

    def known():
        assert system.cli("profiles", "export", path).returncode == 0
        devices = json.loads(path.read_text())["devices"]
        return {operator["signature"]: operator for device in devices for operator in device["operators"]}

    before = known()
    name = system.submit("four_branches_f64", out=system.path / "long", devices=1, micro_batch=8, steps=1_000_000)
    wait_for(lambda: len(known()) > len(before), "operators of a job")
    assert system.cli("cancel", name).returncode == 0
    after = known()
    assert all(after[signature] == operator for signature, operator in before.items())
    for signature in after.keys() - before.keys():
        assert after[signature]["job"] == name
        (sample,) = after[signature]["samples"]
        assert sample["samples"] == 8 and sample["forward_ns"] > 0
