"""Makes a library of CUDA kernels small: keeps the machine code for one chip.

libnccl carries its kernels for every chip, and once more as relocatable code, of use to a device linker only. Both are
stored in the ELF file as fat binaries: containers of a header and entries, an entry being a header and a payload of PTX or
of machine code for one chip. What is not wanted is overwritten with zeros, which compress to nothing; headers and
addresses stay, so that the driver finds the entry that it wants.

    thin.py libnccl.so.2 OUT --chip 90
"""

import argparse
import collections
import dataclasses
import pathlib
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator

CONTAINER = 0xBA55ED50  # Begins every container.
PTX, MACHINE_CODE = 1, 2
LINKED, RELOCATABLE = ".nv_fatbin", "__nv_relfatbin"  # ELF sections.


@dataclasses.dataclass(frozen=True)
class Entry:
    """Where the payload is, in the file, and whom it is for: 90 is sm_90."""

    kind: int
    chip: int
    start: int
    end: int


def sections(image: bytes) -> dict[str, tuple[int, int]]:
    """Start and end in the file of each section of a 64-bit ELF file, by name."""
    if image[:5] != b"\x7fELF\x02":
        raise ValueError("not a 64-bit ELF file")
    (table,) = struct.unpack_from("<Q", image, 0x28)
    size, count, names = struct.unpack_from("<HHH", image, 0x3A)
    headers = [struct.unpack_from("<IIQQQQ", image, table + size * i) for i in range(count)]
    strings = headers[names][4]
    found = {}
    for name, _, _, _, start, length in headers:
        at = strings + name
        found[image[at : image.index(b"\0", at)].decode()] = (start, start + length)
    return found


def entries(image: bytes, start: int, end: int) -> Iterator[Entry]:
    """All entries of the containers in a section; containers begin at multiples of 8."""
    at = start
    while at + 16 <= end:
        magic, _, header, length = struct.unpack_from("<IHHQ", image, at)
        if magic != CONTAINER:
            at += 8
            continue
        at += header
        container_end = at + length
        if container_end > end:
            raise ValueError(f"a container ends at {container_end}, its section at {end}")
        while at < container_end:
            kind, _, entry_header, payload = struct.unpack_from("<HHIQ", image, at)
            (chip,) = struct.unpack_from("<I", image, at + 28)
            at += entry_header
            yield Entry(kind, chip, at, at + payload)
            at += payload


def thin(image: bytearray, chip: int) -> int:
    """Zeroes all but the machine code for `chip`; the bytes of it. ValueError where there is none."""
    places = sections(bytes(image))
    if LINKED not in places:
        raise ValueError(f"has no kernels: no section {LINKED}")
    original, kept = bytes(image), 0
    chips: collections.Counter[int] = collections.Counter()
    for entry in entries(original, *places[LINKED]):
        chips[entry.chip] += 1
        if entry.kind == MACHINE_CODE and entry.chip == chip:
            kept += entry.end - entry.start
        else:
            image[entry.start : entry.end] = bytes(entry.end - entry.start)
    if kept == 0:
        raise ValueError(f"has no machine code for chip {chip}, only for {', '.join(map(str, sorted(chips)))}")
    if RELOCATABLE in places:
        start, end = places[RELOCATABLE]
        image[start:end] = bytes(end - start)
    return kept


def thin_file(library: pathlib.Path, out: pathlib.Path, chip: int) -> int:
    """The library without debug information, thinned; as `thin`."""
    with tempfile.TemporaryDirectory() as folder:
        stripped = pathlib.Path(folder) / library.name
        subprocess.run(["strip", "--strip-debug", "-o", stripped, library], check=True)
        image = bytearray(stripped.read_bytes())
    kept = thin(image, chip)
    out.write_bytes(image)
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--chip", type=int, default=90, help="90: Hopper")
    options = parser.parse_args()
    try:
        kept = thin_file(options.library, options.out, options.chip)
    except ValueError as error:
        sys.exit(f"thin.py: {options.library}: {error}")
    print(f"{options.out}: {kept / 1e6:.1f} MB of machine code for sm_{options.chip}")


if __name__ == "__main__":
    main()
