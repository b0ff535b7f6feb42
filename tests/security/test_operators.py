"""Graphs from strangers: what they may have a planner plan and workers run."""

import pytest
from service import Planner, code_of, tiny_graph, tiny_job

from stagewright.proto import jobs_pb, planner_pb

HARMFUL = ["aten.from_file.default", "aten.add_.Tensor", "aten.add.out", "aten.set_.source_Storage", "prim.Print.default",
           "aten.empty.memory_format", "quantized.linear.default", "aten._print.default"]  # fmt: skip


@pytest.fixture(scope="module")
def planner(tmp_path_factory):
    with Planner(tmp_path_factory.mktemp("planner")) as running:
        yield running


@pytest.mark.parametrize("target", HARMFUL)
def test_a_graph_names_no_operator_that_does_more_than_compute(planner, target):
    stubs = planner.stubs()
    job = jobs_pb.SubmitJobRequest(spec=tiny_job(graph=tiny_graph(target)))
    problem = planner_pb.PlanningProblem(graph=tiny_graph(target), mini_batch=4)
    for call, request in [(stubs.SubmitJob, job), (stubs.Plan, planner_pb.PlanRequest(problem=problem))]:
        code, message = code_of(call, request)
        assert code == "INVALID_ARGUMENT"
        assert f'"product" ({target})' in message, message
    assert planner.process.poll() is None


def test_text_is_a_word_that_operators_know(planner):
    graph = tiny_graph("aten.gelu.default")
    del graph.nodes[0].args[1]
    graph.nodes[0].kwargs.add(name="approximate").value.text = "tanh"
    assert code_of(planner.stubs().SubmitJob, jobs_pb.SubmitJobRequest(spec=tiny_job(graph=graph)))[0] == "OK"
    graph.nodes[0].kwargs[0].value.text = "/etc/passwd"
    code, message = code_of(planner.stubs().SubmitJob, jobs_pb.SubmitJobRequest(spec=tiny_job(graph=graph)))
    assert code == "INVALID_ARGUMENT"
    assert '"/etc/passwd"' in message


def test_totals_are_looked_into(planner):
    graph = tiny_graph()
    node = graph.totals.nodes.add(name="read", target="aten.from_file.default")
    node.outputs.add(dtype=graph.parameters[0].dtype)
    graph.totals.values.add(node=0)
    code, message = code_of(planner.stubs().SubmitJob, jobs_pb.SubmitJobRequest(spec=tiny_job(graph=graph)))
    assert code == "INVALID_ARGUMENT"
    assert 'totals.nodes[0]: node "read" (aten.from_file.default)' in message
