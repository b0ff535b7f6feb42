"""A library of kernels keeps those for one chip, and still loads."""

import ctypes
import pathlib
import struct
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "gpu"))
from thin import LINKED, MACHINE_CODE, PTX, RELOCATABLE, entries, sections, thin, thin_file  # noqa: E402

HEADER = 64


def entry(kind, chip, payload):
  return struct.pack("<HHIQ", kind, 1, HEADER, len(payload)).ljust(28, b"\0") + struct.pack("<I", chip).ljust(36, b"\0") + payload


def container(*parts):
  body = b"".join(parts)
  return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def library(contents):
  """A 64-bit ELF file of these sections."""
  names = b"\0" + b"".join(name.encode() + b"\0" for name in (*contents, ".shstrtab"))
  data, headers, at = b"", [bytes(64)], 64
  for name, content in (*contents.items(), (".shstrtab", names)):
    content = content.ljust(-(-len(content) // 8) * 8, b"\0")
    headers.append(struct.pack("<IIQQQQ", names.index(name.encode() + b"\0"), 1, 0, 0, at, len(content)).ljust(64, b"\0"))
    data, at = data + content, at + len(content)
  head = bytearray(64)
  head[:5] = b"\x7fELF\x02"
  struct.pack_into("<Q", head, 0x28, at)
  struct.pack_into("<HHH", head, 0x3A, 64, len(headers), len(headers) - 1)
  return bytes(head) + data + b"".join(headers)


class ThinTest(unittest.TestCase):

  def setUp(self):
    self.image = library({
        LINKED: container(entry(MACHINE_CODE, 80, b"a" * 24), entry(MACHINE_CODE, 90, b"b" * 16), entry(PTX, 90, b"p" * 8))
                + bytes(8) + container(entry(MACHINE_CODE, 90, b"c" * 8)),
        RELOCATABLE: b"r" * 40,
        ".text": b"t" * 16,
    })

  def test_entries_are_found_behind_gaps(self):
    found = list(entries(self.image, *sections(self.image)[LINKED]))
    self.assertEqual([(e.kind, e.chip, e.end - e.start) for e in found],
                     [(MACHINE_CODE, 80, 24), (MACHINE_CODE, 90, 16), (PTX, 90, 8), (MACHINE_CODE, 90, 8)])
    self.assertEqual(self.image[found[1].start:found[1].end], b"b" * 16)

  def test_only_code_for_the_chip_is_left(self):
    image = bytearray(self.image)
    self.assertEqual(thin(image, 90), 24)
    self.assertEqual(len(image), len(self.image))
    for gone in (b"aaaa", b"pppp", b"rrrr"):
      self.assertNotIn(gone, image)
    for kept in (b"b" * 16, b"c" * 8, b"t" * 16):
      self.assertIn(kept, image)
    # Headers stay: the driver goes from one to the next.
    self.assertEqual(list(entries(bytes(image), *sections(bytes(image))[LINKED])),
                     list(entries(self.image, *sections(self.image)[LINKED])))

  def test_a_library_without_the_chip_is_refused(self):
    with self.assertRaisesRegex(ValueError, "no machine code for chip 70, only for 80, 90"):
      thin(bytearray(self.image), 70)

  def test_what_is_no_library_of_kernels_is_refused(self):
    with self.assertRaisesRegex(ValueError, "not a 64-bit ELF file"):
      thin(bytearray(b"#!/bin/sh\n"), 90)
    with self.assertRaisesRegex(ValueError, "has no kernels"):
      thin(bytearray(library({".text": b"t" * 16})), 90)

  def test_a_container_beyond_its_section_is_refused(self):
    image = bytearray(self.image)
    start, _ = sections(self.image)[LINKED]
    struct.pack_into("<Q", image, start + 8, 1 << 40)
    with self.assertRaisesRegex(ValueError, "a container ends at"):
      thin(image, 90)

  def test_the_real_nccl_loads(self):
    places = sorted((ROOT / ".venv").glob("lib/python3*/site-packages/nvidia/nccl/lib/libnccl.so.2"))
    if not places:
      self.skipTest("no NCCL: scripts/setup.sh installs it where the CUDA toolkit is")
    with tempfile.TemporaryDirectory() as folder:
      out = pathlib.Path(folder) / "libnccl.so.2"
      kept = thin_file(places[0], out, 90)
      self.assertGreater(kept, 1_000_000)
      found = list(entries(out.read_bytes(), *sections(out.read_bytes())[LINKED]))
      image = out.read_bytes()
      for e in found:
        self.assertEqual(any(image[e.start:e.start + 64]), e.kind == MACHINE_CODE and e.chip == 90)
      version = ctypes.c_int()
      self.assertEqual(ctypes.CDLL(str(out)).ncclGetVersion(ctypes.byref(version)), 0)
      self.assertGreaterEqual(version.value, 23000)


if __name__ == "__main__":
  unittest.main()
