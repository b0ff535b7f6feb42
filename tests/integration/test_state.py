"""What becomes of the planner's state: on a full disk, damaged, copied and put back."""

import os
import resource
import signal
import subprocess

import pytest
from processes import BIN, Processes, wait_for

UNLIMITED = resource.RLIM_INFINITY
LONG = 1_000_000  # Steps of a job that does not end by itself.


@pytest.fixture
def system():
    with Processes(workers=2) as running:
        yield running


def state(system, command, *arguments):
    return subprocess.run(
        [BIN / "stagewright-planner", "state", command, "--state", system.path / "state.db", *arguments],
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def fill_disk(system):
    """As with a full disk: the planner's files cannot grow any more."""
    largest = max(os.path.getsize(f) for f in system.path.glob("state.db*"))
    resource.prlimit(system.planner.pid, resource.RLIMIT_FSIZE, (largest, UNLIMITED))


def make_room(system):
    resource.prlimit(system.planner.pid, resource.RLIMIT_FSIZE, (UNLIMITED, UNLIMITED))


def restart(system):
    system.planner.kill()
    system.planner.wait()
    system.start_planner()


def test_what_is_seen_on_a_full_disk_is_what_is_stored(system):
    first = system.submit("chain_f32", devices=2, steps=5)
    assert system.await_end(first)["state"] == "succeeded"
    running = system.submit("chain_f32", devices=2, stages=2, steps=LONG, out=system.path / "out-2")
    system.await_step(running, 5)
    fill_disk(system)
    refused = system.cli(*system.submit_flags("chain_f32", steps=5, out=system.path / "out-3"))
    assert refused.returncode == 1
    assert "state.db" in refused.stderr
    system.await_step(running, 50)  # Steps go on.
    cancelled = system.cli("cancel", running)
    assert cancelled.returncode == 1
    assert "can be written again" in cancelled.stderr
    assert system.job(running)["state"] == "running"
    assert system.cli("cancel", running).returncode == 1
    make_room(system)
    wait_for(lambda: system.job(running)["state"] == "cancelled", "the cancellation")
    seen = system.json("jobs")["jobs"]
    restart(system)
    after = system.json("jobs")["jobs"]
    assert [(job["name"], job["state"]) for job in after] == [(job["name"], job["state"]) for job in seen]
    assert [job["name"] for job in after] == [running, first]


def test_a_full_disk_and_a_killed_planner_lose_no_job(system):
    job = system.submit("chain_f32", devices=2, stages=2, steps=LONG)
    system.await_step(job, 5)
    fill_disk(system)
    refused = system.cli(*system.submit_flags("chain_f32", steps=5, out=system.path / "out-2"))
    assert refused.returncode == 1
    restart(system)  # Without the limit, as after somebody has made room.
    system.await_step(job, 10)
    assert [(one["name"], one["restarts"]) for one in system.json("jobs")["jobs"]] == [(job, 0)]
    assert system.cli("cancel", job).returncode == 0


def test_a_state_is_checked_backed_up_and_restored(system):
    first = system.submit("chain_f32", devices=2, steps=5)
    assert system.await_end(first)["state"] == "succeeded"
    good = state(system, "check")
    assert (good.returncode, good.stdout) == (0, f"{system.path}/state.db: good, 1 jobs\n")
    copy = system.path / "copy.db"
    assert state(system, "backup", "--out", copy).returncode == 0, "while the planner runs"
    held = state(system, "restore", "--from", copy)
    assert held.returncode == 1
    assert "in use" in held.stderr
    second = system.submit("chain_f32", devices=2, steps=5, out=system.path / "out-2")
    assert system.await_end(second)["state"] == "succeeded"
    assert system.stop(system.planner, signal.SIGTERM) == 0
    refused = state(system, "restore", "--from", copy)
    assert refused.returncode == 1
    assert "other contents (2 jobs up to jobs/2)" in refused.stderr
    assert state(system, "restore", "--from", copy, "--overwrite").returncode == 0
    system.start_planner()
    assert [job["name"] for job in system.json("jobs")["jobs"]] == [first]


def test_the_state_is_that_of_the_planners_settings(tmp_path):
    def check(*arguments, **variables):
        names = {f"STAGEWRIGHT_PLANNER_{name.upper()}": str(value) for name, value in variables.items()}
        command = [BIN / "stagewright-planner", *arguments[:-1], "state", "check", *arguments[-1]]
        result = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path, env=os.environ | names)
        assert result.returncode == 1
        return result.stderr

    file, other = tmp_path / "mine.db", tmp_path / "other.db"
    (tmp_path / "planner.yaml").write_text(f"state: {file}\n")
    assert str(file) in check((), state=file)
    assert str(file) in check((), store=f"sqlite:{file}")
    assert str(file) in check((), config=tmp_path / "planner.yaml")
    assert str(file) in check("--state", file, (), state=other)
    assert str(file) in check(("--state", file), state=other)
    assert "stagewright.db" in check(())
    assert "--store is no file" in check((), store="etcd://127.0.0.1:1/a")
    assert "planning-threads" in check((), planning_threads="many"), "settings are checked first"


def test_one_damaged_job_is_set_aside(system):
    names = [system.submit("chain_f32", steps=5, name=f"job-{i}-of-mine", out=system.path / f"out-{i}")
             for i in range(3)]  # fmt: skip
    for name in names:
        assert system.await_end(name)["state"] == "succeeded"
    assert system.stop(system.planner, signal.SIGTERM) == 0
    path = system.path / "state.db"
    contents = path.read_bytes()
    assert b"job-1-of-mine" in contents
    path.write_bytes(contents.replace(b"job-1-of-mine", b"job-1-OF-mine"))
    checked = state(system, "check")
    assert checked.returncode == 1
    assert "jobs/2 (entry jobs/000000000002): not as it was written" in checked.stdout
    system.start_planner()
    assert [job["name"] for job in system.json("jobs")["jobs"]] == ["jobs/3", "jobs/1"]
    assert system.submit("chain_f32", steps=5, out=system.path / "out-3") == "jobs/4"


def test_an_emptied_state_is_refused(system):
    system.submit("chain_f32", steps=5)
    assert system.stop(system.planner, signal.SIGTERM) == 0
    path = system.path / "state.db"
    path.write_bytes(b"")
    command = [BIN / "stagewright-planner", "--listen", "127.0.0.1:0", "--metrics-listen", "", "--state", path]
    refused = subprocess.run(command, capture_output=True, text=True, timeout=30)
    assert refused.returncode == 1
    assert "the file is empty" in refused.stderr
    assert path.stat().st_size == 0
    path.unlink()
    system.start_planner()
