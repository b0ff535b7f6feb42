"""Two trainings that take turns on one machine, so that a change of its speed meets both.

Each runs as processes of its own from the first step to the last; whoever does not have the turn is stopped by SIGSTOP, as
a whole. A step that a stop falls into is as long as the stop, and tells where a turn ended.
"""

import math
import os
import signal
import statistics
import time
from collections.abc import Iterable, Sequence


def take_turns(contestants: Sequence[Iterable[int]], seconds: float, count: int) -> None:
    """`count` turns of so many seconds for each, in turn; then all go on. Nobody has a turn for as long before the first one
    and after the last, so that every turn lies between two stops. A contestant is its processes, or -1 times its groups of
    processes."""

    def tell(contestant: Iterable[int], number: signal.Signals) -> None:
        for process in contestant:
            os.kill(process, number)

    for contestant in contestants:
        tell(contestant, signal.SIGSTOP)
    time.sleep(seconds)
    for _ in range(count):
        for contestant in contestants:
            tell(contestant, signal.SIGCONT)
            time.sleep(seconds)
            tell(contestant, signal.SIGSTOP)
    time.sleep(seconds)
    for contestant in contestants:
        tell(contestant, signal.SIGCONT)


def turns_of(steps: Sequence[float], pause: float) -> list[float]:
    """The median of each turn's steps. Those of a `pause` and more were stopped, as others end within a turn, which is as
    long. Without the steps before the first stop and after the last. All in seconds."""
    turns, current = [], None
    for seconds in steps:
        if seconds < pause:
            if current is not None:
                current.append(seconds)
            continue
        if current:
            turns.append(statistics.median(current))
        current = []
    return turns


def median_with_interval(values: Sequence[float], confidence: float = 0.95) -> tuple[float, float, float]:
    """The median, and the order statistics around it that hold the true one with so much confidence, whatever the values'
    distribution. At least six values."""
    ordered = sorted(values)
    n = len(ordered)
    tail, low = 0.0, 0
    while tail + math.comb(n, low) / 2**n <= (1 - confidence) / 2:
        tail += math.comb(n, low) / 2**n
        low += 1
    if low == 0:
        raise ValueError(f"{n} values are too few for an interval")
    return statistics.median(ordered), ordered[low - 1], ordered[n - low]
