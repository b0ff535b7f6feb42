"""The short form of scripts/fault.sh planner: a few kills, and the same check."""

import planner_kills


def test_no_write_is_lost_or_done_twice():
    found = planner_kills.run(kills=6, seed=7)
    assert found["wrong"] == []
    assert sum(found["ended"].values()) > 0, found
