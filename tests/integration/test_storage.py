"""Disks that fill up, and data that cannot be read: at the start of a job and in the middle of one."""

import json
import os
import pathlib
import re
import resource
import shutil
import signal
import subprocess
import tempfile

import pytest
import torch
from processes import MODELS, Processes, wait_for
from safetensors.torch import load_file, save_file

import stagewright

MODEL = "four_branches_f64"
LONG = 1_000_000  # Steps; such a job is ended by the test or by what it tests.
# Root may read every file, unless it gives that up.
BOUND_BY_PERMISSIONS = [] if os.geteuid() != 0 else ["setpriv", "--bounding-set=-dac_override,-dac_read_search"]


@pytest.fixture(scope="module")
def system():
    with Processes(workers=0, planner_flags=("--worker-timeout", "5")) as running:
        for name in ("w0", "w1"):
            running.start_worker(name, prefix=BOUND_BY_PERMISSIONS if shutil.which("setpriv") else [])
        running.await_workers(2)
        yield running


@pytest.fixture(autouse=True)
def workers_survive(system):
    """No test may end a worker."""
    yield
    assert [worker.poll() for worker in system.workers.values()] == [None, None]


def plan(system):
    return system.plan_by_hand(MODEL, 2)


def settings(system, out, **changes):
    flags = dict(out=out, steps=LONG, optimizer="adam", lr=0.01, seed=3, no_shuffle=None)
    return flags | dict(plan_file=plan(system), devices=2) | changes


class SmallDisk:
    """A file system of its own, a few checkpoints large."""

    error = "No space left on device"

    def __init__(self, system, size="1m"):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="disk-", dir=system.path))
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.path], capture_output=True)
        if mounted.returncode != 0:
            self.path.rmdir()
            pytest.skip(f"no right to mount a file system: {mounted.stderr.decode().strip()}")

    def fill(self):
        """Also what was freed since the last call."""
        with open(self.path / "filler", "ab", buffering=0) as filler:
            for size in (1 << 16, 1 << 8, 1):
                try:
                    while True:
                        filler.write(bytes(size))
                except OSError:
                    pass

    def free(self):
        (self.path / "filler").unlink()

    def close(self):
        subprocess.run(["umount", "-l", self.path], check=True)
        shutil.rmtree(self.path)  # A job that was not over yet has perhaps made it anew.


class Quota:
    """Files that may not grow beyond 1 KiB: what a full disk is where nothing can be mounted."""

    error = "File too large"

    def __init__(self, system):
        self.path = pathlib.Path(tempfile.mkdtemp(prefix="quota-", dir=system.path))
        self.workers = list(system.workers.values())

    def fill(self):
        self.limit(1024)

    def free(self):
        self.limit(resource.RLIM_INFINITY)

    def limit(self, size):
        for worker in self.workers:
            resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    def close(self):
        self.free()
        shutil.rmtree(self.path)


@pytest.fixture(params=[SmallDisk, Quota])
def disk(request, system):
    made = request.param(system)
    yield made
    system.cancel_all()
    made.close()


def assert_same(path, other):
    first, second = load_file(path), load_file(other)
    assert set(first) == set(second)
    for name, tensor in first.items():
        torch.testing.assert_close(tensor, second[name], rtol=1e-12, atol=1e-12, msg=lambda m, n=name: f"{n}: {m}")


def newest_checkpoint(out):
    return max(path.parent for path in out.glob("checkpoints/*/manifest.json"))


def assert_resumes(system, checkpoint, **flags):
    """From `checkpoint` to the result of a run that was never interrupted."""
    step = stagewright.read_checkpoint(checkpoint).step
    ends = settings(system, system.path / "resumed", steps=step + 10, resume=checkpoint) | flags
    resumed = system.train(MODEL, **ends)
    assert resumed["state"] == "succeeded", resumed["message"]
    whole = system.train(MODEL, **(ends | dict(out=system.path / "whole", resume=None)))
    assert whole["state"] == "succeeded", whole["message"]
    assert_same(resumed["checkpoint"], whole["checkpoint"])


# A share of a device, or, if all of these just fitted, the manifest that a worker writes when they are complete.
WHAT_FAILS = "(could not be written: device w|could not be completed: worker w)"
WHAT_IS_SKIPPED = r"checkpoint after step \d+ was skipped: (device|worker) w"


def await_no_temporary_files(out):
    """What a worker was writing when its job ended is cleared away by itself, and that may take it a while."""

    def gone():
        try:
            return not list(out.rglob("*.tmp"))
        except FileNotFoundError:  # A directory was removed while it was looked into.
            return False

    wait_for(gone, "an end of temporary files")


