"""Short forms of scripts/load.sh: what is counted must be right, and times are no matter."""

import many_submits
import many_watchers
import many_workers
import plan_rate


def test_workers_that_say_that_they_are_there_stay():
    found = many_workers.run(workers=40, seconds=2)
    assert (found["workers"], found["lost"]) == (40, 0)


def test_watchers_that_read_are_told_and_nobody_is_lost():
    found = many_watchers.run(watchers=60, calls=20)
    assert found["read"] > 0 and found["lost"] == 0


def test_submits_that_come_at_once_are_accepted():
    found = many_submits.run(submits=40, plans=8)
    assert (found["accepted"], found["refused"]) == (40, [])


def test_a_plan_that_is_known_is_answered_from_memory():
    found = plan_rate.run(calls=40, callers=4, rounds=1)
    assert found["cached"] and found["operators"] == plan_rate.OPERATORS, found
