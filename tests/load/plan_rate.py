"""How many plans that are known a planner answers a second, beside a server that answers with the same bytes at once.

    scripts/load.sh plans [CALLS [CALLERS]]     default: 2000 8

The question is a chain of 100 operators; both are called by the same program (rpc_rate), in turn, and the median of five
rounds counts. Must: 60 % of the bare server's rate.
"""

import os
import pathlib
import statistics
import subprocess

from measured import LoadedPlanner, arguments, tiny_graph

from stagewright.proto import pb, planner_pb

METHOD = "/stagewright.v1.PlannerService/Plan"
RATE = pathlib.Path(os.environ["STAGEWRIGHT_BIN"]).parent / "tests" / "rpc_rate"
OPERATORS = 100
ROUNDS = 5


def question() -> planner_pb.PlanRequest:
    graph = tiny_graph()
    loss = graph.nodes.pop()
    product, weights = graph.nodes[0], graph.parameters[0]
    for i in range(1, OPERATORS):
        parameter = graph.parameters.add()
        parameter.CopyFrom(weights)
        parameter.name = f"w{i}"
        node = graph.nodes.add()
        node.CopyFrom(product)
        node.name = f"product{i}"
        node.args[0].CopyFrom(pb.Argument(value={"node": i - 1}))
        node.args[1].parameter = i
    loss.args[0].value.node = OPERATORS - 1
    graph.nodes.append(loss)
    graph.loss.node = OPERATORS  # It joins the operator before it.
    problem = planner_pb.PlanningProblem(graph=graph, cluster_preset="cpu:4", mini_batch=16)
    return planner_pb.PlanRequest(problem=problem, planner="graphpipe")


def rate(address: str, request: pathlib.Path, calls: int, callers: int, *save: pathlib.Path) -> float:
    command = [RATE, "measure", address, METHOD, request, calls, callers, *save]
    return float(subprocess.run([str(word) for word in command], capture_output=True, text=True, check=True).stdout)


def run(calls: int, callers: int, rounds: int = ROUNDS) -> dict:
    with LoadedPlanner() as planner:
        request, answer = planner.path / "request", planner.path / "answer"
        request.write_bytes(question().SerializeToString())
        stubs = planner.planner.stubs()
        stubs.Plan(question(), timeout=60)
        known = stubs.Plan(question(), timeout=60)
        rate(planner.address, request, 1, 1, answer)
        echo = subprocess.Popen([RATE, "echo", answer], stdout=subprocess.PIPE, text=True)
        try:
            bare = echo.stdout.readline().strip()
            pairs = [(rate(planner.address, request, calls, callers), rate(bare, request, calls, callers)) for _ in range(rounds)]
        finally:
            echo.kill()
            echo.wait()
            echo.stdout.close()
        return {"cached": known.cached, "request": request.stat().st_size, "answer": answer.stat().st_size,
                "operators": known.operators, "plans": statistics.median(a for a, _ in pairs),
                "bare": statistics.median(b for _, b in pairs), "ratio": statistics.median(a / b for a, b in pairs)}  # fmt: skip


def main() -> None:
    calls, callers = arguments(2000, 8)
    found = run(calls, callers)
    assert found["cached"]
    print(f"{found['plans']:.0f} plans a second, {found['bare']:.0f} of the bare server: {found['ratio']:.0%} "
          f"(requests of {found['request']} bytes, answers of {found['answer']})")  # fmt: skip


if __name__ == "__main__":
    main()
