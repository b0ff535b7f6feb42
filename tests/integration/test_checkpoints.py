"""Jobs that are saved while they run, and go on under other plans."""

import json
import signal

import pytest
import torch
from processes import MODELS, Processes, wait_for
from safetensors.torch import load_file

import stagewright

MODEL = "four_branches_f64"


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2, planner_flags=("--worker-timeout", "5")) as running:
        yield running


def assert_same(path, other):
    first, second = load_file(path), load_file(other)
    assert set(first) == set(second)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def settings(system, out, **changes):
    return dict(
        out=system.path / out, steps=20, optimizer="adam", lr=0.01, seed=3, no_shuffle=None, micro_batch=4, **changes
    )


def test_a_job_goes_on_with_other_devices(system):
    whole = system.train(MODEL, **settings(system, "whole", devices=1))
    assert whole["state"] == "succeeded", whole["message"]
    saved = system.train(MODEL, **settings(system, "saved", devices=2, stages=2, checkpoint_every=10))
    assert saved["state"] == "succeeded", saved["message"]
    checkpoint = system.path / "saved" / "checkpoints" / "step-0000000010"
    read = stagewright.read_checkpoint(checkpoint)
    assert (read.step, read.samples, read.optimizer) == (10, 160, "adam")
    resumed = system.train(MODEL, **settings(system, "resumed", devices=1, resume=checkpoint))
    assert resumed["state"] == "succeeded", resumed["message"]
    assert resumed["step"] == 20
    assert_same(saved["checkpoint"], whole["checkpoint"])
    assert_same(resumed["checkpoint"], whole["checkpoint"])
    # From the output directory, too, and to more devices.
    again = system.train(MODEL, **settings(system, "again", devices=2, stages=2, resume=system.path / "saved"))
    assert again["state"] == "succeeded", again["message"]
    assert_same(again["checkpoint"], whole["checkpoint"])


def test_shared_optimizer_state_goes_on_as_whole_and_back(system):
    """Two replicas with a share each, and one device."""
    replicas = dict(devices=2, planner="data-parallel", shard_optimizer="states", bucket_bytes=1000)
    whole = system.train(MODEL, **settings(system, "one", devices=1, checkpoint_every=10))
    assert whole["state"] == "succeeded", whole["message"]
    shared = system.train(MODEL, **settings(system, "shared", **replicas, checkpoint_every=10))
    assert shared["state"] == "succeeded", shared["message"]
    assert_same(shared["checkpoint"], whole["checkpoint"])
    step = "checkpoints/step-0000000010"
    manifest = json.loads((system.path / "shared" / step / "manifest.json").read_text())
    assert any("exp_avg@" in name for name in manifest["optimizer_map"])
    states = [stagewright.read_checkpoint(system.path / out / step).optimizer_state for out in ("one", "shared")]
    assert set(states[0]) == set(states[1])
    for name, state in states[0].items():
        assert {key: value.shape for key, value in state.items()} == {k: v.shape for k, v in states[1][name].items()}
    for out, of, flags in (("to-one", "shared", {"devices": 1}), ("to-shared", "one", replicas)):
        resumed = system.train(MODEL, **settings(system, out, **flags, resume=system.path / of / step))
        assert resumed["state"] == "succeeded", resumed["message"]
        assert_same(resumed["checkpoint"], whole["checkpoint"])


def test_what_another_job_left_is_not_overwritten(system):
    flags = settings(system, "taken", devices=1, checkpoint_every=10)
    first = system.train(MODEL, **flags)
    assert first["state"] == "succeeded", first["message"]
    out, model = flags["out"], load_file(first["checkpoint"])
    # What the planner forgets is still there.
    assert system.cli("jobs", "rm", first["name"]).returncode == 0
    other = flags | {"seed": 4, "overwrite": None}
    for changes in ({}, {"checkpoint_every": None}):
        refused = system.train(MODEL, **(other | changes))
        assert refused["state"] == "failed"
        assert f"{out} holds a checkpoint or model of job" in refused["message"], refused["message"]
        assert first["name"] in refused["message"]
    kept = load_file(out / "model.safetensors")
    assert all(torch.equal(tensor, kept[name]) for name, tensor in model.items())
    assert stagewright.read_checkpoint(out / "checkpoints/step-0000000010").step == 10
    taken = system.train(MODEL, **(other | {"checkpoint_every": 15, "overwrite": True}))
    assert taken["state"] == "succeeded", taken["message"]
    assert [path.name for path in whole_checkpoints(out / "checkpoints")] == ["step-0000000015"]
    changed = load_file(taken["checkpoint"])
    assert any(not torch.equal(tensor, changed[name]) for name, tensor in model.items())
    assert not list(out.glob("shards-*"))


