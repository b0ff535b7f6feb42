"""Deadlines, pauses and what is measured go by common/clock, whatever the machine's clock is set to. That clock says what
people read, and what is compared with what others read off theirs."""

import re

import tree

UNDER = ("common/", "planner_service/", "worker_daemon/", "clients/cli/")
WRONG = re.compile(
    r"absl::Now\(|system_clock::now|gettimeofday\(|CLOCK_REALTIME|(?<![\w:])time\((nullptr|NULL|0)\)"
    r"|\b(Await|LockWhen|Wait|WaitForNotification)With(Timeout|Deadline)\(")

# Where the machine's clock is right, and for what.
ALLOWED = {
    "clients/cli/jobs/logs_command.cc": "a date that a person names as so long ago",
    "clients/cli/service/doctor_command.cc": "how long ago dates are that the planner shows",
    "common/clock/steady_now.cc": "both clocks, told apart",
    "common/log/log.cc": "dates of lines",
    "planner_service/access/access.cc": "dates in tokens",
    "planner_service/jobs/job.cc": "dates of events",
    "planner_service/lifecycle/job_life.cc": "dates of jobs",
    "planner_service/lifecycle/job_manager.cc": "dates of events",
    "planner_service/lifecycle/job_queue.cc": "how long ago a job was submitted, by its stored date",
    "planner_service/lifecycle/measurements.cc": "the day of a profile",
    "planner_service/lifecycle/replanning.cc": "the day of a profile",
    "planner_service/lifecycle/run_reports.cc": "dates of checkpoints",
    "planner_service/links/link_prober.h": "numbers that no planner before gave",
    "planner_service/profiles/profiling.h": "numbers that no planner before gave",
    "planner_service/records/job_records.cc": "dates of jobs",
    "planner_service/service/door.cc": "dates of lines",
    "planner_service/service/job_metrics.cc": "dates that are shown, and how long ago a job was submitted",
    "planner_service/service/metrics.cc": "how long ago dates are that are shown",
    "planner_service/service/planner_rpc.cc": "the deadline of a call, as gRPC tells it",
    "planner_service/service/server.cc": "since when a planner runs",
    "planner_service/state/state_tools.cc": "names of files",
    "worker_daemon/daemon/measuring/profile_run.cc": "the day of a profile",
}


def code_of(line):
  return line.split("//", 1)[0]


def check(sources):
  found, used = [], set()
  for path in sources.matching([".cc", ".h", ".cu"]):
    if not path.startswith(UNDER):
      continue
    for number, line in enumerate(sources.text(path).splitlines(), 1):
      match = WRONG.search(code_of(line))
      if match is None:
        continue
      if path in ALLOWED:
        used.add(path)
        continue
      found.append(f"{path}:{number}: {match.group()}) goes by the machine's clock, which anybody may set: use SteadyNow(), AwaitFor() "
                   "or AwaitUntil() of common/clock, or say in tests/lint/check_clocks.py what the clock is right for")
  found += [f"{path}: reads no machine's clock, but tests/lint/check_clocks.py allows it to"
            for path in ALLOWED if path not in used and sources.exists(path)]
  return found


if __name__ == "__main__":
  tree.main(check)