def test_a_full_disk_costs_the_checkpoint_and_nothing_else(system, disk):
    out = disk.path / "out"
    job = system.submit(MODEL, **settings(system, out, checkpoint_every=20))
    wait_for(lambda: system.job(job)["checkpoint_step"] > 0, "a checkpoint")

    def skipped():
        disk.fill()
        return any(disk.error in warning for warning in system.job(job).get("warnings", []))

    wait_for(skipped, "a full disk")
    at = system.job(job)
    assert at["state"] == "running"
    warning = next(text for text in at["warnings"] if disk.error in text)
    assert re.match(WHAT_IS_SKIPPED, warning), warning
    assert str(out) in warning, warning
    # Training goes on, and so does saving as soon as there is room.
    system.await_step(job, at["step"] + 50)
    full = system.job(job)["step"]
    disk.free()
    wait_for(lambda: system.job(job)["checkpoint_step"] > full, "a checkpoint after there is room again")
    assert system.cli("cancel", job).returncode == 0
    await_no_temporary_files(out)
    # A checkpoint that was being written when the job was cancelled may be there, and newer than the job knows.
    newest = newest_checkpoint(out)
    assert stagewright.read_checkpoint(newest).step >= system.job(job)["checkpoint_step"]
    assert_resumes(system, newest)


def test_a_full_disk_fails_the_job_if_asked_for(system, disk):
    out = disk.path / "out"
    job = system.submit(MODEL, **settings(system, out, checkpoint_every=20, checkpoint_or_fail=True))
    wait_for(lambda: system.job(job)["checkpoint_step"] > 0, "a checkpoint")

    def over():
        disk.fill()
        return system.job(job)["state"] not in ("running", "starting")

    wait_for(over, "the end of the job")
    ended = system.job(job)
    assert ended["state"] == "failed"
    assert "\n" not in ended["message"]
    assert ended["message"].startswith("checkpoint after step "), ended["message"]
    assert re.search(WHAT_FAILS, ended["message"]), ended["message"]
    assert disk.error in ended["message"], ended["message"]
    # The last good checkpoint is still good, while the disk is as full as before.
    newest = newest_checkpoint(out)
    assert stagewright.read_checkpoint(newest).step >= ended["checkpoint_step"]
    await_no_temporary_files(out)
    disk.free()
    assert_resumes(system, newest)


@pytest.mark.parametrize("disk", [SmallDisk], indirect=True)  # A quota keeps workers from starting at all.
def test_a_job_that_starts_again_on_a_full_disk_waits_for_room(system, disk):
    out = disk.path / "out"
    flags = settings(system, out, checkpoint_every=20, max_restarts=1, on_loss="wait")
    job = system.submit(MODEL, **flags)
    wait_for(lambda: system.job(job)["checkpoint_step"] > 0, "a checkpoint")
    disk.fill()
    system.stop(system.workers["w1"], signal.SIGKILL)
    system.start_worker("w1", prefix=BOUND_BY_PERMISSIONS if shutil.which("setpriv") else [])
    system.await_workers(2)

    def waits():
        disk.fill()
        at = system.job(job)
        assert at["state"] != "failed", at["message"]
        return at["state"] == "pending" and disk.error in at["message"]

    wait_for(waits, "a job that says that the disk is full")
    assert "no restart is counted" in system.cli("jobs", "events", job).stdout
    assert system.job(job)["restarts"] == 1
    disk.free()
    wait_for(lambda: system.job(job)["state"] == "running", "a job that goes on")
    saved = re.match(r"goes on after step (\d+);", system.job(job)["message"])
    assert saved and int(saved[1]) > 0, system.job(job)["message"]
    assert system.cli("cancel", job).returncode == 0
    await_no_temporary_files(out)


def test_a_job_waits_for_shared_memory_and_says_so():
    with Processes(workers=0) as own:
        memory = SmallDisk(own, "64m")
        try:
            memory.fill()
            in_it = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /dev/shm && exec "$@"', memory.path]
            for name in ("w0", "w1"):
                own.start_worker(name, prefix=in_it)
            own.await_workers(2)
            job = own.submit(MODEL, **settings(own, own.path / "out", max_restarts=1, on_loss="wait"))

            def waits():
                at = own.job(job)
                assert at["state"] != "failed", at["message"]
                return at["state"] == "pending" and "/dev/shm is full: 0 B of 64 MiB are free" in at["message"]

            wait_for(waits, "a job that says that there is no shared memory")
            memory.free()
            wait_for(lambda: own.job(job)["state"] == "running", "a job that runs")
            assert own.job(job)["restarts"] == 0
            own.cancel_all()
        finally:
            memory.close()


