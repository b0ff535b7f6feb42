"""Planning for everybody: clusters whose numbers nobody's machines have, and callers who ask without end."""

import collections
import itertools
import threading

import grpc
import pytest
from service import ROOT, Planner, code_of, tiny_graph, wait_for

import stagewright
from stagewright._proto import topology_pb2 as topology_pb
from stagewright.graph_file import load_graph
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


TOKENS = {user: f"token-of-{user}-0123456789" for user in ("eve", "ada")}


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """A planner with one thread for calls of two users, and a short queue."""
    folder = tmp_path_factory.mktemp("users")
    (folder / "tokens").write_text("".join(f"{token} submitter {user}\n" for user, token in TOKENS.items()))
    flags = ("--token-file", folder / "tokens", "--planning-threads", 1, "--planning-queue", 4)
    with Planner(folder, *flags) as planner:
        yield planner


@pytest.fixture(scope="module")
def users(shared, tmp_path_factory):
    """What each may call."""
    folder = tmp_path_factory.mktemp("tokens")
    for user, token in TOKENS.items():
        (folder / user).write_text(token)
    return {user: shared.stubs(stagewright.Security(token_file=folder / user)) for user in TOKENS}


SEEDS = itertools.count()  # Equal questions would share a search.


def question():
    problem = planner_pb.PlanningProblem(graph=tiny_graph(), cluster=pair(), mini_batch=4)
    return planner_pb.PlanRequest(problem=problem, planner="graphpipe", options={"seed": next(SEEDS)})


def test_who_fills_the_queue_leaves_room_for_others(users):
    done = threading.Event()
    codes = collections.Counter()

    def flood():
        while not done.wait(0.002):
            codes[code_of(users["eve"].Plan, question())[0]] += 1

    floods = [threading.Thread(target=flood) for _ in range(16)]
    for thread in floods:
        thread.start()
    try:
        def asked():
            assert [code_of(users["ada"].Plan, question()) for _ in range(10)] == [("OK", "")] * 10
            return codes["RESOURCE_EXHAUSTED"] > 30

        wait_for(asked, "a queue that was full for a while")
    finally:
        done.set()
        for thread in floods:
            thread.join()
    assert codes["OK"] > 0, codes


def test_endless_searches_of_one_do_not_stop_others(shared, users):
    graph = load_graph(ROOT / "examples" / "graphs" / "mmt.swg")
    endless = [
        planner_pb.PlanRequest(
            problem=planner_pb.PlanningProblem(
                graph=graph, cluster_preset="summit:256", mini_batch=16384, optimizer=planner_pb.OPTIMIZER_ADAM
            ),
            options=planner_pb.PlanOptions(effort=100, seed=seed),
        )
        for seed in range(3)
    ]
    with grpc.insecure_channel(shared.address) as channel:  # Whose end cancels its calls.
        call = channel.unary_unary("/stagewright.v1.PlannerService/Plan", planner_pb.PlanRequest.SerializeToString)
        metadata = (("authorization", f"Bearer {TOKENS['eve']}"),)
        searches = [call.future(request, metadata=metadata) for request in endless]
        waiting = users["ada"].GetServer
        wait_for(lambda: waiting(planner_pb.GetServerRequest()).plans_waiting == 2, "the only thread to be busy")
        assert code_of(users["ada"].Plan, question()) == ("OK", "")
        assert not any(search.done() for search in searches)
