#!/usr/bin/env python3
"""When should the order of transfers between GPUs be decided: while they run, or when a program is made?

python3 tests/bench/transfer_order.py prints a table of step times, in forward passes, for docs/benchmarks.md.

The model. Stages on a device each run 1F1B; a forward pass takes 1, a backward pass 2, each times a random factor (lognormal,
of mean 1 and a given spread). A transfer takes the streams of both of its ends for COST; receives are posted in time. Three ways:

  run time   offered when its producer has ended, and started LATENCY later at both ends, in the order of offers: what
             worker_daemon/transport/arranged does
  queued     in the order of a run without randomness, queued on both streams long before: no latency, but a transfer that waits
             for its producer keeps later ones waiting, and its kernels take SHARE of a device's multiprocessors meanwhile
  announced  in that order, too, but started at both ends when the producer has ended and its end has told the other: half the
             latency, no kernel that waits
"""

import argparse
import heapq
import random
import statistics

FORWARD, BACKWARD = "F", "B"
SHARE = 8 / 132  # Blocks that NCCL may take for messages, of an H200's multiprocessors.


def chain(stages: int) -> list[tuple[int, int]]:
    return [(s, s + 1) for s in range(stages - 1)]


def branches(stages: int) -> list[tuple[int, int]]:
    """Two chains of the same length that join in the last stage, or all but."""
    half = (stages - 1) // 2
    first, second, last = range(half), range(half, stages - 1), stages - 1
    return [*zip(first, first[1:], strict=False), *zip(second, second[1:], strict=False), (first[-1], last), (second[-1], last)]


class Pipeline:
    """What is to be done: passes (stage, kind, micro-batch) in each stage's order, and what they need from other stages."""

    def __init__(self, edges: list[tuple[int, int]], stages: int, micro_batches: int):
        self.stages = stages
        self.before = [[a for a, b in edges if b == s] for s in range(stages)]
        self.after = [[b for a, b in edges if a == s] for s in range(stages)]
        depth = [0] * stages  # Stages from here to the end.
        for s in reversed(range(stages)):
            depth[s] = 1 + max((depth[t] for t in self.after[s]), default=0)
        self.order = [self.one_f_one_b(min(micro_batches, depth[s]), micro_batches) for s in range(stages)]

    @staticmethod
    def one_f_one_b(in_flight: int, micro_batches: int) -> list[tuple[str, int]]:
        order = [(FORWARD, m) for m in range(in_flight)]
        for m in range(micro_batches):
            order.append((BACKWARD, m))
            if in_flight + m < micro_batches:
                order.append((FORWARD, in_flight + m))
        return order

    def needs(self, stage: int, kind: str) -> list[int]:
        """Stages whose passes of the kind, for the same micro-batch, come first."""
        return self.before[stage] if kind == FORWARD else self.after[stage]

    def feeds(self, stage: int, kind: str) -> list[int]:
        return self.after[stage] if kind == FORWARD else self.before[stage]

    def durations(self, spread: float, seed: int, slower: float = 0.0) -> dict:
        draw = random.Random(seed)
        times = {}
        for stage, order in enumerate(self.order):
            for kind, m in order:
                factor = draw.lognormvariate(-spread * spread / 2, spread)
                times[stage, kind, m] = (1.0 if kind == FORWARD else 2.0) * factor / (1 - slower)
        return times


class Devices:
    """Passes run as soon as the one before them on their stage, and what they need, is there."""

    def __init__(self, pipeline: Pipeline, durations: dict):
        self.pipeline, self.durations = pipeline, durations
        self.next = [0] * pipeline.stages
        self.free = [0.0] * pipeline.stages
        self.arrived: dict = {}  # (stage, kind, m) -> arrivals of what it needs
        self.end: dict = {}

    def arrive(self, stage: int, kind: str, m: int, when: float) -> list[tuple]:
        self.arrived.setdefault((stage, kind, m), []).append(when)
        return self.advance(stage)

    def advance(self, stage: int) -> list[tuple]:
        """Passes whose ends are known now."""
        ended = []
        order = self.pipeline.order[stage]
        while self.next[stage] < len(order):
            kind, m = order[self.next[stage]]
            arrivals = self.arrived.get((stage, kind, m), [])
            if len(arrivals) < len(self.pipeline.needs(stage, kind)):
                break
            self.free[stage] = max([self.free[stage], *arrivals]) + self.durations[stage, kind, m]
            self.end[stage, kind, m] = self.free[stage]
            ended.append((stage, kind, m))
            self.next[stage] += 1
        return ended


def at_run_time(pipeline: Pipeline, durations: dict, cost: float, latency: float) -> tuple[float, list]:
    """The step's time, and the transfers in the order in which they began."""
    devices, streams, order = Devices(pipeline, durations), [0.0] * pipeline.stages, []
    offers: list = []

    def offer(ended):
        for stage, kind, m in ended:
            for to in pipeline.feeds(stage, kind):
                heapq.heappush(offers, (devices.end[stage, kind, m] + latency, stage, to, kind, m))

    for stage in range(pipeline.stages):
        offer(devices.advance(stage))
    while offers:
        ready, stage, to, kind, m = heapq.heappop(offers)
        begin = max(ready, streams[stage], streams[to])
        streams[stage] = streams[to] = begin + cost
        order.append((stage, to, kind, m))
        offer(devices.arrive(to, kind, m, begin + cost))
    return max(devices.free), order


def in_order(pipeline: Pipeline, durations: dict, order: list, cost: float, latency: float) -> float:
    devices, streams = Devices(pipeline, durations), [0.0] * pipeline.stages
    for stage in range(pipeline.stages):
        devices.advance(stage)
    for stage, to, kind, m in order:
        begin = max(devices.end[stage, kind, m] + latency, streams[stage], streams[to])
        streams[stage] = streams[to] = begin + cost
        devices.arrive(to, kind, m, begin + cost)
    return max(devices.free)


def row(edges: list, stages: int, micro_batches: int, cost: float, latency: float, spread: float, runs: int) -> list[float]:
    pipeline = Pipeline(edges, stages, micro_batches)
    fixed = at_run_time(pipeline, pipeline.durations(0, 0), cost, 0)[1]
    ways: list[list[float]] = [[], [], [], []]
    for seed in range(runs if spread else 1):
        times = pipeline.durations(spread, seed)
        ways[0].append(at_run_time(pipeline, times, cost, latency)[0])
        ways[1].append(in_order(pipeline, times, fixed, cost, 0))
        ways[2].append(in_order(pipeline, pipeline.durations(spread, seed, SHARE), fixed, cost, 0))
        ways[3].append(in_order(pipeline, times, fixed, cost, latency / 2))
    return [statistics.mean(way) for way in ways]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=40, help="of each random case")
    runs = parser.parse_args().runs
    print("| stages, micro-batches | cost | latency | spread | run time | queued, free | queued | announced |")
    print("|---|---|---|---|---|---|---|---|")
    for shape, stages in ((chain, 4), (chain, 8), (branches, 7)):
        for cost, latency in ((0.02, 0.02), (0.1, 0.02), (0.02, 0.06), (0.3, 0.06)):
            for spread in (0.0, 0.1, 0.3):
                figures = row(shape(stages), stages, 16, cost, latency, spread, runs)
                cells = " | ".join(f"{figure:.2f}" for figure in figures)
                print(f"| {shape.__name__} of {stages}, 16 | {cost} | {latency} | {spread} | {cells} |")


if __name__ == "__main__":
    main()
