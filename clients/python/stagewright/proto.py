"""The generated message classes, with a clear word when they have not been generated."""

try:
    from ._proto import error_details_pb2 as details_pb
    from ._proto import event_pb2 as event_pb
    from ._proto import graph_pb2 as pb
    from ._proto import job_logs_pb2 as logs_pb
    from ._proto import job_service_pb2 as jobs_pb
    from ._proto import planner_service_pb2 as planner_pb
    from ._proto import program_pb2 as program_pb
    from ._proto import strategy_pb2 as strategy_pb
    from ._proto import worker_pb2 as workers_pb
except ImportError as error:
    raise ImportError(
        "stagewright: the generated protobuf code is missing or does not fit the installed protobuf "
        f"({error}); run clients/python/generate_protos.py (scripts/setup.sh does)"
    ) from error

__all__ = [
    "details_pb", "event_pb", "jobs_pb", "logs_pb", "pb", "planner_pb", "program_pb", "strategy_pb", "workers_pb",
]  # fmt: skip
