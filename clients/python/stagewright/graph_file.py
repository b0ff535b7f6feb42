"""Graph files (`*.swg`): 8 bytes of magic, payload length, CRC-32, payload (protos/stagewright/v1/graph.proto)."""

import os
import pathlib
import struct
import zlib

from google.protobuf.message import DecodeError

from .errors import GraphFileError
from .proto import pb

MAGIC = b"SWGRAPH1"
_HEADER = struct.Struct("<8sQI")


def save_graph(graph: "pb.Graph", path: str | os.PathLike) -> None:
    """Writes `graph` to `path`, whole or not at all."""
    payload = graph.SerializeToString(deterministic=True)
    target = pathlib.Path(path)
    scratch = target.with_name(target.name + ".partial")
    scratch.write_bytes(_HEADER.pack(MAGIC, len(payload), zlib.crc32(payload)) + payload)
    scratch.replace(target)


def load_graph(path: str | os.PathLike) -> "pb.Graph":
    """Reads a graph file. Raises GraphFileError naming the file and what is wrong with it."""
    try:
        data = pathlib.Path(path).read_bytes()
    except OSError as error:
        raise GraphFileError(f"{path}: {error.strerror}") from error
    if len(data) < _HEADER.size:
        raise GraphFileError(f"{path}: truncated: {len(data)} bytes, the header alone has {_HEADER.size}")
    magic, length, checksum = _HEADER.unpack_from(data)
    if magic != MAGIC:
        raise GraphFileError(f"{path}: not a Stagewright graph (magic {magic!r}, expected {MAGIC!r})")
    payload = data[_HEADER.size :]
    if len(payload) != length:
        raise GraphFileError(f"{path}: truncated: {len(payload)} payload bytes, the header says {length}")
    if zlib.crc32(payload) != checksum:
        raise GraphFileError(f"{path}: corrupt: the checksum does not match")
    graph = pb.Graph()
    try:
        graph.ParseFromString(payload)
    except DecodeError as error:
        raise GraphFileError(f"{path}: corrupt: {error}") from error
    return graph
