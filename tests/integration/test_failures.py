"""What goes wrong ends one job with one message, and nothing else."""

import json
import os
import re
import signal
import struct
import time
import zlib

import pytest
import torch
from processes import MODELS, Processes, wait_for
from safetensors.torch import load_file, save_file

from stagewright._proto import graph_pb2

LONG = 1_000_000  # Steps; such a job is ended by the test.


@pytest.fixture(scope="module")
def system():
    # A machine that is busy has time to save what it has.
    flags = dict(planner_flags=("--worker-timeout", "5"), worker_flags=("--drain-timeout", "120"))
    with Processes(workers=3, **flags) as running:
        yield running


@pytest.fixture(autouse=True)
def workers_survive(request, system):
    """After each test, all three workers are there and free, and train the next job."""
    yield
    for name, process in list(system.workers.items()):
        if process.poll() is not None:
            system.start_worker(name)
    system.await_workers(3)
    job = system.train("chain_f32", **on_all(system), steps=2)
    assert job["state"] == "succeeded", job["message"]


def on_all(system) -> dict:
    """A stage on each worker: a planner may leave some of them to others."""
    return dict(plan_file=system.plan_by_hand("chain_f32", stages=3))


def failed(system, **changes) -> str:
    """The one message of a job that must fail."""
    model = changes.pop("model", "chain_f32")
    result = system.cli(*system.submit_flags(model, devices=2, **changes), "--watch", "-o", "json")
    assert result.returncode in (1, 5), result.stdout
    message = result.stderr if result.returncode == 1 else json.loads(result.stdout)["message"]
    assert message and "\n" not in message.strip()
    return message


def test_a_killed_worker_fails_its_job_by_name(system):
    job = system.submit("chain_f32", **on_all(system), steps=LONG)
    system.await_step(job, 20)
    pids = {name: process.pid for name, process in system.workers.items()}
    system.stop(system.workers["w1"], signal.SIGKILL)
    ended = system.await_end(job)
    assert ended["state"] == "failed"
    assert re.search(r"\bw1\b.* lost", ended["message"]), ended["message"]
    for survivor in ("w0", "w2"):
        assert system.workers[survivor].poll() is None
        assert system.workers[survivor].pid == pids[survivor]


def test_a_stopped_worker_is_lost_and_comes_back(system):
    job = system.submit("chain_f32", **on_all(system), steps=LONG)
    system.await_step(job, 5)
    process = system.workers["w2"]
    process.send_signal(signal.SIGSTOP)
    try:
        ended = system.await_end(job)
    finally:
        process.send_signal(signal.SIGCONT)
    assert ended["state"] == "failed"
    assert "w2" in ended["message"] or "timed out" in ended["message"], ended["message"]


def test_cancel_mid_run(system):
    job = system.submit("chain_f32", **on_all(system), steps=LONG)
    system.await_step(job, 5)
    assert system.cli("cancel", job).returncode == 0
    assert system.job(job)["state"] == "cancelled"
    assert system.cli("watch", job).returncode == 5


def test_the_logs_of_a_job_are_read_far_from_its_nodes(system):
    data = load_file(f"{MODELS}/chain_f32.data.safetensors")
    data["x"][5] = float("inf")  # The loss is none, which the worker notices that computes it.
    save_file(data, system.path / "spoiled.safetensors")
    job = system.submit("chain_f32", **on_all(system), data=system.path / "spoiled.safetensors")
    follow = system.cli("jobs", "logs", job, "--follow")
    assert follow.returncode == 0, follow.stderr
    ended = system.job(job)
    assert ended["state"] == "failed"
    lines = follow.stdout.splitlines()
    for worker in system.workers:
        assert any("job is prepared" in line and f" worker={worker} " in line for line in lines), lines
    failures = [line for line in lines if "error stagewright-worker: job failed" in line]
    (cause, *_) = [line for line in failures if "the loss is nan" in line]
    assert re.search(r" worker=w\d generation=1 ", cause), cause
    assert "job changed its state" in follow.stdout and "state=failed" in follow.stdout
    shown = [json.loads(line) for line in system.cli("jobs", "logs", job, "-o", "json").stdout.splitlines()]
    assert [line["time"] for line in shown] == sorted(line["time"] for line in shown)
    of_one = system.cli("jobs", "logs", job, "--worker", "w1", "-o", "json").stdout.splitlines()
    assert {json.loads(line)["worker"] for line in of_one} == {"w1"}
    assert system.cli("jobs", "rm", job).returncode == 0
    assert job in system.cli("jobs", "logs", job).stderr


def test_files_that_cannot_be_read_are_named(system):
    assert "no-such-file.safetensors" in failed(system, data=system.path / "no-such-file.safetensors")
    assert "no-weights.safetensors" in failed(system, weights=system.path / "no-weights.safetensors")
    path = system.path / "text.safetensors"
    path.write_text("not tensors at all")
    assert "text.safetensors" in failed(system, data=path)
    assert "text.safetensors" in failed(system, weights=path)


def test_data_that_do_not_suit_the_job_are_told(system):
    path = system.path / "wrong.safetensors"
    save_file({"x": torch.randn(96, 7), "target": torch.randint(0, 5, (96,))}, path)
    message = failed(system, data=path)
    assert "wrong.safetensors" in message
    assert "x" in message and "7" in message, message
    message = failed(system, mini_batch=128, steps=None, epochs=1)
    assert "128" in message and "96" in message, message


