"""A worker for each GPU, with a driver's tool and a worker that only say how they are called."""

import os
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import deployment

SCRIPT = deployment.DEPLOY / "docker" / "worker-per-gpu.sh"
TWO = """GPU 0: NVIDIA H200 (UUID: GPU-aaa)
GPU 1: NVIDIA H200 (UUID: GPU-bbb)
"""
CUT = """GPU 0: NVIDIA H200 (UUID: GPU-aaa)
  MIG 3g.71gb     Device  0: (UUID: MIG-a0)
  MIG 3g.71gb     Device  1: (UUID: MIG-a1)
GPU 1: NVIDIA H200 (UUID: GPU-bbb)
"""
WORKER = """#!/usr/bin/env bash
echo "$CUDA_VISIBLE_DEVICES $*" >> "$CALLS"
trap 'echo "ended $CUDA_VISIBLE_DEVICES" >> "$CALLS"; exit 0' TERM
[[ $CUDA_VISIBLE_DEVICES != "${FAILS:-}" ]] || exit 7
for _ in {1..300}; do sleep 0.1; done
"""


class PerGpuTest(unittest.TestCase):

  def setUp(self):
    folder = tempfile.TemporaryDirectory()
    self.addCleanup(folder.cleanup)
    self.path = pathlib.Path(folder.name)
    self.calls = self.path / "calls"
    self.calls.write_text("")

  def start(self, listed, *flags, **environment):
    for name, text in (("nvidia-smi", f"#!/usr/bin/env bash\ncat <<'LIST'\n{listed}LIST\n"), ("stagewright-worker", WORKER)):
      (self.path / name).write_text(text)
      (self.path / name).chmod(0o755)
    return subprocess.Popen(
        [SCRIPT, *flags], cwd=self.path, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PATH": f"{self.path}:{os.environ['PATH']}", "CALLS": str(self.calls), **environment})

  def await_lines(self, count):
    deadline = time.monotonic() + 20
    while len(self.calls.read_text().splitlines()) < count:
      self.assertLess(time.monotonic(), deadline, self.calls.read_text())
      time.sleep(0.02)
    return sorted(self.calls.read_text().splitlines())

  def test_a_process_for_each_gpu_until_it_is_told_to_end(self):
    process = self.start(TWO, "--planner=p:7070", "--name=n", "--metrics-listen=0.0.0.0:9071", f"--work-dir={self.path}")
    lines = self.await_lines(2)
    for i, uuid in enumerate(("GPU-aaa", "GPU-bbb")):
      self.assertEqual(lines[i], f"{uuid} --planner=p:7070 --name=n-gpu{i} --devices=cuda:0 "
                                 f"--metrics-listen=0.0.0.0:{9071 + i} --work-dir={self.path}/gpu{i}")
      self.assertTrue((self.path / f"gpu{i}").is_dir())
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    self.assertEqual(self.await_lines(4)[2:], ["ended GPU-aaa", "ended GPU-bbb"])

  def test_instances_of_a_gpu_take_its_place(self):
    process = self.start(CUT, "--planner=p:7070")
    lines = self.await_lines(3)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=20)
    self.assertEqual([line.split()[0] for line in lines], ["GPU-bbb", "MIG-a0", "MIG-a1"])

  def test_all_end_with_the_first(self):
    process = self.start(TWO, "--planner=p:7070", FAILS="GPU-bbb")
    process.communicate(timeout=20)
    self.assertEqual(process.returncode, 7)

  def test_what_cannot_be_done_is_said(self):
    for listed, flags, message in (("", (), "no GPU"), (TWO, ("--devices=cuda:all",), "leave --devices=cuda:all out"),
                                   (TWO, ("--planner", "p:7070"), "'--planner' is not --FLAG=VALUE")):
      process = self.start(listed, *flags)
      _, errors = process.communicate(timeout=20)
      self.assertEqual(process.returncode, 2)
      self.assertIn(message, errors)
    self.assertEqual(self.calls.read_text(), "")


if __name__ == "__main__":
  unittest.main()
