"""What those do who keep a service running: lists, events, ids, the doctor, planners that are started again."""

import json
import os
import re
import subprocess
import time

import pytest
from command_line import CLI, GRAPHS, NOBODY, PATIENCE, Planner, await_text, fails, free_address, run


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Planner(tmp_path_factory.mktemp("planner")) as planner:
        yield planner.address


def submit_flags(tmp_path, out: str = "out") -> tuple:
    """A job that waits, since no worker is there."""
    flags = ("--weights", "w", "--data", "d", "--out", tmp_path / out, "--mini-batch", 8, "--steps", 1, "--lr", 0.1)
    return ("submit", GRAPHS / "candle-uno.swg", *flags)


def submitted(tmp_path, planner: str, out: str = "out", *flags) -> str:
    result = run(*submit_flags(tmp_path, out), *flags, planner=planner)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.parametrize(
    "words, unknown, meant",
    [(("jbos",), "jbos", "jobs"), (("fly",), "fly", None), (("jobs", "lsit"), "lsit", "list"),
     (("graph", "shwo", "x"), "shwo", "show"), (("cancle", "jobs/1"), "cancle", "cancel")],
)  # fmt: skip
def test_an_unknown_command_is_named_with_the_nearest_one(words, unknown, meant):
    message = fails(2, *words)
    assert f'unknown command "{unknown}"' in message
    assert (f'did you mean "{meant}"?' in message) if meant else ("did you mean" not in message)


@pytest.mark.parametrize("command", [(), ("jobs",), ("jobs", "list"), ("submit",), ("help",)])
def test_help_of_a_command_is_what_its_flag_says(command):
    shown = run("help", *command)
    assert shown.returncode == 0, shown.stderr
    assert shown.stdout == run(*command, "--help").stdout


@pytest.mark.parametrize(
    "words, said",
    [(("jbos",), 'unknown command "jbos"; did you mean "jobs"?'), (("jobs", "lsit"), 'did you mean "list"?'),
     (("version", "now"), "version has no commands")],
)  # fmt: skip
def test_help_of_what_is_no_command(words, said):
    assert said in fails(2, "help", *words)


def test_lists_are_chosen_by_state_name_and_number(tmp_path):
    with Planner(tmp_path) as planner:
        names = [submitted(tmp_path, planner.address, f"out{i}", "--name", f"night {i}") for i in range(4)]
        result = run("cancel", names[0], names[1].removeprefix("jobs/"), planner=planner.address)
        assert result.stdout.split() == [names[0], "cancelled", names[1], "cancelled"]

        def listed(*flags):
            json_text = run("jobs", *flags, "-o", "json", planner=planner.address)
            assert json_text.returncode == 0, json_text.stderr
            return json.loads(json_text.stdout)

        assert [job["name"] for job in listed("--state", "cancelled")["jobs"]] == [names[1], names[0]]
        assert [job["name"] for job in listed("--state", "cancelled", "--state", "pending")["jobs"]] == names[::-1]
        assert [job["name"] for job in listed("--name", "night 2")["jobs"]] == [names[2]]
        newest = listed("--limit", 3)
        assert [job["name"] for job in newest["jobs"]] == names[:0:-1] and newest["more"] is True
        assert "more" not in listed("--limit", 0)
        table = run("jobs", "--limit", 1, planner=planner.address).stdout
        assert "restarts" in table and "checkpoint" in table and "--limit 0" in table
        assert "--state" in fails(2, "jobs", "--state", "flying", planner=planner.address)


def test_a_job_is_described_and_forgotten(tmp_path):
    with Planner(tmp_path, "127.0.0.1:0", "--log-format", "json") as planner:
        name = submitted(tmp_path, planner.address)
        assert "is pending; cancel it first" in fails(1, "jobs", "rm", name, planner=planner.address)
        over = run("cancel", name, planner=planner.address)
        assert over.returncode == 0, over.stderr
        described = run("jobs", "describe", name.removeprefix("jobs/"), planner=planner.address).stdout
        assert str(tmp_path / "out") in described and "cancelled by request" in described
        events = json.loads(run("jobs", "events", name, "-o", "json", planner=planner.address).stdout)["events"]
        assert [event["kind"] for event in events][0] == "submitted"
        assert events[-1]["state"] == "cancelled"
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{3})?Z", events[-1]["time"])
        assert run("jobs", "rm", name, planner=planner.address).stdout == f"{name} removed\n"
        assert name in fails(1, "jobs", "show", name, planner=planner.address)
        lines = [json.loads(line) for line in planner.log.read_text().splitlines()]
        told = [(line["message"], line.get("state")) for line in lines if line.get("job") == name]
        assert told[0] == ("submitted", "pending")
        assert ("job changed its state", "cancelled") in told and told[-1] == ("job forgotten", None)
        assert all(line["level"] in ("info", "warning") for line in lines)