def test_a_running_jobs_directory_is_not_overwritten_through_a_link(system):
    out, alias = system.path / "held", system.path / "alias"
    alias.symlink_to(out, target_is_directory=True)
    out.mkdir()
    flags = settings(system, "held", devices=1, checkpoint_every=2) | {"steps": 1_000_000}
    running = system.submit(MODEL, **flags)
    wait_for(lambda: whole_checkpoints(out / "checkpoints"), "a checkpoint")
    for more in ({}, {"resume": alias}, {"overwrite": None}):
        refused = system.train(MODEL, **(flags | {"out": alias, "steps": 5} | more))
        assert refused["state"] == "failed"
        assert f"spec.output_path: {alias} is that of job" in refused["message"], refused["message"]
        assert f"{running}, " in refused["message"] and "has not ended" in refused["message"]
    assert whole_checkpoints(out / "checkpoints")
    # What it writes then is its own.
    newest = whole_checkpoints(out / "checkpoints")[-1]
    wait_for(lambda: whole_checkpoints(out / "checkpoints")[-1] > newest, "a later checkpoint")
    assert system.cli("cancel", running).returncode == 0


def whole_checkpoints(root):
    return sorted(path.parent for path in root.glob("*/manifest.json"))


def test_damage_is_skipped_or_named(system):
    root = system.path / "damaged" / "checkpoints"
    # Those that are due while another one is being written are left out, so only that there are two is known.
    flags = settings(system, "damaged", devices=2, stages=2, checkpoint_every=6) | {"steps": 1_000_000}
    running = system.submit(MODEL, **flags)
    wait_for(lambda: len(whole_checkpoints(root)) >= 2, "two checkpoints")
    assert system.cli("cancel", running).returncode == 0
    # The workers take this one when they are done with the other.
    system.train(MODEL, **settings(system, "next", devices=2, stages=2) | {"steps": 1})
    older, newest = whole_checkpoints(root)  # Two are kept.
    steps = {"steps": stagewright.read_checkpoint(newest).step + 2}
    job = system.train(MODEL, **settings(system, "undamaged", devices=2, stages=2) | steps)
    assert job["state"] == "succeeded", job["message"]
    file = newest / json.loads((newest / "manifest.json").read_text())["files"][0]["name"]
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    flags = settings(system, "from-damaged", devices=1, resume=system.path / "damaged") | steps
    resumed = system.train(MODEL, **flags)
    assert resumed["state"] == "succeeded", resumed["message"]
    assert_same(resumed["checkpoint"], job["checkpoint"])
    assert any(newest.name in warning for warning in resumed["warnings"]), resumed
    asked = system.train(MODEL, **settings(system, "asked", devices=1, resume=newest) | steps)
    assert asked["state"] == "failed" and file.name in asked["message"], asked["message"]
    other = system.train(MODEL, **settings(system, "other", devices=1, resume=older) | steps | {"seed": 4})
    assert other["state"] == "failed" and "seed 3" in other["message"], other["message"]


def test_a_lost_worker_costs_the_steps_since_the_last_checkpoint(system):
    flags = settings(system, "lost", devices=2, planner="data-parallel", checkpoint_every=50, max_restarts=1)
    flags |= {"steps": 3000}
    name = system.submit(MODEL, **flags)
    system.await_step(name, 120)
    system.stop(system.workers["w1"], signal.SIGKILL)
    ended = system.await_end(name)
    system.start_worker("w1")
    system.await_workers(2)
    assert ended["state"] == "succeeded", ended["message"]
    assert (ended["step"], len(ended["devices"])) == (3000, 1)
    flags = settings(system, "not-lost", devices=1) | {"steps": 3000}
    whole = system.train(MODEL, **flags)
    assert_same(ended["checkpoint"], whole["checkpoint"])


def test_early_stop_counts_on_where_it_was(system):
    """No evaluation after the first is so much better, so training ends after the fifth: that of step 10."""
    flags = dict(steps=40, eval_data=MODELS / f"{MODEL}.data.safetensors", eval_every=2, patience=4, min_delta=1e9)
    whole = system.train(MODEL, **settings(system, "patient", devices=2, checkpoint_every=3, keep=9) | flags)
    assert whole["state"] == "succeeded", whole["message"]
    assert whole["step"] == 10, whole["message"]
    # Those that were due while another one was being written are not there.
    checkpoints = [path.parent for path in (system.path / "patient" / "checkpoints").glob("*/manifest.json")]
    assert checkpoints
    for checkpoint in checkpoints:
        manifest = json.loads((checkpoint / "manifest.json").read_text())
        evaluated = manifest["step"] // 2
        assert manifest["evaluations"]["since_best"] == evaluated - 1
        out = system.path / f"patient-{manifest['step']}"
        resumed = system.train(MODEL, **settings(system, out, devices=1, resume=checkpoint) | flags)
        assert resumed["state"] == "succeeded", resumed["message"]
        assert resumed["step"] == 10, resumed["message"]
        assert resumed["message"] == whole["message"]
        assert_same(resumed["checkpoint"], whole["checkpoint"])


def test_checkpoints_by_the_clock(system):
    flags = settings(system, "clock", devices=2, stages=2, checkpoint_minutes=0.02) | {"steps": 1_000_000}
    name = system.submit(MODEL, **flags)
    root = system.path / "clock" / "checkpoints"
    wait_for(lambda: any(root.glob("step-*/manifest.json")), "a checkpoint")
    assert system.cli("cancel", name).returncode == 0
