"""`stagewright up`: planner and workers that live and die with it."""

import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest

BIN = pathlib.Path(os.environ["STAGEWRIGHT_BIN"])
CLI = BIN / "stagewright"
PATIENCE = 120


def up(*arguments) -> subprocess.CompletedProcess:
    return subprocess.run([CLI, "up", *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE)


def children(pid: int) -> dict[int, str]:
    """Process id -> command line of each child of a process."""
    found = {}
    for text in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        found[int(text)] = pathlib.Path(f"/proc/{text}/cmdline").read_text().replace("\0", " ")
    return found


def gone(pids) -> bool:
    """Also what waits to be reaped is gone."""

    def state(pid):
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        except FileNotFoundError:
            return "Z"

    deadline = time.monotonic() + PATIENCE
    while any(state(pid) != "Z" for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


class Running:
    """`up` without a command: everything is up once this exists."""

    def __init__(self, state: pathlib.Path, *arguments):
        command = [CLI, "up", "--workers", "2", "--listen", "127.0.0.1:0", "--state", state, *arguments]
        self.state = state
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        line = self.process.stdout.readline()
        self.address = re.fullmatch(r"export STAGEWRIGHT_PLANNER=(127\.0\.0\.1:\d+)\n", line).group(1)
        self.children = children(self.process.pid)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()

    def child(self, words: str) -> int:
        return next(pid for pid, command in self.children.items() if words in command)

    def end(self, how: signal.Signals) -> tuple[int, str]:
        """(exit status, standard error)."""
        self.process.send_signal(how)
        _, error = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, error


def test_a_command_runs_with_all_workers_registered_and_its_status_is_the_result():
    result = up("--workers", 3, "--", "sh", "-c", "stagewright workers -o json && exit 7")
    assert result.returncode == 7, result.stderr
    workers = json.loads(result.stdout)["workers"]
    assert sorted(worker["name"] for worker in workers) == ["worker0", "worker1", "worker2"]
    assert result.stderr.startswith("stagewright: a planner and 3 workers at 127.0.0.1:")


def test_words_after_the_dashes_are_the_commands_own():
    script = "import sys; print(sys.argv[1:])"
    result = up("--workers", 1, "--", sys.executable, "-c", script, "submit", "--", "--state")
    assert result.stdout == "['submit', '--', '--state']\n", result.stderr


def test_a_command_that_is_killed_or_does_not_exist():
    assert up("--workers", 1, "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    result = up("--workers", 1, "--", "no-such-program")
    assert result.returncode == 1
    assert result.stderr.endswith("stagewright: cannot start no-such-program: No such file or directory\n")


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_workers_first_and_leaves_state_and_logs(tmp_path, how):
    with Running(tmp_path / "state") as running:
        assert len(running.children) == 3
        listed = subprocess.run(
            [CLI, "--planner-address", running.address, "workers"], capture_output=True, text=True, timeout=PATIENCE
        )
        assert "worker1" in listed.stdout, listed.stderr
        code, error = running.end(how)
        assert code == 0, error
        assert gone(running.children)
    assert (tmp_path / "state" / "state.db").exists()
    for worker in ("worker0", "worker1"):
        log = (tmp_path / "state" / f"{worker}.log").read_text()
        assert log.endswith("stagewright-worker: leaving\n"), log
        assert "trying again" not in log, "the planner ended before its workers"
    assert (tmp_path / "state" / "planner.log").read_text().endswith("shutting down\n")


def read_terminal(terminal: int, until: str) -> str:
    """What is written there, up to and with some words, or to the end."""
    text = ""
    while until not in text:
        ready, _, _ = select.select([terminal], [], [], PATIENCE)
        assert ready, text
        try:
            text += os.read(terminal, 4096).decode()
        except OSError:  # How Linux says that nobody has the terminal any more.
            break
    return text


def test_ctrl_c_reaches_the_command_once_and_the_workers_last(tmp_path):
    script = (
        "import signal, sys, time\n"
        "times = []\n"
        "signal.signal(signal.SIGINT, lambda *_: (times.append(1), print('asked', flush=True)))\n"
        "print('ready', flush=True)\n"
        "while not times: time.sleep(0.01)\n"
        "time.sleep(2)  # In which it may be asked again.\n"
        "sys.exit(3)\n"
    )
    process, terminal = pty.fork()
    if process == 0:
        os.execv(CLI, [CLI, "up", "--workers", "1", "--state", tmp_path, "--", sys.executable, "-c", script])
    read_terminal(terminal, until="ready")
    os.write(terminal, b"\x03")
    text = read_terminal(terminal, until="no more")
    _, status = os.waitpid(process, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 3, text
    assert text.count("asked") == 1
    assert "trying again" not in (tmp_path / "worker0.log").read_text()


def test_a_signal_goes_on_to_the_command_and_a_second_one_kills_it(tmp_path):
    script = "trap 'echo asked' TERM; echo ready; while true; do sleep 0.1; done"
    command = [CLI, "up", "--workers", "1", "--", "bash", "-c", script]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    process.terminate()
    assert process.stdout.readline() == "asked\n"
    process.terminate()
    assert process.wait(PATIENCE) == 128 + signal.SIGKILL
    process.stdout.close()


def test_a_worker_that_dies_ends_all_and_is_named(tmp_path):
    with Running(tmp_path) as running:
        os.kill(running.child("--name worker1"), signal.SIGKILL)
        _, error = running.process.communicate(timeout=PATIENCE)
        assert running.process.returncode == 1
        assert "stagewright: worker1 was killed by signal 9 (Killed); the end of its log:\n" in error
        assert f"Z info stagewright-worker: registered with the planner at {running.address}\n" in error
        assert gone(running.children)


def test_a_worker_that_dies_ends_the_command():
    # The kernel keeps fifteen letters of a program's name.
    script = '''
        for child in $(cat /proc/$PPID/task/$PPID/children); do
          if [ "$(cat /proc/$child/comm)" = stagewright-wor ]; then kill -9 $child; fi
        done
        exec sleep 500
    '''
    result = up("--workers", 1, "--", "sh", "-c", script)
    assert result.returncode == 1
    assert "worker0 was killed by signal 9" in result.stderr


def test_nothing_outlives_it_even_if_it_is_killed(tmp_path):
    with Running(tmp_path) as running:
        running.end(signal.SIGKILL)
        assert gone(running.children)


def test_the_planner_s_reason_is_told():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        result = up("--workers", 1, "--listen", address)
    assert result.returncode == 1
    assert "stagewright: the planner ended with exit status 1; the end of its log:\n" in result.stderr
    assert f"Z error stagewright-planner: cannot listen on {address}: is the port in use?\n" in result.stderr


def test_temporary_state_is_removed(tmp_path):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [CLI, "up", "--workers", "1", "--", "sh", "-c", 'ls "$TMPDIR"/*/planner.log']
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert result.returncode == 0, result.stderr
    assert result.stdout.startswith(f"{tmp_path}/stagewright-up-")
    assert not list(tmp_path.iterdir())


def test_programs_that_are_missing_are_named(tmp_path):
    shutil.copy(CLI, tmp_path / "stagewright")
    command = [tmp_path / "stagewright", "up", "--workers", "1"]
    result = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert result.returncode == 1
    assert result.stderr == (
        f"stagewright: stagewright-planner is not beside {tmp_path}/stagewright: build or install both in one folder\n"
    )


def test_usage():
    for arguments in [(), ("--workers", 0), ("--workers", 1, "--threads", 0)]:
        result = up(*arguments)
        assert result.returncode == 2
        assert (arguments[-2:] or ("--workers",))[0] in result.stderr
        assert result.stderr.count("\n") == 1
