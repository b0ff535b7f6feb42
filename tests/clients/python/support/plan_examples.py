"""Plans made by hand, as a planner would answer."""

from stagewright.plans import Plan, plan_from_proto
from stagewright.proto import pb, planner_pb, program_pb, strategy_pb

# Stages and edges of a small network with two branches, one of which is longer.
EDGES = [(0, 1), (1, 3), (2, 4), (3, 4), (0, 4)]
DEVICES = ["left/cpu0", "left/cpu1", 'right/<&">', "right/cpu1", "right/cpu2"]


def graph() -> "pb.Graph":
    return pb.Graph(name="two <branches>", nodes=[pb.Node(name=f"n{i}", module=f"part.{i}") for i in range(5)])


def proto(timeline: bool = True) -> "planner_pb.Plan":
    plan = planner_pb.Plan()
    plan.strategy.kind = strategy_pb.STRATEGY_KIND_GRAPH
    plan.strategy.mini_batch = 16
    for i in range(5):
        plan.strategy.stages.add(nodes=[i], micro_batch=8, devices=[i], in_flight=16, k=1)
        plan.evaluation.stages.add(seconds_per_sample=0.001, peak_memory_bytes=1 << 20, in_flight=16)
        plan.evaluation.devices.add(device=i, name=DEVICES[i], busy_ns=10, peak_memory_bytes=2 << 20)
    for source, target in EDGES:
        plan.strategy.edges.add(**{"from": source, "to": target})
    plan.evaluation.iteration_ns = 5_000_000
    plan.evaluation.samples_per_second = 3200
    plan.evaluation.depth = 4
    plan.provenance.planner = "graphpipe"
    kinds = (program_pb.ACTION_KIND_FORWARD, program_pb.ACTION_KIND_SEND_ACTIVATION, program_pb.ACTION_KIND_BACKWARD)
    for device in range(5 if timeline else 0):
        for slot, kind in enumerate((*kinds, program_pb.ACTION_KIND_OPTIMIZER_STEP)):
            event = plan.evaluation.timeline.add(device=device, start_ns=slot * 10**6, end_ns=(slot + 1) * 10**6)
            event.action.kind, event.action.stage, event.action.end = kind, device, 8
    return plan


def plan(timeline: bool = True) -> Plan:
    return plan_from_proto(proto(timeline), graph())
