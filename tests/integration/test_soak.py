"""The short form of scripts/soak.sh memory: a job that saves often, watched from outside."""

import soak
from processes import Processes

ALLOWED = 0.03


def test_neither_memory_nor_open_files_grow():
    with Processes(workers=3, measured=True) as system:
        # In so few steps, the memory that a thread's allocator takes once weighs more than a hundredth.
        growth = soak.soak(system, steps=160, interval=0.05, allowed=ALLOWED, checkpoint_every=10)
    assert {found.process for found in growth} == {"planner", "w0", "w1", "w2"}
    assert not soak.violations(growth, ALLOWED), growth
