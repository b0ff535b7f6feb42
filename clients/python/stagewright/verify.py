"""Compares a plan with a single device before anything is trained: `stagewright submit --verify-only`."""

import os
import shutil
import subprocess

from .errors import StagewrightError, VerificationError

_DIFFERS = 6  # Exit code of the command line (docs/cli.md).


def verify(
    graph: str | os.PathLike,
    *,
    weights: str | os.PathLike,
    data: str | os.PathLike,
    out: str | os.PathLike,
    mini_batch: int,
    lr: float,
    steps: int = 2,
    planner_address: str | None = None,
    **options,
) -> None:
    """Runs the first `steps` steps of the plan and of a single device on the workers and compares them.

    `options` are those of `stagewright submit`: `micro_batch=4` is --micro-batch 4, `no_shuffle=True` is --no-shuffle.
    Raises VerificationError, which names the first tensor that differs, if they compute different things, and
    StagewrightError if that could not be found out.
    """
    program = shutil.which("stagewright")
    if program is None:
        raise StagewrightError("there is no program 'stagewright' on the PATH")
    flags = dict(weights=weights, data=data, out=out, mini_batch=mini_batch, lr=lr, steps=steps, verify=steps)
    flags.update(options)
    command = [program, *([] if planner_address is None else ["--planner-address", planner_address])]
    command += ["submit", os.fspath(graph), "--verify-only", "-o", "json"]
    for name, value in flags.items():
        if value is not None and value is not False:
            command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode == 0:
        return
    message = result.stderr.strip().splitlines()[-1] if result.stderr.strip() else f"exit code {result.returncode}"
    error = VerificationError if result.returncode == _DIFFERS else StagewrightError
    raise error(message.removeprefix("stagewright: ").removeprefix("--verify: "))
