"""What jobs and workers are to clients, as a sequential model, and the check of a history against it."""

import collections
from collections.abc import Iterable
from typing import NamedTuple

from history import Call, History, first_unexplained

from stagewright.proto import event_pb, jobs_pb

ENDED = ("SUCCEEDED", "FAILED", "CANCELLED")


class Seen(NamedTuple):
    """A job in an answer."""

    name: str
    state: str  # As the planner says.
    version: int
    step: int

    @property
    def phase(self) -> str:
        return self.state if self.state in ENDED else "ACTIVE"


def seen(job: jobs_pb.Job) -> Seen:
    state = event_pb.JobState.Name(job.state).removeprefix("JOB_STATE_")
    return Seen(job.name, state, job.version, job.metrics.step)


class JobState(NamedTuple):
    phase: str = "ABSENT"  # ABSENT, ACTIVE, one of ENDED, GONE.
    version: int = 0  # The newest that anybody saw.


def step_of_job(state: JobState, call: Call) -> Iterable[JobState]:
    """Nobody asks for a job's end by itself: an active one may have ended at any moment."""
    phases = ("ACTIVE", "SUCCEEDED", "FAILED") if state.phase == "ACTIVE" else (state.phase,)
    for phase in phases:
        yield from _effect(state._replace(phase=phase), call)


def _effect(state: JobState, call: Call) -> Iterable[JobState]:
    answer = call.answer
    there = state.phase not in ("ABSENT", "GONE")
    if answer == "NOT_FOUND":
        if not there:
            yield state
    elif call.kind == "submit" and state.phase == "ABSENT":
        yield from _shown(JobState("ACTIVE", state.version), answer)
    elif call.kind == "cancel" and answer != "FAILED_PRECONDITION":
        if state.phase in ("ACTIVE", "CANCELLED"):
            yield from _shown(state._replace(phase="CANCELLED"), answer)
    elif call.kind == "cancel":
        if state.phase in ("SUCCEEDED", "FAILED"):
            yield state
    elif call.kind == "delete" and answer == "FAILED_PRECONDITION":
        if state.phase == "ACTIVE":
            yield state
    elif call.kind == "delete":
        if state.phase in ENDED:
            yield state._replace(phase="GONE")
    elif there:  # A submit that is repeated, or a look.
        yield from _shown(state, answer)


def _shown(state: JobState, answer: Seen | str | None) -> Iterable[JobState]:
    if answer is None:
        yield state
    elif isinstance(answer, Seen) and answer.phase == state.phase and answer.version >= state.version:
        yield state._replace(version=answer.version)


def step_of_worker(state: str, call: Call) -> Iterable[str]:
    """A register of what an operator said of it; a worker that is not connected says nothing."""
    if call.kind == "look":
        if call.answer == state:
            yield state
        return
    yield state if call.answer == "NOT_FOUND" else call.argument


def wrong_in(history: History) -> list[str]:
    """A line for each job or worker whose calls no order explains, and each name that stands for two jobs."""
    wrong = []
    jobs: dict[str, set[str]] = collections.defaultdict(set)
    shown: dict[tuple[str, int], set[Seen]] = collections.defaultdict(set)
    for subject, calls in sorted(history.by_subject().items()):
        is_worker = subject.startswith("worker ")
        start, step = ("OPEN", step_of_worker) if is_worker else (JobState(), step_of_job)
        unexplained = first_unexplained(calls, start, step)
        if unexplained is not None:
            before = [call for call in calls if call.begin <= unexplained.end][-12:]
            wrong.append("\n  ".join([f"{subject}: no order explains {unexplained}", *map(str, before)]))
        for call in calls:
            if isinstance(call.answer, Seen):
                jobs[subject].add(call.answer.name)
                shown[call.answer.name, call.answer.version].add(call.answer)
    wrong += [f"{subject} is {sorted(names)}" for subject, names in jobs.items() if len(names) > 1]
    owners = collections.Counter(name for names in jobs.values() for name in names)
    wrong += [f"{name} is {count} jobs" for name, count in owners.items() if count > 1]
    wrong += [f"one version is {sorted(one)}" for one in shown.values() if len(one) > 1]
    return wrong


def wrong_in_watch(after: int, messages: list[Seen]) -> str | None:
    """Versions of a stream only grow, and nothing comes after the end."""
    versions = [after, *(job.version for job in messages)]
    if any(a >= b for a, b in zip(versions, versions[1:], strict=False)):
        return f"a watch from version {after} went back: {messages}"
    if any(job.phase != "ACTIVE" for job in messages[:-1]):
        return f"a watch went on after the end: {messages}"
    return None
