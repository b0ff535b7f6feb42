"""The short form of scripts/fault.sh leader: each kind of fault once, and the same check."""

import leader_faults


def test_no_write_is_lost_or_done_twice():
    found = leader_faults.run(faults=len(leader_faults.KINDS), seed=3)
    assert found["wrong"] == []
    assert set(found["gaps"]) == set(leader_faults.KINDS)
