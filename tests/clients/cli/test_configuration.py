"""What programs are told: flags over environment over file, contexts, and the tables of all settings."""

import os
import pathlib
import subprocess

import pytest
from command_line import CLI, Planner

ROOT = pathlib.Path(__file__).parents[3]
BIN = pathlib.Path(CLI).parent
PROGRAMS = ("stagewright-planner", "stagewright-worker", "stagewright")


def run(program: str, *arguments: object, **environment: object) -> subprocess.CompletedProcess:
    """Without any setting of whoever runs the tests."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("STAGEWRIGHT_")}
    command = [BIN / program, *map(str, arguments)]
    told = {name: str(value) for name, value in environment.items()}
    return subprocess.run(command, capture_output=True, text=True, timeout=60, env={**clean, **told})


def shown(result: subprocess.CompletedProcess) -> dict[str, tuple[str, str]]:
    """Setting -> (value, origin)."""
    assert result.returncode == 0, result.stderr
    lines = [line.rsplit("  # ", 1) for line in result.stdout.splitlines()]
    return {line.split(": ", 1)[0]: (line.split(": ", 1)[1].strip(), origin) for line, origin in lines}


def built(program: str) -> str:
    if not (BIN / program).exists():
        pytest.skip(f"{program} is not built in this preset")
    return program


@pytest.mark.parametrize("program", PROGRAMS)
def test_the_documented_table_is_what_the_program_says(program):
    table = run(built(program), "config", "reference")
    assert table.returncode == 0, table.stderr
    assert len(table.stdout.splitlines()) > 5
    documented = (ROOT / "docs" / "configuration.md").read_text()
    assert f"## {program}\n\n{table.stdout}" in documented, f"docs/configuration.md: not `{program} config reference`"


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_shown_is_a_file_that_is_good(program, tmp_path):
    file = tmp_path / "shown.yaml"
    file.write_text(run(built(program), "config", "show").stdout)
    again = run(program, "--config", file, "config", "validate")
    assert again.returncode == 0, again.stderr


@pytest.mark.parametrize("key", ["worker-timeout", "keep-days", "leader-lease"])
def test_what_is_no_number_is_in_no_range(key, tmp_path):
    file = tmp_path / "planner.yaml"
    file.write_text(f"{key}: nan\n")
    refused = run("stagewright-planner", "--config", file, "config", "validate")
    assert refused.returncode == 1
    assert f"{file}:1: {key}: " in refused.stderr and '"nan" is not a number from' in refused.stderr


# What a start refuses before it touches anything, and a word of why.
REFUSED = [
    ("stagewright-planner", "listen: 7070", '--listen "7070": expected HOST:PORT'),
    ("stagewright-planner", "worker-listen: localhost", "--worker-listen"),
    ("stagewright-planner", "metrics-listen: 127.0.0.1:99999", "--metrics-listen"),
    ("stagewright-planner", "listen: 0.0.0.0:0", "other machines reach it"),
    ("stagewright-planner", "worker-listen: 0.0.0.0:0", "--worker-listen 0.0.0.0:0: other machines reach it"),
    ("stagewright-planner", "state: ''", "--state is empty"),
    ("stagewright-planner", "store: foo://x", "expected etcd://... or sqlite:FILE"),
    ("stagewright-planner", "store: 'sqlite:'", "--state is empty"),
    ("stagewright-planner", "store: etcd://nowhere", "is not HOST:PORT"),
    ("stagewright-planner", "store: etcd://10.0.0.1:2379", "give --etcd-ca"),
    ("stagewright-planner", "{store: 'etcd://127.0.0.1:1', etcd-cert: /a.pem}", "--etcd-cert needs --etcd-key"),
    ("stagewright-planner", "{store: 'etcd://127.0.0.1:1', peer-ca: /a.pem}", "--peer-ca needs --tls-cert"),
    ("stagewright-planner", "{store: 'etcd://127.0.0.1:1', advertise: here}", '--advertise "here": expected HOST:PORT'),
    ("stagewright-planner", "{store: 'etcd://127.0.0.1:1', advertise: '0.0.0.0:1'}", "no address at which other planners"),
    ("stagewright-planner", "advertise: 127.0.0.1:1", "--advertise is for planners of an etcd: give --store"),
    ("stagewright-planner", "{state: a.db, etcd-insecure: true}", "--etcd-insecure is for planners of an etcd"),
    ("stagewright-planner", "{store: 'sqlite:a.db', peer-ca: /a.pem}", "--peer-ca is for planners of an etcd"),
    ("stagewright-planner", "quota: [alice=1, alice=2]", "has two quotas"),
    ("stagewright-planner", "tenant-quota: ['*=1', '*=2']", "has two quotas"),
    ("stagewright-planner", "tls-cert: /a.pem", "--tls-cert needs --tls-key"),
    ("stagewright-planner", "tls-ca: /a.pem", "--tls-ca needs --tls-cert"),
    ("stagewright-planner", "jwt-issuer: us", "need --jwt-keys"),
    ("stagewright-planner", "jwt-keys: /keys.json", "--jwt-keys needs --jwt-issuer"),
    ("stagewright-planner", "{jwt-keys: /k, jwt-issuer: a, jwt-audience: b, jwt-role: [a=king]}", "expected VALUE=ROLE"),
    ("stagewright-planner", "{listen: '0.0.0.0:0', insecure: true, token-file: /t}", "would travel in the clear"),
    ("stagewright-worker", "planner: 7070", '--planner "7070": expected HOST:PORT'),
    ("stagewright-worker", "planner: 10.0.0.1:7070", "is on another machine"),
    ("stagewright-worker", "{planner: '10.0.0.1:1', insecure: true, token-file: /t}", "could read the token"),
    ("stagewright-worker", "tls-key: /a.pem", "--tls-key needs --tls-cert"),
    ("stagewright-worker", "devices: gpu:1", "expected cpu:N"),
    ("stagewright-worker", "devices: 'cuda:0,0'", "named twice"),
    ("stagewright-worker", "device-kind: abacus", "abacus"),
    ("stagewright-worker", "metrics-listen: 9071", '--metrics-listen "9071": expected HOST:PORT'),
    ("stagewright-worker", "artifacts: foo://x", "artifacts are kept in a folder or in s3://"),
    ("stagewright-worker", f"name: {'n' * 129}", "--name, --host-address"),
]


@pytest.mark.parametrize(("program", "settings", "why"), REFUSED)
def test_what_a_start_refuses_is_no_good_configuration(program, settings, why, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text(settings + "\n")
    validated = run(built(program), "--config", file, "config", "validate")
    assert validated.returncode == 1, validated.stdout
    assert validated.stderr.startswith(f"{program}: ") and validated.stderr.count("\n") == 1
    assert why in validated.stderr
    started = run(program, "--config", file)
    assert started.returncode == 1
    assert validated.stderr.removeprefix(f"{program}: ") in started.stderr


@pytest.mark.parametrize(
    ("settings", "why"),
    [("planner-address: planner", '--planner-address "planner": expected HOST:PORT'),
     ("planner-address: 10.0.0.1:7070", "is on another machine"),
     ("artifacts: foo://x", "artifacts are kept in a folder or in s3://")],
)  # fmt: skip
def test_what_commands_would_refuse_is_no_good_configuration(settings, why, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text(settings + "\n")
    validated = run("stagewright", "--config", file, "config", "validate")
    assert validated.returncode == 1
    assert why in validated.stderr and validated.stderr.count("\n") == 1


def test_validate_looks_at_nothing_that_settings_name(tmp_path):
    file = tmp_path / "planner.yaml"
    file.write_text("{listen: '0.0.0.0:1', tls-cert: /no, tls-key: /no, tls-ca: /no, token-file: /no, audit-log: /no/no}\n")
    good = run("stagewright-planner", "--config", file, "config", "validate")
    assert good.returncode == 0, good.stderr


def test_a_state_can_be_mended_whatever_else_is_wrong(tmp_path):
    file = tmp_path / "planner.yaml"
    file.write_text("listen: 7070\n")
    checked = run("stagewright-planner", "--config", file, "--state", tmp_path / "no.db", "state", "check")
    assert "HOST:PORT" not in checked.stderr and "no.db" in checked.stderr


def test_flags_go_over_environment_over_file_over_defaults(tmp_path):
    file = tmp_path / "planner.yaml"
    file.write_text("# Ours.\nplanning-threads: 3\nplanning-queue: 4\nworker-timeout: 5\n")
    found = shown(
        run("stagewright-planner", "--config", file, "--worker-timeout", 7, "config", "show",
            STAGEWRIGHT_PLANNER_PLANNING_QUEUE=6, STAGEWRIGHT_PLANNER_WORKER_TIMEOUT=6)
    )  # fmt: skip
    assert found["planning-threads"] == ("3", f"{file}:2")
    assert found["planning-queue"] == ("6", "environment STAGEWRIGHT_PLANNER_PLANNING_QUEUE")
    assert found["worker-timeout"] == ("7", "flag --worker-timeout")
    assert found["listen"] == ("127.0.0.1:7070", "default")


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_unknown_key_keeps_a_program_from_starting(program, tmp_path):
    file = tmp_path / "wrong.yaml"
    file.write_text("\nlog-fromat: json\n")
    for words in ("config", "validate"), ("jobs",) if program == "stagewright" else ():
        result = run(built(program), "--config", file, *words)
        assert result.returncode != 0
        assert f'{file}:2: "log-fromat" is no setting' in result.stderr
        assert result.stderr.count("\n") == 1, result.stderr


@pytest.mark.parametrize("words", [["help"], ["help", "submit"], ["completion", "bash"]])
def test_a_broken_file_keeps_nobody_from_help(words, tmp_path):
    file = tmp_path / "broken.yaml"
    file.write_text("planner-address: [1,\n")
    answer = run("stagewright", "--config", file, *words)
    assert answer.returncode == 0 and not answer.stderr
    assert "stagewright" in answer.stdout
    assert run("stagewright", "--config", file, "jobs").returncode == 2


def test_a_planner_runs_as_its_file_says(tmp_path):
    file = tmp_path / "planner.yaml"
    file.write_text("log-format: json\n")
    with Planner(tmp_path, "127.0.0.1:0", "--config", file) as planner:
        assert planner.log.read_text().startswith("{")


def test_a_context_says_where_the_planner_is(tmp_path):
    folder = tmp_path / "stagewright"
    folder.mkdir()
    file = folder / "config.yaml"
    with Planner(tmp_path) as planner:
        file.write_text(
            "# Where we work.\ncontext: lab\ncontexts:\n  lab: {planner-address: '127.0.0.1:1'}\n"
            f"  here: {{planner-address: '{planner.address}'}}\n"
        )
        told = {"XDG_CONFIG_HOME": tmp_path}
        assert run("stagewright", "config", "contexts", **told).stdout.split() == ["*", "lab", "here"]
        assert run("stagewright", "jobs", **told).returncode != 0, "nobody listens in the lab"
        assert run("stagewright", "--context", "here", "jobs", **told).returncode == 0
        assert run("stagewright", "jobs", STAGEWRIGHT_CONTEXT="here", **told).returncode == 0
        missing = run("stagewright", "config", "use-context", "hre", **told)
        assert missing.returncode != 0 and 'did you mean "here"?' in missing.stderr
        assert run("stagewright", "config", "use-context", "here", **told).returncode == 0
        assert run("stagewright", "jobs", **told).returncode == 0
        assert file.read_text().startswith('# Where we work.\ncontext: "here"\ncontexts:\n')
        flag = run("stagewright", "--planner-address", "127.0.0.1:1", "jobs", **told)
        assert flag.returncode != 0, "flags go over the context"
