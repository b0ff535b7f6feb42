"""Submits that all come at once while plans are being searched.

    scripts/load.sh submits [SUBMITS [PLANS]]     default: 200 64

Prints how many were accepted and how long they took. Must: all, 200 ms at the 99th percentile.
"""

import contextlib
import threading
import time

import grpc
from measured import LoadedPlanner, arguments, own_channel, percentile, tiny_graph, tiny_job, timed

from stagewright import rpc
from stagewright.proto import jobs_pb, planner_pb
from stagewright.security import Security

CHANNELS = 8


def search(stubs: rpc.Stubs, number: int, over: threading.Event) -> None:
    """One question after the other that nobody has asked before."""
    asked = 0
    while not over.is_set():
        problem = planner_pb.PlanningProblem(graph=tiny_graph(), cluster_preset="cpu:8", mini_batch=64)
        problem.graph.name = f"{number}-{asked}"
        options = planner_pb.PlanOptions(seed=1 + number * 1000 + asked, effort=100)
        with contextlib.suppress(grpc.RpcError):  # When too many are asked at once it says so.
            stubs.Plan(planner_pb.PlanRequest(problem=problem, planner="auto", options=options), timeout=10)
        asked += 1
        over.wait(0.05)


def run(submits: int, plans: int) -> dict:
    taken, refused, over = [], [], threading.Event()
    with LoadedPlanner() as planner:
        channels = [own_channel(planner.address) for _ in range(CHANNELS)]
        stubs = [rpc.Stubs(channel, Security()) for channel in channels]
        searches = [threading.Thread(target=search, args=(stubs[i % CHANNELS], i, over)) for i in range(plans)]
        start = threading.Barrier(submits + 1)

        def submit(number: int) -> None:
            request = jobs_pb.SubmitJobRequest(spec=tiny_job(num_devices=8), request_id=f"submit {number}")
            start.wait()
            try:
                taken.append(timed(stubs[number % CHANNELS].SubmitJob, request))
            except grpc.RpcError as error:
                refused.append(f"{error.code().name}: {error.details()}")

        threads = [threading.Thread(target=submit, args=(i,)) for i in range(submits)]
        for thread in [*searches, *threads]:
            thread.start()
        time.sleep(1)
        start.wait()
        for thread in threads:
            thread.join()
        over.set()
        for thread in searches:
            thread.join()
        for channel in channels:
            channel.close()
    return {"accepted": len(taken), "refused": refused, "taken": taken}


def main() -> None:
    submits, plans = arguments(200, 64)
    found = run(submits, plans)
    taken = found["taken"]
    print(f"{found['accepted']} of {submits} submits accepted beside {plans} searches, median {percentile(taken, 0.5):.0f} ms, "
          f"99 % {percentile(taken, 0.99):.0f} ms")  # fmt: skip
    if found["refused"]:
        raise SystemExit("\n".join(found["refused"]))


if __name__ == "__main__":
    main()
