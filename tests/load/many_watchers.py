"""How long a call takes while many watch a job that runs, a third of whom never read.

    scripts/load.sh watchers [WATCHERS [CALLS]]     default: 3000 500

Those who read do so in a process of their own. Prints GetJob's times before and while they watch, and how many workers
were lost. Must: 50 ms at the 99th percentile, none lost.
"""

import asyncio
import multiprocessing
import os
import pathlib
import time

import grpc.aio
from measured import LoadedPlanner, arguments, own_channel, percentile, timed, wait_for

from stagewright import rpc
from stagewright.graph_file import load_graph
from stagewright.proto import event_pb, jobs_pb, planner_pb
from stagewright.security import Security

CONNECTIONS = 30
MODEL = "chain_f32"


def spec(folder: pathlib.Path) -> jobs_pb.JobSpec:
    """A job that does not end by itself."""
    models = pathlib.Path(os.environ["STAGEWRIGHT_TEST_MODELS"])
    return jobs_pb.JobSpec(
        graph=load_graph(models / f"{MODEL}.swg"), weights_path=str(models / f"{MODEL}.safetensors"),
        data_path=str(models / f"{MODEL}.data.safetensors"), output_path=str(folder / "out"), mini_batch=16,
        optimizer=jobs_pb.OptimizerConfig(kind=planner_pb.OPTIMIZER_SGD, learning_rate=1e-6), steps=100_000_000,
        planner="graphpipe",
    )  # fmt: skip


async def watch(address: str, job: str, watchers: int, opened, heard) -> None:
    """Every third stream is asked for nothing."""
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(address, options=options) for _ in range(CONNECTIONS)]
    request = jobs_pb.WatchJobRequest(name=job)
    streams = [rpc.Stubs(channels[i % CONNECTIONS], Security()).WatchJob(request) for i in range(watchers)]

    async def read(stream) -> None:
        first = True
        async for _ in stream:
            with opened.get_lock():
                opened.value += first
            with heard.get_lock():
                heard.value += 1
            first = False

    await asyncio.gather(*(read(stream) for i, stream in enumerate(streams) if i % 3 != 0))


def watch_in_process(*told) -> None:
    asyncio.run(watch(*told))


def get_times(planner: LoadedPlanner, job: str, calls: int) -> list[float]:
    with own_channel(planner.address) as channel:
        stubs = rpc.Stubs(channel, Security())
        taken = []
        for _ in range(calls):
            taken.append(timed(stubs.GetJob, jobs_pb.GetJobRequest(name=job)))
            time.sleep(0.01)
        return taken


def run(watchers: int, calls: int) -> dict:
    process = multiprocessing.get_context("spawn")
    with LoadedPlanner() as planner:
        planner.planner.worker("w0")
        stubs = planner.planner.stubs()
        job = stubs.SubmitJob(jobs_pb.SubmitJobRequest(spec=spec(planner.path)), timeout=30).job.name

        def running() -> bool:
            found = stubs.GetJob(jobs_pb.GetJobRequest(name=job)).job
            assert found.state != event_pb.JOB_STATE_FAILED, found.message
            return found.metrics.step > 10

        wait_for(running, "steps")
        alone = get_times(planner, job, calls)
        opened, heard = process.Value("q", 0), process.Value("q", 0)
        told = (planner.address, job, watchers, opened, heard)
        reader = process.Process(target=watch_in_process, args=told, daemon=True)
        reader.start()
        wait_for(lambda: opened.value >= watchers * 2 // 3, "the watchers")
        before = heard.value
        among = get_times(planner, job, calls)
        found = {"alone": alone, "among": among, "read": heard.value - before, "lost": planner.lost_workers(),
                 "mib": planner.resident_mib()}  # fmt: skip
        reader.kill()
        reader.join()
        stubs.CancelJob(jobs_pb.CancelJobRequest(name=job), timeout=30)
        return found


def main() -> None:
    watchers, calls = arguments(3000, 500)
    found = run(watchers, calls)
    for what, taken in (("no watchers", found["alone"]), (f"{watchers} watchers", found["among"])):
        print(f"GetJob with {what}: median {percentile(taken, 0.5):.1f} ms, 99 % {percentile(taken, 0.99):.1f} ms")
    print(f"{found['read']} messages read meanwhile, {found['lost']} workers lost, {found['mib']:.0f} MiB")


if __name__ == "__main__":
    main()
