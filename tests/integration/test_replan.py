"""The loop from prediction to measurement and back: drifts are named, and a running job changes its plan."""

import contextlib
import json
import signal
import threading

import pytest
from processes import MODELS, Processes, wait_for

MODEL = "four_branches_f64"
STEPS = 3000


@pytest.fixture(scope="module")
def system():
    # Workers that a test stops for a while are not lost.
    with Processes(workers=3, planner_flags=("--worker-timeout", "600"), measured=True) as running:
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

    with stopped(system):  # Neither the job nor the change of its plan is over, however long the questions take.
        looked = system.json("jobs", "replan", name, "--time-limit", 120)
        assert not looked["applied"] and looked["better"], looked
        assert looked["better"]["iteration_seconds"] < looked["present"]["iteration_seconds"]
        assert system.job(name)["replans"] == 0
        changed = system.json("jobs", "replan", name, "--apply", "--time-limit", 120)
        assert changed["applied"], changed
        again = system.cli("jobs", "replan", name)
        assert again.returncode == 1 and "already" in again.stderr, again.stderr
    ended = system.await_end(name)
    assert ended["state"] == "succeeded", ended["message"]
    assert (ended["step"], ended["replans"], ended["restarts"]) == (STEPS, 1, 0)
    assert ended["checkpoint_step"] >= changed["after_step"]  # Later, where that step was done before all had heard.
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
    answer = system.json("jobs", "replan", name, "--apply", "--time-limit", 120)
    assert "better" not in answer and not answer["applied"], answer
    assert "no better plan" in answer["message"]
    assert system.job(name)["replans"] == 0


def repeat_samples(source, target, times):
    """A safetensors file with the samples of another one, so many times."""
    raw = source.read_bytes()
    end = 8 + int.from_bytes(raw[:8], "little")
    header, tensors = json.loads(raw[8:end]), b""
    for tensor in header.values():
        first, last = tensor["data_offsets"]
        data = raw[end + first : end + last] * times
        tensor["shape"][0] *= times
        tensor["data_offsets"] = [len(tensors), len(tensors) + len(data)]
        tensors += data
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target.write_bytes(len(text).to_bytes(8, "little") + text + tensors)


@contextlib.contextmanager
def stopped(system):
    """No worker does anything."""
    for worker in system.workers.values():
        worker.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        for worker in system.workers.values():
            worker.send_signal(signal.SIGCONT)


@contextlib.contextmanager
def slowed(process):
    """The process runs for a small part of the time, so that what takes longer than such a part is interrupted."""
    over = threading.Event()

    def stop_and_go():
        while not over.wait(0.002):
            process.send_signal(signal.SIGSTOP)
            over.wait(0.008)
            process.send_signal(signal.SIGCONT)

    thread = threading.Thread(target=stop_and_go)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_device_that_is_slower_than_its_replica_is_named_while_it_is(system):
    plan = system.path / "replicas.json"
    plan.write_text(json.dumps({"micro_batch": 1024, "stages": [{"nodes": ["*"], "devices": [0, 1]}]}))
    data = system.path / "many.safetensors"
    repeat_samples(MODELS / "transformer_f32.data.safetensors", data, 32)
    replicas = settings(system, "straggling", plan_file=plan, devices=2, data=data, mini_batch=1024)
    replicas["steps"] = 1_000_000
    name = system.submit("transformer_f32", **replicas)
    slow = measured(system, name)["devices"][1]
    worker = slow.split("/")[0]

    def stragglers():
        return [straggler["device"] for straggler in system.json("jobs", "show", name).get("stragglers", [])]

    def kinds(events):
        named = [event["kind"] for event in events if event.get("worker") == worker and event.get("job") == name]
        return [kind for kind in named if "straggler" in kind]

    def named():
        """At one look: on a busy machine it may be over at the next, and begin anew."""
        return f"straggler        {slow} takes " in system.cli("jobs", "describe", name).stdout

    with slowed(system.workers[worker]):
        wait_for(named, f"{slow} to be named")
    wait_for(lambda: not stragglers(), f"{slow} to be as fast as before")
    # It may have been one before, too, and be one again.
    for events in (system.json("jobs", "events", name), system.json("workers", "--events")):
        found = kinds(events["events"])
        assert found == ["straggler", "straggler_gone"] * (len(found) // 2) + ["straggler"] * (len(found) % 2)
        assert len(found) >= 2


def test_a_drift_is_named_with_its_operators(system):
    """A profile says that one operator takes ten thousand times as long as it does: a busy machine slows all of them, and
    less."""
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
            sample[field] *= 10_000
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
