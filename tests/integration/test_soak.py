"""The short form of scripts/soak.sh memory: a job that saves often, watched from outside."""

import soak
from processes import Processes


def test_neither_memory_nor_open_files_grow():
    with Processes(workers=3, measured=True) as system:
        growth = soak.soak(system, steps=160, interval=0.05, checkpoint_every=10)
    assert {found.process for found in growth} == {"planner", "w0", "w1", "w2"}
    # In so few steps, the memory that a thread's allocator takes once weighs more than a hundredth.
    assert not soak.violations(growth, allowed=0.03), growth
