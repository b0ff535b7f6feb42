"""`stagewright` as users run it: output, files, exit codes, messages."""

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest
from command_line import CASE_STUDY, CLI, GRAPHS, NOBODY, PATIENCE, Planner, fails, run


def local(graph, cluster="summit:2", mini_batch=64, *more) -> tuple:
    return ("plan", "--local", graph, "--cluster", cluster, "--mini-batch", mini_batch, *more)


@pytest.fixture(scope="module")
def service(tmp_path_factory):
    with Planner(tmp_path_factory.mktemp("planner")) as planner:
        yield planner.address


@pytest.mark.parametrize("graph", ["mmt", "dlrm", "candle-uno", "case-study"])
def test_a_plan_as_json_has_what_programs_need(graph):
    result = run(*local(GRAPHS / f"{graph}.swg", "summit:8", 512, "--planner", "graphpipe", "-o", "json"))
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert 0 < plan["lower_bound_seconds"] <= plan["iteration_seconds"]
    assert plan["gap_ratio"] == pytest.approx(plan["iteration_seconds"] / plan["lower_bound_seconds"] - 1)
    assert plan["search_seconds"] > 0
    assert plan["termination"] in ("optimal", "feasible")
    assert 1 <= plan["depth"] <= len(plan["stages"])
    assert plan["micro_batch_size"] >= 1
    devices, operators = set(), set()
    for stage in plan["stages"]:
        assert stage["in_flight_samples"] >= stage["micro_batch_size"]
        assert stage["memory_bytes"] > 0
        assert stage["time_per_sample"] > 0
        assert stage["operators"] and stage["devices"]
        operators.update(stage["operators"])
        devices.update(stage["devices"])
    assert len(devices) <= 32
    assert operators == set(range(max(operators) + 1))


def test_tables_carry_no_terminal_codes():
    for command in (local(CASE_STUDY), ("graph", "show", CASE_STUDY)):
        result = run(*command)
        assert result.returncode == 0, result.stderr
        assert "\033" not in result.stdout + result.stderr
        assert "\r" not in result.stdout + result.stderr
        assert result.stdout.count("\n") > 5


def test_plans_are_for_the_precision_of_the_training():
    def step(*flags):
        command = local(CASE_STUDY, "dgx-a100:1", 64, "--planner", "sequential", "--no-sequential", "-o", "json", *flags)
        return json.loads(run(*command).stdout)["iteration_seconds"]

    assert step("--precision", "graph") == step()
    assert step("--precision", "bf16") < step() / 2
    assert "--precision" in fails(2, *local(CASE_STUDY, "dgx-a100:1", 64, "--precision", "fp8"))


def test_a_saved_plan_shows_the_same_and_its_timeline_is_a_trace(tmp_path):
    saved, trace, again = tmp_path / "plan.json", tmp_path / "a.trace", tmp_path / "b.trace"
    shown = run(*local(CASE_STUDY, "summit:2", 64, "--save", saved, "--trace", trace, "-o", "json"))
    assert shown.returncode == 0, shown.stderr
    loaded = run("plan", "show", saved, "--trace", again, "-o", "json")
    assert loaded.returncode == 0, loaded.stderr
    assert json.loads(loaded.stdout) == json.loads(shown.stdout)
    assert trace.read_text() == again.read_text()
    events = json.loads(trace.read_text())
    events = events["traceEvents"] if isinstance(events, dict) else events
    assert any(event.get("ph") == "X" and event["dur"] >= 0 for event in events)
    assert run("plan", "show", saved).stdout.count("\n") > 5


def test_the_service_and_the_library_find_the_same_plan(service, tmp_path):
    flags = ("--cluster", "summit:2", "--mini-batch", 64, "--save")
    for where, extra in (("local", ["--local"]), ("service", [])):
        result = run("plan", CASE_STUDY, *flags, tmp_path / where, *extra, planner=service)
        assert result.returncode == 0, result.stderr
    plans = [json.loads((tmp_path / where).read_text())["response"] for where in ("local", "service")]
    assert plans[0]["best"]["fingerprint"] == plans[1]["best"]["fingerprint"]
    assert plans[0]["best"] == plans[1]["best"]


