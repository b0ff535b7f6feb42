"""The short form of scripts/fault.sh points: every tenth time that planner and worker come to a durable step; leaders, the first."""

import failpoints


def test_who_dies_at_a_durable_step_has_lost_nothing():
    reached = failpoints.walk(stride=10)
    assert set(reached) == {*failpoints.PLANNERS, *failpoints.WORKERS}
    assert all(count > 0 for count in reached.values()), reached


def test_who_leads_and_dies_at_a_durable_step_has_lost_nothing():
    assert failpoints.walk_leaders(times=1) == dict.fromkeys(failpoints.LEADERS, 1)
