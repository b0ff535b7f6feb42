"""`stagewright` as users run it, and a planner to talk to."""

import os
import pathlib
import re
import subprocess
import sys
import time

sys.path.append(str(pathlib.Path(__file__).parents[2] / "integration"))
from ports import free_ports  # noqa: E402

CLI = os.environ["STAGEWRIGHT_CLI"]
GRAPHS = pathlib.Path(__file__).parents[3] / "examples" / "graphs"
CASE_STUDY = GRAPHS / "case-study.swg"
NOBODY = "127.0.0.1:1"  # No planner listens there.
PATIENCE = 100  # Seconds: a machine may be busy.


def run(*arguments, planner=NOBODY) -> subprocess.CompletedProcess:
    environment = {**os.environ, "STAGEWRIGHT_PLANNER": planner}
    return subprocess.run(
        [CLI, *map(str, arguments)], capture_output=True, text=True, timeout=PATIENCE, env=environment
    )  # fmt: skip


def fails(code: int, *arguments, **options) -> str:
    """The one message of a command that must exit with `code`."""
    result = run(*arguments, **options)
    assert result.returncode == code, result.stderr + result.stdout
    assert result.stderr.startswith("stagewright: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def await_text(log: pathlib.Path, text: str, process: subprocess.Popen) -> None:
    """Of a process that lives until then."""
    deadline = time.monotonic() + PATIENCE
    while text not in log.read_text():
        assert time.monotonic() < deadline and process.poll() is None, log.read_text()
        time.sleep(0.05)


def free_address() -> str:
    """One at which a planner can be started again."""
    return f"127.0.0.1:{free_ports(1)[0]}"


class Planner:
    """A planner of its own; its log is a file, which never holds it up."""

    def __init__(self, folder: pathlib.Path, listen="127.0.0.1:0", *flags):
        command = [os.environ["STAGEWRIGHT_PLANNER_PROGRAM"], "--listen", listen, "--metrics-listen", "", *flags]
        command += ["--state", folder / "state.db"]
        self.log = folder / "planner.log"
        with open(self.log, "w") as log:
            self.process = subprocess.Popen(command, stderr=log)
        self.address = re.search(r"listening on ([^\s\"]+)", self.await_text("listening on ")).group(1)

    def await_text(self, text: str) -> str:
        await_text(self.log, text, self.process)
        return self.log.read_text()

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.terminate()
        assert self.process.wait(10) == 0
