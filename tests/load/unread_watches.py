"""Latency of GetJob while many streams of a job's versions are open that nobody reads.

    PYTHONPATH=clients/python python tests/load/unread_watches.py --planner HOST:PORT jobs/7 [--watches 1000] [--calls 200]

The job should be running: each of its steps is a version. Prints a line before the streams are open and one while they
are: median and 99th percentile of as many calls one after another, in milliseconds.
"""

import argparse
import statistics
import time

import grpc
from stagewright import rpc
from stagewright.proto import jobs_pb


def latencies(stubs: rpc.Stubs, job: str, calls: int) -> list[float]:
    taken = []
    for _ in range(calls):
        begin = time.perf_counter()
        stubs.GetJob(jobs_pb.GetJobRequest(name=job), timeout=60)
        taken.append((time.perf_counter() - begin) * 1e3)
    return sorted(taken)


def show(what: str, taken: list[float]) -> None:
    most = taken[int(len(taken) * 0.99)]
    print(f"{what:24} median {statistics.median(taken):8.2f} ms   99 % {most:8.2f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("job", help="jobs/7")
    parser.add_argument("--planner", default=None, help="HOST:PORT")
    parser.add_argument("--watches", type=int, default=1000)
    parser.add_argument("--calls", type=int, default=200)
    options = parser.parse_args()
    address = rpc.resolve_address(options.planner)
    own = (("grpc.use_local_subchannel_pool", 1),)
    with grpc.insecure_channel(address) as channel, grpc.insecure_channel(address, own) as other:
        stubs, watching = rpc.Stubs(channel), rpc.Stubs(other)
        show("no watches", latencies(stubs, options.job, options.calls))
        # Streams are started, and never asked for a message.
        streams = [watching.WatchJob(jobs_pb.WatchJobRequest(name=options.job)) for _ in range(options.watches)]
        time.sleep(3)
        show(f"{options.watches} unread watches", latencies(stubs, options.job, options.calls))
        for stream in streams:
            stream.cancel()


if __name__ == "__main__":
    main()
