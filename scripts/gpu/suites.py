"""Runs GoogleTest programs; a test that is skipped proves nothing."""

import json
import pathlib
import re
import tempfile

from machine import Ended, Machine, run
from report import Finding, failed, judge, not_proved

UNDER_WAY = re.compile(r"^\[ RUN      \] (\S+)$", re.MULTILINE)
ENDED = re.compile(r"^\[ +(?:OK|FAILED|SKIPPED) +\] (\S+?)(?:, where .*)? \((\d+) ms\)$", re.MULTILINE)


def outcomes(report: dict, output: str) -> dict[str, str]:
    """"passed", "failed" or "skipped: why" of each test, by name, from what --gtest_output=json wrote and, for the reasons,
    from what was printed."""
    found = {}
    for suite in report.get("testsuites", []):
        for test in suite.get("testsuite", []):
            name = f"{suite['name']}.{test['name']}"
            if test.get("status") == "NOTRUN":
                continue
            if test.get("failures"):
                found[name] = "failed"
            elif test.get("result") == "SKIPPED":
                found[name] = f"skipped: {reason_of(name, output)}"
            else:
                found[name] = "passed"
    return found


def reason_of(test: str, output: str) -> str:
    """What stands between "Skipped" and the test's end."""
    before = output.partition(f"[  SKIPPED ] {test} (")[0]
    return before.rpartition(": Skipped\n")[2].strip() or "no reason given"


def hung_test(output: str) -> str:
    """The test that was under way when the program was ended, or ""."""
    started = UNDER_WAY.findall(output)
    if not started:
        return ""
    last = started[-1]
    return "" if last in {test for test, _ in ENDED.findall(output)} else last


def until_then(output: str) -> str:
    """What tells a suite that is slow from one that hangs: the tests that had ended when its time was over, and theirs."""
    seconds = [int(milliseconds) / 1e3 for _, milliseconds in ENDED.findall(output)]
    return f"its time was over in {hung_test(output) or 'no test'}, after {len(seconds)} tests in {sum(seconds):.1f} s"


def judge_suite(name: str, ended: Ended, found: dict[str, str], required: bool) -> Finding:
    """Whether a suite passed, all of it. Not `required`: skipped tests leave it open."""
    claim = f"{name}: all tests pass"
    bad = [test for test, outcome in found.items() if outcome == "failed"]
    skipped = {test: outcome for test, outcome in found.items() if outcome.startswith("skipped")}
    counts = f"{len(found)} tests, {len(bad)} failed, {len(skipped)} skipped, {ended.seconds:.0f} s"
    if ended.code is None:
        return failed(claim, until_then(ended.output))
    if bad:
        return failed(claim, f"{counts}: {', '.join(bad[:5])}")
    if skipped and not required:
        return not_proved(claim, f"{counts}: {next(iter(skipped.values()))}")
    if skipped:
        return failed(claim, f"{counts}: {next(iter(skipped.values()))}")
    if not found or not ended.ok:
        return failed(claim, ended.tail())
    return judge(claim, True, counts)


def run_suite(
    machine: Machine, program: pathlib.Path, seconds: float, environment: dict[str, str], *flags: str
) -> tuple[Finding, Ended]:
    """Where there is a GPU, skipped tests are failures, in the program as well as here."""
    required = {} if machine.dry else {"STAGEWRIGHT_REQUIRE_GPU": "1"}
    with tempfile.TemporaryDirectory(dir=machine.work) as folder:
        path = pathlib.Path(folder) / "tests.json"
        command = [program, f"--gtest_output=json:{path}", *flags]
        ended = run(command, seconds, {**environment, **required}, cwd=machine.root)
        found = outcomes(json.loads(path.read_text()), ended.output) if path.exists() else {}
    return judge_suite(program.name, ended, found, required=not machine.dry), ended
