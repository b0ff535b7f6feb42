"""How a job goes, in one line on standard error."""

import sys

from .jobs import Job

_BAR = 30


class ProgressLine:
    """Rewritten on a terminal and in a notebook; elsewhere a line whenever the state changes."""

    def __init__(self, out: object = None):
        self._out = out or sys.stderr
        self._rewrite = self._out.isatty() or "ipykernel" in sys.modules
        self._last = ""

    def show(self, job: Job) -> None:
        line = (
            progress_text(job) if self._rewrite else f"{job.name} {job.state}{f': {job.message}' * bool(job.message)}"
        )
        if line == self._last:
            return
        self._last = line
        self._out.write(f"\r\033[K{line}" if self._rewrite else f"{line}\n")
        self._out.flush()

    def end(self) -> None:
        if self._rewrite and self._last:
            self._out.write("\n")


def progress_text(job: Job) -> str:
    if job.total_steps == 0 or job.state != "running":
        return f"{job.name} {job.state}{f': {job.message}' * bool(job.message)}"
    filled = _BAR * min(job.step, job.total_steps) // job.total_steps
    loss = "" if job.loss is None else f"  loss {job.loss:.4f}"
    bar = "=" * filled + " " * (_BAR - filled)
    return f"{job.name} [{bar}] step {job.step}/{job.total_steps}{loss}  {job.step_seconds * 1e3:.3g} ms/step"
