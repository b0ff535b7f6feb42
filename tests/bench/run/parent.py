"""Processes that end with the one that started them."""

import ctypes
import os
import signal

SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2).


def end_with(parent: int) -> None:
    """However the parent ends, and even if this process is stopped then."""
    ctypes.CDLL(None).prctl(SET_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit("the parent has ended")