def test_operators_that_are_not_allowed_are_named(system):
    contents = (MODELS / "chain_f32.swg").read_bytes()
    path = system.path / "unknown.swg"
    for target in ("aten.nonsense.default", "aten.from_file.default"):
        graph = graph_pb2.Graph.FromString(contents[20:])
        node = next(node for node in graph.nodes if node.target == "aten.tanh.default")
        node.target = target
        payload = graph.SerializeToString()
        path.write_bytes(b"SWGRAPH1" + struct.pack("<QI", len(payload), zlib.crc32(payload)) + payload)
        result = system.cli(*system.submit_flags("chain_f32", graph=path))
        assert result.returncode == 1
        assert f'"{node.name}" ({target})' in result.stderr, result.stderr


def test_an_output_that_cannot_be_written_is_named(system):
    path = system.path / "occupied"
    path.write_text("a file, not a directory")
    assert "occupied" in failed(system, out=path)


def test_wrong_paths_fail_a_job_before_its_plan_is_found(system):
    # The command line sees no data here, as on another machine; the search would take its minute.
    slow = dict(planner="exact", data=system.path / "no-data-*.npy", devices=3)
    job = system.train("four_branches_f64", **slow)
    assert job["state"] == "failed"
    assert "worker w" in job["message"] and "spec.data_path: " in job["message"], job["message"]
    assert "no-data-*.npy" in job["message"]
    states = [event["state"] for event in system.json("jobs", "events", job["name"])["events"]]
    assert "planning" in states and "starting" not in states, states
    for field, flag in {"weights_path": "weights", "evaluation_data_path": "eval_data", "resume_path": "resume"}.items():
        message = failed(system, **{flag: system.path / "nowhere.safetensors"})
        assert f"spec.{field}: " in message and "nowhere.safetensors" in message, message


def test_a_killed_planner_comes_back_and_the_job_goes_on(system):
    job = system.submit("chain_f32", **on_all(system), steps=1000)
    system.await_step(job, 20)
    system.stop(system.planner, signal.SIGKILL)
    time.sleep(1)
    system.start_planner()
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]
    assert ended["total_steps"] == 1000
    assert os.path.exists(ended["checkpoint"])
    for name in system.workers:
        assert "failed" not in system.log(name).split("registered")[-1]


def test_a_planner_that_shuts_down_leaves_the_job_running(system):
    job = system.submit("chain_f32", **on_all(system), steps=1000)
    system.await_step(job, 20)
    assert system.stop(system.planner, signal.SIGTERM) == 0
    system.start_planner()
    ended = system.await_end(job)
    assert ended["state"] == "succeeded", ended["message"]


def test_a_worker_without_a_planner_keeps_trying(system):
    system.stop(system.planner)
    system.start_worker("late")
    wait_for(lambda: "trying again" in system.log("late"), "the worker to say so")
    assert system.cli("jobs").returncode == 4
    system.start_planner()
    wait_for(lambda: "registered" in system.log("late"), "the worker to register")
    late = system.workers.pop("late")
    assert system.stop(late) == 0
    system.await_workers(3)


def test_an_interrupt_ends_the_daemons_at_once(system):
    job = system.submit("chain_f32", **on_all(system), steps=LONG)
    system.await_step(job, 5)
    # Long before the job would have ended.
    assert system.stop(system.workers["w0"], signal.SIGINT) == 0
    assert "w0" in system.await_end(job)["message"]
    assert system.stop(system.planner, signal.SIGINT) == 0
    system.start_planner()


def test_sigterm_ends_a_worker_when_its_job_has_left_it_or_at_a_second_signal(system):
    job = system.submit("chain_f32", devices=3, planner="data-parallel", steps=LONG)
    system.await_step(job, 5)
    assert system.stop(system.workers["w0"], signal.SIGTERM) == 0
    wait_for(lambda: system.job(job)["state"] == "running", "the job to go on")
    assert system.job(job)["devices"] == ["w1/cpu0", "w2/cpu0"]
    assert system.job(job)["restarts"] == 0
    assert system.cli("cancel", job).returncode == 0
    # Without a planner, nobody can take a job over.
    system.start_worker("w0")
    system.await_workers(3)
    job = system.submit("chain_f32", **on_all(system), steps=LONG)
    system.await_step(job, 5)
    assert system.stop(system.planner, signal.SIGTERM) == 0
    before = system.log("w0").count("draining")  # The log is that of the worker before it, too.
    system.workers["w0"].send_signal(signal.SIGTERM)
    wait_for(lambda: system.log("w0").count("draining") > before, "the worker to drain")
    assert system.stop(system.workers["w0"], signal.SIGTERM) == 0
    system.start_planner()
    # Either the planner misses it first, or another worker tells first that its peer has gone.
    message = system.await_end(job)["message"]
    assert "w0" in message or "device 0 has gone" in message, message


def test_a_second_worker_of_a_name_is_told(system):
    system.start_worker("twin")
    system.await_workers(4)
    first = system.workers["twin"]
    second = system.start_worker("twin")
    wait_for(lambda: "is connected already" in system.log("twin"), "the refusal")
    assert second.poll() is None
    assert system.stop(second) == 0
    system.workers.pop("twin")
    assert system.stop(first) == 0
    system.await_workers(3)


def test_a_second_planner_is_refused_the_address_and_the_state(system):
    import subprocess

    from processes import BIN

    def start(listen, state):
        command = [BIN / "stagewright-planner", "--listen", listen, "--metrics-listen", "", "--state", state]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    taken = start(system.address, system.path / "other.db")
    assert taken.returncode == 1
    assert system.address in taken.stderr
    held = start("127.0.0.1:0", system.path / "state.db")
    assert held.returncode == 1
    assert "state.db" in held.stderr
