"""How slow this machine is for a program now, as others have its cores."""

import contextlib
import time

SAMPLE = 0.2  # Seconds of the processor.


def slowness() -> float:
    """How many times as long as alone a program takes; 1 on a machine with nothing else to do."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < SAMPLE:
        pass
    return max(1.0, (time.monotonic() - begun) / SAMPLE)


@contextlib.contextmanager
def within(seconds: float):
    """What is done in it takes no longer on a machine of its own, and as much longer as others slow this one."""
    before, begun = slowness(), time.monotonic()
    yield
    took = time.monotonic() - begun
    assert took < seconds * max(before, slowness()), f"{took:.1f} s instead of {seconds}"