def test_data_that_shrinks_fails_the_job_by_name(system):
    data = system.path / "shrinks.safetensors"
    whole = (MODELS / f"{MODEL}.data.safetensors").read_bytes()
    data.write_bytes(whole)
    out = system.path / "shrinks"
    job = system.submit(MODEL, **settings(system, out, data=data, checkpoint_every=20))
    wait_for(lambda: system.job(job)["checkpoint_step"] > 0, "a checkpoint")
    os.truncate(data, 4096)
    ended = system.await_end(job)
    assert ended["state"] == "failed"
    assert "\n" not in ended["message"]
    for part in ("worker w", "device ", "step ", str(data), f"{len(whole)} bytes when it was opened"):
        assert part in ended["message"], ended["message"]
    data.write_bytes(whole)
    newest = newest_checkpoint(out)
    assert stagewright.read_checkpoint(newest).step >= ended["checkpoint_step"]
    assert_resumes(system, newest, data=data)


def failed(system, **changes) -> str:
    """The one message of a job that must fail, and soon: of `submit` where it sees the files as they are."""
    flags = settings(system, system.path / "failed", steps=5) | changes
    result = system.cli(*system.submit_flags(MODEL, **flags), "--watch", "-o", "json")
    if result.returncode == 1:
        assert result.stderr.startswith("stagewright: ")
        assert result.stderr.count("\n") == 1
        return result.stderr
    ended = json.loads(result.stdout)
    assert ended["state"] == "failed"
    assert "\n" not in ended["message"]
    assert ended["message"].startswith("worker w"), ended["message"]
    return ended["message"]


@pytest.fixture
def shards(system):
    """The data in two files."""
    directory = system.path / "shards"
    directory.mkdir()
    tensors = load_file(MODELS / f"{MODEL}.data.safetensors")
    for i, part in enumerate((slice(0, 40), slice(40, None))):
        save_file({name: tensor[part].contiguous() for name, tensor in tensors.items()}, directory / f"{i}.safetensors")
    yield directory
    shutil.rmtree(directory)


def test_shards_that_can_be_read_train(system, shards):
    ended = system.train(MODEL, **settings(system, system.path / "sharded", steps=5, data=shards))
    assert ended["state"] == "succeeded", ended["message"]


def test_a_truncated_shard_is_named(system, shards):
    file = shards / "1.safetensors"
    os.truncate(file, file.stat().st_size - 1)
    assert f"{file}: " in failed(system, data=shards)
    os.truncate(file, 3)
    assert f"{file}: not a safetensors file" in failed(system, data=shards)
    os.truncate(file, 0)
    assert f"{file}: not a safetensors file" in failed(system, data=shards)


def test_a_directory_that_stands_for_a_shard_is_named(system, shards):
    file = shards / "1.safetensors"
    file.unlink()
    file.mkdir()
    assert f"{file}: not a regular file" in failed(system, data=shards)


def test_a_shard_without_permission_is_named(system, shards):
    if os.geteuid() == 0 and not shutil.which("setpriv"):
        pytest.skip("root may read everything, and setpriv is not installed")
    file = shards / "1.safetensors"
    file.chmod(0)
    assert f"{file}: Permission denied" in failed(system, data=shards)


def test_a_shard_of_another_shape_is_named(system, shards):
    file = shards / "1.safetensors"
    tensors = load_file(file)
    name = next(name for name, tensor in tensors.items() if tensor.dtype == torch.float64)
    good = tensors[name]
    save_file(tensors | {name: good.float()}, file)
    assert f'{file}: tensor "{name}" is float32[' in failed(system, data=shards)
    save_file(tensors | {name: good[:, :-1].contiguous()}, file)
    message = failed(system, data=shards)
    assert f'{file}: tensor "{name}" is float64[{good.shape[0]}, {good.shape[1] - 1}]' in message
    assert f"the graph wants float64[samples, {good.shape[1]}]" in message
    save_file(tensors | {name: good[:-3].contiguous()}, file)
    message = failed(system, data=shards)
    assert f"{good.shape[0]} samples" in message
    assert f"{good.shape[0] - 3}" in message


def test_a_worker_killed_while_it_saves_leaves_the_last_checkpoint(system):
    """Not at a chosen moment, so several times."""
    for attempt in range(3):
        out = system.path / f"killed-{attempt}"
        job = system.submit(MODEL, **settings(system, out, checkpoint_every=2))
        wait_for(lambda job=job: system.job(job)["checkpoint_step"] > 20, "checkpoints")
        system.stop(system.workers["w1"], signal.SIGKILL)
        ended = system.await_end(job)
        system.start_worker("w1", prefix=BOUND_BY_PERMISSIONS if shutil.which("setpriv") else [])
        system.await_workers(2)
        # Who fails three times is kept from jobs for a while.
        assert system.cli("workers", "uncordon", "w1").returncode == 0
        assert ended["state"] == "failed"
        newest = newest_checkpoint(out)
        assert stagewright.read_checkpoint(newest).step >= ended["checkpoint_step"]
    assert_resumes(system, newest)
