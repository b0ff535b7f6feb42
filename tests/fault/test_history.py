"""The check of histories finds what is wrong with one, and nothing in one that is right."""

import pytest
from history import NEVER, Call, History
from job_model import Seen, wrong_in, wrong_in_watch


def job(state="PENDING", version=1, name="jobs/1", step=0):
    return Seen(name, state, version, step)


def wrong(*calls):
    """In calls of (subject, kind, begin, end, answer), with None for an end that nobody knows."""
    history = History()
    for subject, kind, begin, end, answer in calls:
        history.calls.append(Call(subject, kind, None, begin, NEVER if end is None else end, answer))
    return wrong_in(history)


def submitted(subject="a", begin=0, end=1, **shown):
    return (subject, "submit", begin, end, job(**shown))


RIGHT = {
    "a life": [submitted(), ("a", "look", 2, 3, job("RUNNING", 5)), ("a", "look", 4, 5, job("SUCCEEDED", 9))],
    "a repeated submit": [submitted(), submitted(begin=2, end=3, state="RUNNING", version=4)],
    "an unanswered submit that was done": [("a", "submit", 0, None, None), submitted(begin=2, end=3)],
    "one that was not": [("a", "submit", 0, None, None), ("a", "look", 4, 5, "NOT_FOUND")],
    "one that is done later": [("a", "submit", 0, None, None), ("a", "look", 4, 5, "NOT_FOUND"), ("a", "look", 6, 7, job())],
    "an unanswered submit that was done before it ended": [("a", "submit", 0, 2, None), ("a", "look", 4, 5, job())],
    "looks at once, in either order": [submitted(), ("a", "look", 2, 9, job("RUNNING", 7)), ("a", "look", 3, 4, job(version=3))],
    "a cancel": [submitted(), ("a", "cancel", 2, 3, job("CANCELLED", 2)), ("a", "look", 4, 5, job("CANCELLED", 2))],
    "a cancel too late": [submitted(), ("a", "cancel", 2, 3, "FAILED_PRECONDITION"), ("a", "look", 4, 5, job("FAILED", 2))],
    "a delete": [submitted(), ("a", "cancel", 2, 3, job("CANCELLED", 2)), ("a", "delete", 4, 5, "OK"),
                 ("a", "look", 6, 7, "NOT_FOUND")],
    "an unanswered delete": [submitted(), ("a", "cancel", 2, 3, job("CANCELLED", 2)), ("a", "delete", 4, None, None),
                             ("a", "delete", 6, 7, "NOT_FOUND")],
}  # fmt: skip

WRONG = {
    "a lost job": [submitted(), ("a", "look", 2, 3, "NOT_FOUND")],
    "two jobs of one request": [submitted(), submitted(begin=2, end=3, name="jobs/2")],
    "one name for two jobs": [submitted(), submitted("b")],
    "a version that goes back": [submitted(version=3), ("a", "look", 2, 3, job(version=2))],
    "two contents of a version": [submitted(), ("a", "look", 2, 3, job("RUNNING", 1))],
    "success after a cancel": [submitted(), ("a", "cancel", 2, 3, job("CANCELLED", 2)), ("a", "look", 4, 5, job("SUCCEEDED", 4))],
    "life after a cancel": [submitted(), ("a", "cancel", 2, 3, job("CANCELLED", 2)), ("a", "look", 4, 5, job("RUNNING", 4))],
    "two ends": [submitted(), ("a", "look", 2, 3, job("FAILED", 2)), ("a", "look", 4, 5, job("SUCCEEDED", 4))],
    "a job back from the dead": [submitted(), ("a", "look", 2, 3, job("FAILED", 2)), ("a", "delete", 4, 5, "OK"),
                                 ("a", "look", 6, 7, job("FAILED", 2))],
    "an unanswered submit after it ended": [("a", "submit", 0, 3, None), ("a", "look", 4, 5, "NOT_FOUND"), ("a", "look", 6, 7, job())],
    "a refusal of what is right": [("a", "submit", 0, 1, "FAILED_PRECONDITION")],
    "a delete of what runs": [submitted(), ("a", "delete", 2, 3, "OK"), ("a", "look", 4, 5, job(version=4))],
    "a job before its submit": [("a", "look", 0, 1, job()), submitted(begin=2, end=3)],
}  # fmt: skip


@pytest.mark.parametrize("case", RIGHT, ids=lambda case: case.replace(" ", "-"))
def test_nothing_is_found_in_a_right_history(case):
    assert wrong(*RIGHT[case]) == []


@pytest.mark.parametrize("case", WRONG, ids=lambda case: case.replace(" ", "-"))
def test_what_is_wrong_is_found(case):
    assert wrong(*WRONG[case])


def worker(*calls):
    history = History()
    for at, (kind, argument, answer) in enumerate(calls):
        end = NEVER if answer is None else at + 0.5
        history.calls.append(Call("worker w0", kind, argument, at, end, answer))
    return wrong_in(history)


def test_what_was_said_of_a_worker_holds():
    cordoned = ("set", "CORDONED", "OK")
    assert worker(("look", None, "OPEN"), cordoned, ("look", None, "CORDONED")) == []
    assert worker(cordoned, ("look", None, "OPEN"))
    assert worker(("set", "CORDONED", "NOT_FOUND"), ("look", None, "OPEN")) == []
    assert worker(("set", "CORDONED", None), ("look", None, "OPEN"), ("look", None, "CORDONED")) == []
    assert worker(("set", "CORDONED", None), ("look", None, "CORDONED"), ("look", None, "OPEN"))


def test_versions_of_a_watch_grow():
    assert wrong_in_watch(0, [job(), job("RUNNING", 4), job("SUCCEEDED", 5)]) is None
    assert wrong_in_watch(1, [job()])
    assert wrong_in_watch(0, [job(version=3), job("RUNNING", 2)])
    assert wrong_in_watch(0, [job("FAILED"), job("FAILED", 2)])
