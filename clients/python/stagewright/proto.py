"""The generated message classes, with a clear word when they have not been generated."""

try:
    from ._proto import graph_pb2 as pb
except ImportError as error:
    raise ImportError(
        "stagewright: the generated protobuf code is missing or does not fit the installed protobuf "
        f"({error}); run clients/python/generate_protos.py (scripts/setup.sh does)"
    ) from error

__all__ = ["pb"]
