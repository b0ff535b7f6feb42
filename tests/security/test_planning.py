"""Clusters whose numbers nobody's machines have: a plan or an error, and the planner lives."""

import pytest
from service import Planner, code_of, tiny_graph

from stagewright._proto import topology_pb2 as topology_pb
from stagewright.proto import planner_pb

ENOUGH = ("OK", "INVALID_ARGUMENT", "RESOURCE_EXHAUSTED", "DEADLINE_EXCEEDED")


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    with Planner(tmp_path_factory.mktemp("planner")) as running:
        yield running


def pair(node=1, rate=1e9, **kind):
    """Two devices with a link between them."""
    cluster = topology_pb.Cluster(name="pair")
    cluster.kinds.add(**{"name": "k", "flops_per_second": 1e12, "memory_bytes_per_second": 1e11, **kind})
    cluster.devices.add(name="a", memory_bytes=1 << 30)
    cluster.devices.add(name="b", node=node, memory_bytes=1 << 30)
    cluster.links.add(name="l", latency_ns=1000, bytes_per_second=rate)
    cluster.routes.add(**{"from": 0, "to": 1, "links": [0]})
    cluster.routes.add(**{"from": 1, "to": 0, "links": [0]})
    return cluster


def plan(planner, cluster):
    problem = planner_pb.PlanningProblem(graph=tiny_graph(), cluster=cluster, mini_batch=4)
    code, message = code_of(planner.stubs().Plan, planner_pb.PlanRequest(problem=problem, planner="graphpipe"))
    assert planner.process.poll() is None, planner.log()
    return code, message


def test_a_cluster_of_ordinary_numbers_is_planned_for(planner):
    assert plan(planner, pair()) == ("OK", "")


@pytest.mark.parametrize("node", [2**31 - 1, 10**8, -1, -(2**31)])
def test_numbers_of_nodes(planner, node):
    code, _ = plan(planner, pair(node=node))
    assert code == ("OK" if node > 0 else "INVALID_ARGUMENT")


@pytest.mark.parametrize("field", ["flops_per_second", "memory_bytes_per_second", "half_efficiency_flops"])
@pytest.mark.parametrize("value", [1e-300, 1e-3, 1e308, float("inf"), float("nan"), 0.0, -1.0])
def test_rates_of_devices(planner, field, value):
    code, message = plan(planner, pair(**{field: value}))
    assert code in ENOUGH, message


@pytest.mark.parametrize("rate", [1e-300, 1e-9, 1e308, float("inf"), float("nan"), 0.0, -1.0])
def test_rates_of_links(planner, rate):
    code, message = plan(planner, pair(rate=rate))
    assert code in ENOUGH, message