def test_old_jobs_are_forgotten(tmp_path):
    with Planner(tmp_path, "127.0.0.1:0", "--keep-jobs", "1") as planner:
        for i in range(3):
            run("cancel", submitted(tmp_path, planner.address, f"out{i}"), planner=planner.address)
        planner.await_text("job=jobs/2")
        deadline = time.monotonic() + PATIENCE
        while len(left := json.loads(run("jobs", "-o", "json", planner=planner.address).stdout)["jobs"]) > 1:
            assert time.monotonic() < deadline
            time.sleep(0.5)
        assert left[0]["name"] == "jobs/3"


def test_requests_that_contradict_each_other_are_refused(tmp_path):
    with Planner(tmp_path) as planner:
        name = submitted(tmp_path, planner.address, "out", "--request-id", "once")
        assert submitted(tmp_path, planner.address, "out", "--request-id", "once") == name
        other = (*submit_flags(tmp_path, "other"), "--request-id", "once")
        assert name in fails(1, *other, planner=planner.address)
        assert name in fails(1, *submit_flags(tmp_path, "out/"), planner=planner.address)
        valid = run(*submit_flags(tmp_path, "new"), "--validate-only", planner=planner.address)
        assert (valid.returncode, valid.stdout) == (0, "valid\n")
        assert len(json.loads(run("jobs", "-o", "json", planner=planner.address).stdout)["jobs"]) == 1


def test_a_watch_outlives_its_planner(tmp_path):
    environment = {**os.environ, "STAGEWRIGHT_PLANNER": ""}
    address, log = free_address(), tmp_path / "watch.log"
    with Planner(tmp_path, address):
        name = submitted(tmp_path, address)
        with open(log, "w") as out:
            command = [CLI, "--planner-address", address, "watch", name.removeprefix("jobs/")]
            watch = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        await_text(log, "pending", watch)
    await_text(log, "trying again", watch)
    with Planner(tmp_path, address):
        assert run("cancel", name, planner=address).returncode == 0
        assert watch.wait(PATIENCE) == 5, log.read_text()
    assert log.read_text().count("trying again") == 1
    assert f"{name} cancelled" in log.read_text()


def test_the_doctor_names_what_is_missing(service, tmp_path):
    def found():
        shown = json.loads(run("doctor", "-o", "json", planner=service).stdout)
        return {finding["what"]: finding for finding in shown["findings"]}

    # Workers have some seconds to come back to a planner that was just started.
    deadline = time.monotonic() + PATIENCE
    while (findings := found())["workers"]["verdict"] == "warning":
        assert "none is connected yet" in findings["workers"]["seen"] and time.monotonic() < deadline
        time.sleep(0.5)
    assert findings["workers"]["verdict"] == "bad"
    result = run("doctor", planner=service)
    assert result.returncode == 1, result.stderr
    assert "stagewright-worker --planner" in result.stdout
    assert findings["versions"]["verdict"] == findings["planning"]["verdict"] == "good"
    assert "state.db" in findings["state"]["seen"]
    assert NOBODY in fails(4, "doctor")


def test_the_doctor_says_when_the_state_cannot_be_written(tmp_path):
    with Planner(tmp_path) as planner:
        def state():
            shown = json.loads(run("doctor", "-o", "json", planner=planner.address).stdout)
            return next(f for f in shown["findings"] if f["what"] == "state")

        assert state()["verdict"] == "good"
        (tmp_path / "state.db").rename(tmp_path / "elsewhere.db")
        submit = run(*submit_flags(tmp_path), planner=planner.address)
        assert "was moved" in submit.stderr, submit.stderr
        planner.await_text("the state cannot be written: store")
        assert state()["verdict"] == "bad" and "cannot be written" in state()["seen"]
        (tmp_path / "elsewhere.db").rename(tmp_path / "state.db")
        planner.await_text("the state can be written again")
        assert state()["verdict"] == "good"


def test_versions_of_both_sides(service):
    shown = json.loads(run("version", "-o", "json", planner=service).stdout)
    assert shown["client"] == shown["planner"]["version"]
    assert shown["planner"]["started"].endswith("Z")
    alone = run("version")
    assert alone.returncode == 4 and shown["client"] in alone.stdout and NOBODY in alone.stderr


def test_a_shell_completes_commands_and_flags(tmp_path):
    for shell in ("bash", "zsh"):
        script = run("completion", shell)
        assert script.returncode == 0 and "source <(stagewright completion " in script.stdout

    def completed(*words):
        program = f"""source /dev/stdin <<'END'
{run("completion", "bash").stdout}
END
COMP_WORDS=({" ".join(f'"{word}"' for word in words)}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
_stagewright; printf '%s\\n' "${{COMPREPLY[@]}}"
"""
        result = subprocess.run(["bash", "-c", program], capture_output=True, text=True, cwd=tmp_path, timeout=60)
        assert result.returncode == 0, result.stderr
        return result.stdout.split()

    assert completed("stagewright", "ca") == ["cancel"]
    assert "describe" in completed("stagewright", "jobs", "")
    assert completed("stagewright", "jobs", "list", "--li") == ["--limit"]
    assert completed("stagewright", "submit", "--mini") == ["--mini-batch"]
