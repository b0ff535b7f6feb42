"""Links between workers: measured when they come, in cluster files, and what becomes of them when a worker dies."""

import json
import signal

import grpc
import pytest
from processes import MODELS, Processes, wait_for

from stagewright._proto import links_pb2


@pytest.fixture(scope="module")
def system():
    with Processes(workers=2, measured=True) as running:
        yield running


def measured(system, *flags):
    # Longer than usual: beside other programs some probes are made more than once.
    result = system.cli("topology", "measure", "-o", "json", "--time-limit", 200, *flags, timeout=220)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def known(system):
    """What the planner knows, without asking it to measure."""
    with grpc.insecure_channel(system.address) as channel:
        call = channel.unary_unary(
            "/stagewright.v1.TopologyService/MeasureTopology",
            request_serializer=links_pb2.MeasureTopologyRequest.SerializeToString,
            response_deserializer=links_pb2.MeasureTopologyResponse.FromString,
        )
        return call(links_pb2.MeasureTopologyRequest(), timeout=60)


def test_a_cluster_file_has_the_measured_links_and_plans_take_it(system):
    path = system.path / "cluster.json"
    answer = measured(system, "--out", path)
    links = {(link["from"], link["to"]): link for link in answer["links"]}
    assert set(links) == {("w0", "w1"), ("w1", "w0")}
    assert answer["summary"].startswith("links measured ") and "assumed" not in answer["summary"]
    assert [machine["devices"] for machine in answer["machines"]] == [1, 2]

    cluster = json.loads(path.read_text())
    assert [device["name"] for device in cluster["devices"]] == ["w0/cpu0", "w1/cpu0"]
    by_name = {link["name"]: link for link in cluster["links"]}
    rates = {by_name[name]["bytes_per_second"] for route in cluster["routes"] for name in route["links"]}
    figures = {link["bytes_per_second"] for link in links.values()} | {answer["machines"][1]["bytes_per_second"]}
    assert rates <= figures  # Nothing assumed.
    # Wide enough for machines of any speed, and busy ones; figures of another unit are outside.
    assert all(1e-7 < link["latency_seconds"] < 10 and link["bytes_per_second"] > 1e5 for link in links.values())

    plan = system.cli("plan", MODELS / "chain_f32.swg", "--cluster", path, "--mini-batch", 8, "--local")
    assert plan.returncode == 0, plan.stderr


def test_a_job_says_what_its_plan_knew_of_the_links(system):
    measured(system)
    job = system.train("chain_f32")
    assert job["state"] == "succeeded"
    plan = system.json("plan", "show", job["name"])
    assert "registered devices, links measured " in plan["cluster"]
    assert "planned for      2 registered devices, links measured " in system.cli("watch", job["name"]).stdout


def test_figures_outlive_the_planner_and_workers_that_come_back_keep_them():
    with Processes(workers=2, measured=True) as system:
        measured(system)
        before = known(system)
        assert len(before.measured.links) == 2 and len(before.measured.crowds) == 2
        system.stop(system.planner)
        system.start_planner()
        system.await_workers(2)
        after = known(system)
        assert after.pending == 0  # Nothing is measured anew: the figures are those of before, and their times, too.
        assert after.measured == before.measured
        assert after.summary == before.summary


def test_a_worker_that_dies_or_hangs_during_its_probe_costs_the_others_nothing():
    with Processes(workers=3, measured=True) as system:
        wait_for(lambda: system.json("workers"), "the planner")
        system.workers["w1"].send_signal(signal.SIGSTOP)  # It answers no probe that begins now.
        hung = system.cli("topology", "measure", "-o", "json", "--time-limit", 1)
        assert hung.returncode == 1
        assert hung.stderr.count("\n") == 1 and "probes are left to do" in hung.stderr
        system.workers["w1"].kill()
        wait_for(lambda: len(system.json("workers")["workers"]) == 2, "the loss of w1")
        answer = measured(system)
        present = {(link["from"], link["to"]) for link in answer["links"] if "failure" not in link}
        assert {("w0", "w2"), ("w2", "w0")} <= present
        assert system.train("chain_f32")["state"] == "succeeded"
