"""Calls of a service as they were made and answered, and whether some order of them explains all answers."""

import dataclasses
import threading
import time
from collections.abc import Callable, Hashable, Iterable

NEVER = float("inf")


@dataclasses.dataclass(frozen=True)
class Call:
    subject: str  # What it is about: a job, a worker. Subjects are explained each by itself.
    kind: str
    argument: Hashable
    begin: float
    end: float  # NEVER: nobody knows; it has its effect at any time after its beginning.
    answer: Hashable  # None where none came: then it may have had its effect or not.


class History:
    """Thread-safe. `late`: a call without an answer may have its effect after that was known, because others than who is
    asked carry it out."""

    def __init__(self, late: bool = False):
        self.lock = threading.Lock()
        self.late = late
        self.calls: list[Call] = []

    def add(self, subject: str, kind: str, argument: Hashable, begin: float, answer: Hashable) -> None:
        end = NEVER if answer is None and self.late else time.monotonic()
        with self.lock:
            self.calls.append(Call(subject, kind, argument, begin, end, answer))

    def by_subject(self) -> dict[str, list[Call]]:
        found: dict[str, list[Call]] = {}
        with self.lock:
            for call in self.calls:
                found.setdefault(call.subject, []).append(call)
        return found


# The states that a call may lead to from one, none where its answer cannot be.
Step = Callable[[Hashable, Call], Iterable[Hashable]]


def first_unexplained(calls: list[Call], start: Hashable, step: Step) -> Call | None:
    """The first call whose answer no order explains in which each call has its effect at one moment between its
    beginning and its end. Follows all such orders at once, each as far as the next answer needs (Lowe, "Testing for
    linearizability", 2017): a configuration is a state with the calls that are done and have not ended.
    """
    moments = [(call.begin, 0, i) for i, call in enumerate(calls)]
    moments += [(call.end, 1, i) for i, call in enumerate(calls) if call.end < NEVER]
    open_calls: list[int] = []  # By their beginning.
    configurations = {(frozenset(), start)}
    for _, is_end, i in sorted(moments):
        if not is_end:
            open_calls.append(i)
            continue
        reached = _extended(configurations, i, open_calls, calls, step)
        may_be_undone = calls[i].answer is None
        configurations = {(done - {i}, state) for done, state in reached if may_be_undone or i in done}
        open_calls.remove(i)
        if not configurations:
            return calls[i]
    return None


def _extended(configurations: set, wanted: int, open_calls: list[int], calls: list[Call], step: Step) -> set:
    """All configurations that can be reached, none further than until `wanted` is done."""
    reached, pending = set(configurations), list(configurations)
    while pending:
        done, state = pending.pop()
        if wanted in done:
            continue
        for i in _next(done, open_calls, calls):
            for after in step(state, calls[i]):
                configuration = (done | {i}, after)
                # What nobody answered and changes nothing need not be done.
                if configuration not in reached and (calls[i].answer is not None or after != state):
                    reached.add(configuration)
                    pending.append(configuration)
    return reached


def _next(done: frozenset, open_calls: list[int], calls: list[Call]) -> Iterable[int]:
    """Of equal calls that nobody will answer, the first."""
    equal = set()
    for i in open_calls:
        if i in done:
            continue
        if calls[i].end == NEVER:
            if (calls[i].kind, calls[i].argument) in equal:
                continue
            equal.add((calls[i].kind, calls[i].argument))
        yield i