def test_graph_show(tmp_path):
    graph = json.loads(run("graph", "show", GRAPHS / "mmt.swg", "-o", "json").stdout)
    assert graph["operators"] and graph["trainable_bytes"] > 0 and graph["depth"] > 1
    for operator in graph["operators"]:
        assert all(0 <= s < len(graph["operators"]) for s in operator["successors"])
    assert "no-such.swg" in fails(1, "graph", "show", tmp_path / "no-such.swg")


def test_bad_files_are_named(tmp_path):
    whole = CASE_STUDY.read_bytes()
    corrupt = bytearray(whole)
    corrupt[len(whole) // 2] ^= 0x40
    bad = {"cut.swg": whole[: len(whole) // 2], "empty.swg": b"", "other.swg": b"PK\3\4", "bits.swg": bytes(corrupt)}
    for name, contents in bad.items():
        (tmp_path / name).write_bytes(contents)
        assert name in fails(1, *local(tmp_path / name))
        assert name in fails(1, "graph", "show", tmp_path / name)
        assert name in fails(1, "plan", "show", tmp_path / name)
    assert "absent.swg" in fails(1, *local(tmp_path / "absent.swg"))
    (tmp_path / "cluster.json").write_text('{"devices": ')
    assert "cluster.json" in fails(1, *local(CASE_STUDY, tmp_path / "cluster.json"))
    assert "nowhere" in fails(1, *local(CASE_STUDY, "summit:2", 64, "--save", tmp_path / "nowhere" / "plan"))


def test_a_damaged_plan_is_refused(tmp_path):
    saved = tmp_path / "plan.json"
    assert run(*local(CASE_STUDY, "summit:2", 64, "--save", saved)).returncode == 0
    whole = json.loads(saved.read_text())
    for field, value in (("edges", [{"from": 0, "to": 99}]), ("edges", [{"from": -1, "to": 0}])):
        damaged = json.loads(saved.read_text())
        damaged["response"]["best"]["strategy"][field] = value
        (tmp_path / "damaged.json").write_text(json.dumps(damaged))
        assert "damaged.json" in fails(1, "plan", "show", tmp_path / "damaged.json")
    whole["response"]["best"]["strategy"]["stages"][0]["devices"] = [-5]
    (tmp_path / "damaged.json").write_text(json.dumps(whole))
    assert "damaged.json" in fails(1, "plan", "show", tmp_path / "damaged.json")


def test_wrong_values_are_named():
    assert "mini" in fails(2, *local(CASE_STUDY, "summit:2", 0))
    assert "abacus" in fails(1, *local(CASE_STUDY, "abacus:2"))
    assert "oracle" in fails(1, *local(CASE_STUDY, "summit:2", 64, "--planner", "oracle"))


@pytest.mark.parametrize(
    "arguments",
    [(), ("fly",), ("plan",), ("plan", "x.swg"), ("plan", "x.swg", "--cluster", "cpu:1"), ("submit",), ("watch",),
     ("plan", "x.swg", "--mini-batch", "many"),
     ("plan", "x.swg", "--mini-batch", 0), ("plan", "x.swg", "--mini-batch", -8),
     ("jobs", "-o", "xml"), ("jobs", "losses"), ("jobs", "losses", "jobs/1", "-o", "xml"), ("graph",), ("cancel",)],
)  # fmt: skip
def test_wrong_usage(arguments):
    assert "--help)" in fails(2, *arguments)


@pytest.mark.parametrize(
    "option, value, must",
    [("--time-limit", "-1", "above 0"), ("--time-limit", "nan", "above 0"), ("--time-limit", "1e300", "ten years"),
     ("--micro-batch", "0", "1 or more"), ("--stages", "0", "1 or more"), ("--max-stages", "-1", "1 or more"),
     ("--max-k", "0", "1 or more"), ("--max-loops", "0", "1 or more"), ("--profile-batch", "0", "1 or more"),
     ("--micro-batch", "two", "1 or more"), ("--time-unit", "us", "{s,ms}")],
)  # fmt: skip
def test_options_out_of_range(option, value, must):
    message = fails(2, *local(CASE_STUDY, "summit:2", 64, option, value))
    assert option in message and value in message and must in message
    assert len(message) < 150
    assert "stagewright plan --help" in message


@pytest.mark.parametrize("option", ["--devices", "--stages", "--micro-batch", "--steps", "--step-timeout"])
def test_jobs_take_no_zeros(option):
    flags = ("--weights", "w", "--data", "d", "--out", "o", "--mini-batch", 8, "--lr", 0.1, option, 0)
    assert option in fails(2, "submit", CASE_STUDY, *flags)


def test_help_and_version_succeed():
    told = " ".join(run("--help").stdout.split())
    assert "Exit codes: 0 success" in told and "4 no planner, or no store of artifacts, answers" in told
    assert re.match(r"stagewright \d+\.\d+", run("--version").stdout)
    usage = run("plan", "--help")
    assert usage.returncode == 0
    assert "{s,ms}" in usage.stdout and "ENUM" not in usage.stdout


def test_no_plan_says_by_how_much_and_what_would_help():
    result = run(*local(GRAPHS / "mmt.swg", "summit:1", 1 << 20, "--micro-batch", 1 << 20))
    assert result.returncode == 3, result.stdout + result.stderr
    text = result.stdout + result.stderr
    assert re.search(r"GiB|MiB|GB|TiB", text), text
    as_json = run(*local(GRAPHS / "mmt.swg", "summit:1", 1 << 20, "--micro-batch", 1 << 20, "-o", "json"))
    assert as_json.returncode == 3
    assert json.loads(as_json.stdout)["termination"] in ("infeasible", "limit")


def test_no_plan_for_so_many_stages_is_json_too():
    result = run(*local(GRAPHS / "mmt.swg", "summit:1", 64, "--stages", 9999, "-o", "json"))
    assert result.returncode == 3, result.stdout + result.stderr
    answer = json.loads(result.stdout)
    assert answer["termination"] == "infeasible"
    assert "num_stages is 9999, but the graph has only" in answer["reason"]


@pytest.mark.parametrize(
    "arguments",
    [("jobs",), ("workers",), ("watch", "jobs/1"), ("cancel", "jobs/1"), ("trace", "jobs/1"), ("plan", "show", "jobs/1"),
     ("jobs", "losses", "jobs/1"), ("jobs", "logs", "jobs/1", "--follow"),
     ("plan", CASE_STUDY, "--cluster", "summit:2", "--mini-batch", 64)],
)  # fmt: skip
def test_an_unreachable_planner_is_named(arguments):
    assert NOBODY in fails(4, *arguments)


def test_jobs_that_do_not_exist(service):
    for command in (("watch", "jobs/9"), ("cancel", "jobs/9"), ("trace", "jobs/9"), ("plan", "show", "jobs/9"),
                    ("jobs", "losses", "jobs/9"), ("jobs", "logs", "jobs/9", "--follow")):  # fmt: skip
        assert "jobs/9" in fails(1, *command, planner=service)
    assert json.loads(run("jobs", "-o", "json", planner=service).stdout) == {"jobs": []}
    assert json.loads(run("workers", "-o", "json", planner=service).stdout) == {"workers": []}


def assert_goes_on_when_nobody_watches(service, name):
    command = [CLI, "--planner-address", service, "watch", name]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as watching:
        first = watching.stderr.readline()
        assert name in first, first
        watching.send_signal(signal.SIGINT)
        assert watching.wait(PATIENCE) == -signal.SIGINT
        assert f'{name} is watched no longer, but not cancelled; "stagewright watch {name}" shows it' in watching.stderr.read()


def test_a_watched_job_that_is_cancelled_exits_with_5(service, tmp_path):
    # No worker is there, so the job waits; a planning-only graph would be refused.
    graph = GRAPHS / "candle-uno.swg"
    flags = ("--weights", "w", "--data", "d", "--out", tmp_path, "--mini-batch", 8, "--steps", 1, "--lr", 0.1)
    submitted = run("submit", graph, *flags, "--request-id", "once", planner=service)
    assert submitted.returncode == 0, submitted.stderr
    name = submitted.stdout.strip()
    assert run("submit", graph, *flags, "--request-id", "once", planner=service).stdout.strip() == name
    assert "spec.steps" in fails(1, "submit", graph, *flags, "--epochs", 1, planner=service)
    assert_goes_on_when_nobody_watches(service, name)
    assert run("cancel", name, planner=service).stdout.split() == [name, "cancelled"]
    watched = run("watch", name, planner=service)
    assert watched.returncode == 5
    assert "\r" not in watched.stderr + watched.stdout
    header = "step,loss,learning_rate,step_seconds,skipped\n"
    assert run("jobs", "losses", name, "-o", "csv", planner=service).stdout == header
    assert json.loads(run("jobs", "losses", name, "-o", "json", planner=service).stdout) == {"steps": [], "stride": 1}
    logs = run("jobs", "logs", name, "--follow", planner=service)
    assert logs.returncode == 0 and logs.stderr == ""
    lines = logs.stdout.splitlines()
    assert re.match(r"\d{4}-\d\d-\d\dT\S+Z info stagewright-planner: submitted state=pending ", lines[0]), lines[0]
    assert 'job changed its state state=cancelled why="cancelled by request"' in lines[-1]
    last = run("jobs", "logs", name, "--tail", 1, "--since", "1h", "-o", "json", planner=service).stdout
    assert json.loads(last)["state"] == "cancelled" and last.count("\n") == 1
    for nothing in (("--since", "2999-01-01T00:00:00Z"), ("--worker", "w0"), ("--tail", 0)):
        assert run("jobs", "logs", name, *nothing, planner=service).stdout == ""
    assert "--since: must be how long ago" in fails(2, "jobs", "logs", name, "--since", "yesterday", planner=service)


PROFILE = """\
node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=0, parameter_size=0
node2 -- embed -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=1000, parameter_size=4000
node3 -- left -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=1000, parameter_size=4000
node4 -- right -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=1000, parameter_size=4000
node5 -- head -- forward_compute_time=1.0, backward_compute_time=2.0, activation_size=1000, parameter_size=4000
\tnode1 -- node2
\tnode2 -- node3
\tnode2 -- node4
\tnode3 -- node5
\tnode4 -- node5
"""
PIPER = {
    "maxDevices": 2, "maxMemoryPerDevice": 1e9, "bandwidth": 1e9, "mbsInBatch": 4,
    "nodes": [
        {"id": i, "name": f"n{i}", "TMPCs": {"1": [{
            "id": "vanilla", "timePerSample": 0.003, "parameterSize": 40, "memoryUsageA": 10, "memoryUsageB": 100,
            "syncTimeFw": {}, "syncTimeBw": {}}]}}
        for i in range(3)
    ],
    "edges": [{"sourceId": i, "destId": i + 1, "communicationCost": 1000} for i in range(2)],
}  # fmt: skip


@pytest.fixture
def profile(tmp_path):
    path = tmp_path / "small.graph.txt"
    path.write_text(PROFILE)
    return path


def test_profiles_are_planned_shown_and_imported(profile, tmp_path):
    flags = ("--cluster", "uniform:2", "--mini-batch", 8)
    plan = run("plan", "--local", "--from", "pipedream", profile, *flags, "-o", "json")
    assert plan.returncode == 0, plan.stderr
    direct = json.loads(plan.stdout)
    assert direct["model"] == "small"
    assert direct["planner_operators"] == 4  # Without its input.

    shown = run("graph", "show", "--from", "pipedream", profile)
    assert "node5" in shown.stdout and "head" in shown.stdout and "2 ms" in shown.stdout
    out = tmp_path / "small.swg"
    assert run("graph", "import", "--from", "pipedream", profile, "--out", out).returncode == 0
    again = run("plan", "--local", out, *flags, "-o", "json")
    assert json.loads(again.stdout)["fingerprint"] == direct["fingerprint"]
    nowhere = tmp_path / "none" / "small.swg"
    assert f"{nowhere}: cannot write" in fails(1, "graph", "import", "--from", "pipedream", profile, "--out", nowhere)


def test_a_piper_profile_brings_cluster_and_mini_batch(tmp_path):
    path = tmp_path / "small.json"
    path.write_text(json.dumps(PIPER))
    plan = json.loads(run("plan", "--local", "--from", "piper", path, "-o", "json").stdout)
    assert plan["mini_batch_size"] == 4
    assert plan["devices"][0]["memory_budget_bytes"] == 10**9
    millis = run("plan", "--local", "--from", "piper", path, "--time-unit", "ms", "--profile-batch", 2, "-o", "json")
    assert json.loads(millis.stdout)["mini_batch_size"] == 8


def test_bad_profiles_name_the_line(profile, tmp_path):
    profile.write_text(PROFILE.replace("backward_compute_time=2.0", "backward_compute_time=-2", 1))
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:2", "--mini-batch", 8)
    assert 'small.graph.txt, line 2: backward_compute_time: "-2" is negative' in fails(1, *command)
    assert "No such file" in fails(1, "graph", "show", "--from", "dapple", tmp_path / "none")
    fails(2, "graph", "show", "--from", "onnx", profile)
    fails(2, "graph", "import", profile, "--out", tmp_path / "x.swg")
    assert "cluster" in fails(2, "plan", "--local", "--from", "pipedream", profile, "--mini-batch", 8)


def test_a_plan_by_hand(profile, tmp_path):
    by_hand = tmp_path / "plan.json"
    by_hand.write_text(json.dumps({
        "micro_batch": 2,
        "stages": [{"nodes": ["node2", "module:left"], "devices": [0]},
                   {"nodes": ["*"], "devices": [1], "recompute": True}]}))  # fmt: skip
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:2", "--mini-batch", 8)
    result = run(*command, "--plan-file", by_hand, "-o", "json")
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["planner"] == "manual"
    assert [stage["recompute"] for stage in plan["stages"]] == [False, True]
    assert plan["stages"][1]["schedule"] == "1F1B, recompute"
    by_hand.write_text('{"stages": [{"nodes": ["node9"], "devices": [0], "micro_batch": 2}]}')
    assert 'stages[0].nodes[0] names the unknown node "node9"' in fails(1, *command, "--plan-file", by_hand)
    assert "needs a plan" in fails(1, *command, "--planner", "manual")


def test_a_plan_that_was_found_is_a_plan_by_hand(profile, tmp_path):
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:3", "--mini-batch", 8)
    saved, printed = tmp_path / "saved.json", tmp_path / "printed.json"
    options = [("--planner", "auto", "--stages", 3), ("--planner", "graphpipe"), ("--planner", "pfeife"),
               ("--planner", "gpipe", "--stages", 2, "--micro-batch", 2), ("--planner", "pipedream", "--asynchronous"),
               ("--planner", "pipedream", "--asynchronous", "--vertical-sync", "--stages", 2),
               ("--planner", "sequential", "--recompute", "always")]  # fmt: skip
    for option in options:
        found = run(*command, *option, "--save", saved, "-o", "json")
        assert found.returncode == 0, found.stderr
        printed.write_text(found.stdout)
        found = json.loads(found.stdout)
        for file in (printed, saved):
            again = run(*command, "--plan-file", file, "-o", "json")
            assert again.returncode == 0, (option, again.stderr)
            again = json.loads(again.stdout)
            assert again["planner"] == "manual"
            assert again["iteration_seconds"] == found["iteration_seconds"], option
            assert again["fingerprint"] == found["fingerprint"], option
            assert again["stages"] == found["stages"], option
    printed.write_text(json.dumps({"termination": "infeasible"}))
    assert "printed.json: holds no plan" in fails(1, *command, "--plan-file", printed)
    del found["stages"][0]["nodes"]
    printed.write_text(json.dumps(found))
    assert "stages[0]" in fails(1, *command, "--plan-file", printed)


def test_modules_are_a_range_only_where_none_is_left_out(tmp_path):
    names = ["a0", "a1", "a2", "b0", "b1", "b2", "c0", "c1", "c2", "head"]
    lines = ["node1 -- Input0 -- forward_compute_time=0, backward_compute_time=0, activation_size=0, parameter_size=0"]
    cost = "forward_compute_time=1, backward_compute_time=2, activation_size=10, parameter_size=10"
    lines += [f"node{i} -- {name} -- {cost}" for i, name in enumerate(names, 2)]
    for first in (2, 5, 8):
        lines += [f"\tnode1 -- node{first}"] + [f"\tnode{i} -- node{i + 1}" for i in (first, first + 1)]
        lines += [f"\tnode{first + 2} -- node11"]
    path, by_hand = tmp_path / "branches.graph.txt", tmp_path / "plan.json"
    path.write_text("\n".join(lines) + "\n")
    command = ("plan", "--local", "--from", "pipedream", path, "--cluster", "uniform:2", "--mini-batch", 4)

    def shown(nodes):
        stages = [{"nodes": nodes, "devices": [0]}, {"nodes": ["*"], "devices": [1]}]
        by_hand.write_text(json.dumps({"micro_batch": 1, "stages": stages}))
        result = run(*command, "--plan-file", by_hand, "--no-sequential")
        assert result.returncode == 0, result.stderr
        return re.findall(r"^\[\d\] +(.*?)  +node0/device", result.stdout, re.MULTILINE)

    assert shown(["module:a0", "module:a1", "module:a2", "module:b0"]) == ["a0 .. b0", "b1 .. head"]
    assert shown(["module:a0", "module:a1", "module:c0", "module:c1"]) == ["a0, a1, c0 (+1)", "a2 .. b2, c2, head"]
    assert shown(["module:a0", "module:b0", "module:c0"])[0] == "a0, b0, c0"


def test_plans_are_compared_where_there_is_something_to_compare(profile, tmp_path):
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:4", "--mini-batch", 8)

    def rows(text):
        return re.findall(r"^(graph|sequential) \((?:GPP|SPP)\) +(\S+)", text, re.MULTILINE)

    chain = run(*command, "--planner", "dapple").stdout
    assert "graph over sequential" not in chain
    assert rows(chain)[0] == ("sequential", "dapple")
    same = run(*command, "--planner", "sequential").stdout
    assert rows(same) == [("sequential", "sequential")]
    graph = run(*command, "--planner", "graphpipe", "--stages", 4, "--no-replicas").stdout
    assert rows(graph)[0] == ("graph", "graphpipe") and len(rows(graph)) == 2
    assert "graph over sequential: " in graph
    gap = re.search(r"no plan on these devices can take less than .*; this one takes (\d+\.\d) % more", graph)
    as_json = json.loads(run(*command, "--planner", "graphpipe", "--stages", 4, "--no-replicas", "-o", "json").stdout)
    assert float(gap.group(1)) == pytest.approx(100 * as_json["gap_ratio"], abs=0.05)


def test_captured_models_need_devices_with_rates(service):
    for planner in ("--local", "--no-replicas"):
        command = ("plan", CASE_STUDY, "--cluster", "uniform:4", "--mini-batch", 16, planner)
        message = fails(1, *command, planner=service)
        assert 'device kind "profiled" is for graphs with measured times only' in message
        assert "summit:N" in message


def test_the_schedule_of_a_plan_is_shown(profile):
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:2", "--mini-batch", 8)
    result = run(*command, "--planner", "gpipe", "--stages", 2, "--micro-batch", 1)
    assert result.returncode == 0, result.stderr
    assert "GPipe" in result.stdout


def test_plans_are_explained(profile, tmp_path):
    command = ("plan", "--local", "--from", "pipedream", profile, "--cluster", "uniform:2", "--mini-batch", 8)
    saved = tmp_path / "plan.json"
    result = run(*command, "--stages", 2, "--explain", "--save", saved)
    assert result.returncode == 0, result.stderr
    assert " binds; the bottleneck is stage " in result.stdout
    kept = json.loads(run("explain", saved, "-o", "json").stdout)
    parts = sum(kept[f"{part}_seconds"] for part in ("compute", "links", "memory", "bubble"))
    assert parts == pytest.approx(kept["iteration_seconds"])
    problem = ("--from", "pipedream", profile, "--cluster", "uniform:2", "--local")
    assert json.loads(run("explain", saved, *problem, "-o", "json").stdout) == kept

    assert run(*command, "--save", saved).returncode == 0
    assert "holds no explanation" in fails(1, "explain", saved)


def test_a_plan_is_explained_in_its_precision(tmp_path):
    saved = tmp_path / "plan.json"
    graph = GRAPHS / "mmt.swg"
    cluster = ("--cluster", "dgx-h100:1")
    result = run("plan", "--local", graph, *cluster, "--mini-batch", 128, "--planner", "gpipe", "--precision", "bf16",
                 "--no-sequential", "--save", saved, "-o", "json")  # fmt: skip
    assert result.returncode == 0, result.stderr
    plan = json.loads(result.stdout)
    assert plan["precision"] == "bf16"

    def explained(*more):
        result = run("explain", saved, graph, *cluster, "--local", "-o", "json", *more)
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)["iteration_seconds"]

    assert explained() == plan["iteration_seconds"]
    assert explained("--precision", "graph") > plan["iteration_seconds"]


def test_the_service_explains_too(service, profile, tmp_path):
    saved = tmp_path / "plan.json"
    problem = ("--from", "pipedream", profile, "--cluster", "uniform:2")
    command = ("plan", *problem, "--mini-batch", 8, "--explain", "--save", saved)
    assert run(*command, planner=service).returncode == 0
    kept = json.loads(run("explain", saved, "-o", "json").stdout)
    again = run("explain", saved, *problem, "-o", "json", planner=service)
    assert again.returncode == 0, again.stderr
    assert json.loads(again.stdout) == kept
    assert kept["levers"][0]["change"]


@pytest.mark.parametrize("arguments", [("plan", "--help"), ("--version",), ("graph", "show", CASE_STUDY)])
def test_output_that_is_not_taken_is_no_success(arguments):
    with open("/dev/full", "w") as full:
        command = [CLI, *map(str, arguments)]
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=PATIENCE)
    assert result.returncode != 0
    assert "cannot write to standard output: No space left on device" in result.stderr


def test_programs_agree_on_wrong_usage():
    for program, *command in ((CLI, "workers"), (os.environ["STAGEWRIGHT_PLANNER_PROGRAM"],)):
        name = Path(program).name
        wrong = subprocess.run([program, *command, "--bogus"], capture_output=True, text=True, timeout=PATIENCE)
        help = " ".join([name, *command, "--help"])
        expected = f"{name}: The following argument was not expected: --bogus ({help})\n"
        assert (wrong.returncode, wrong.stderr, wrong.stdout) == (2, expected, "")


def test_words_that_cannot_travel_are_named():
    assert r"word 3 of the command line is no UTF-8: jobs/\xff" in fails(2, "jobs", "show", "jobs/\udcff")


def test_a_job_that_is_only_validated_runs_no_others():
    training = ("submit", CASE_STUDY, "--weights", "w", "--data", "d", "--out", "o", "--mini-batch", 8, "--lr", 1)
    assert "excludes" in fails(2, *training, "--validate-only", "--verify", 5)


def test_contexts_of_a_file_that_cannot_be_read_are_not_none(tmp_path):
    (tmp_path / "config.yaml").write_text("contexts: [")
    assert "config.yaml" in fails(1, "--config", tmp_path / "config.yaml", "config", "contexts")
