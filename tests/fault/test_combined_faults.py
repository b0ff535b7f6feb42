"""The short form of scripts/fault.sh combined: all workers of a job die at once, and there is nobody to tell what they had."""

import random

import combined_faults


def test_a_job_whose_workers_all_die_goes_on_as_if_nothing_had_been(monkeypatch):
    monkeypatch.setattr(combined_faults, "STEPS", 300)
    with combined_faults.System(2) as system:
        case = combined_faults.Case(2, "kill all", "shrink", "sharded", "training")
        outcome = combined_faults.run(system, case, random.Random(1))
        combined_faults.check(system, outcome)
        combined_faults.check_all_are_of_use(system)
