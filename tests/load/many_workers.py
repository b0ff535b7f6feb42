"""What registered workers cost that say each second that they are there.

    scripts/load.sh workers [WORKERS [SECONDS]]     default: 1000 30

Prints the planner's processor time as part of a core, its memory, and how many workers it lost. Must: 25 % of a core and
300 MiB for 1,000, none lost.
"""

import asyncio
import time

import grpc.aio
from measured import CONNECT, LoadedPlanner, arguments, heartbeat, registration

from stagewright.proto import jobs_pb

CONNECTIONS = 20


async def work(channel: grpc.aio.Channel, name: str, over: asyncio.Event) -> None:
    stream = channel.stream_stream(CONNECT, request_serializer=lambda message: message.SerializeToString())()
    await stream.write(registration(name))
    await stream.read()  # It is registered.
    while not over.is_set():
        await stream.write(heartbeat())
        await asyncio.sleep(1)
    stream.cancel()


async def measure(planner: LoadedPlanner, workers: int, seconds: float) -> dict:
    options = (("grpc.use_local_subchannel_pool", 1),)
    channels = [grpc.aio.insecure_channel(planner.address, options=options) for _ in range(CONNECTIONS)]
    over = asyncio.Event()
    tasks = [asyncio.create_task(work(channels[i % CONNECTIONS], f"w{i}", over)) for i in range(workers)]
    stubs = planner.planner.stubs()
    def registered() -> int:
        return len(stubs.ListWorkers(jobs_pb.ListWorkersRequest(), timeout=60).workers)

    deadline = time.monotonic() + 60
    while await asyncio.to_thread(registered) < workers and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    before, begun = planner.cpu_seconds(), time.monotonic()
    await asyncio.sleep(seconds)
    share = (planner.cpu_seconds() - before) / (time.monotonic() - begun)
    found = {"workers": await asyncio.to_thread(registered), "core": share, "mib": planner.resident_mib(),
             "lost": planner.lost_workers()}  # fmt: skip
    over.set()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    for channel in channels:
        await channel.close()
    return found


def run(workers: int, seconds: float) -> dict:
    with LoadedPlanner() as planner:
        return asyncio.run(measure(planner, workers, seconds))


def main() -> None:
    workers, seconds = arguments(1000, 30)
    found = run(workers, seconds)
    print(f"{found['workers']} of {workers} workers registered, {found['core']:.1%} of a core, {found['mib']:.0f} MiB, "
          f"{found['lost']} lost")  # fmt: skip


if __name__ == "__main__":
    main()
