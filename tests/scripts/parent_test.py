"""Processes of a benchmark end with it."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[1] / "bench" / "run"
CHILD = f"""
import os, sys, time
sys.path.insert(0, {str(BENCH)!r})
from parent import end_with
end_with(int(sys.argv[1]))
print(os.getpid(), flush=True)
time.sleep(60)
"""
# In a session of its own, as PyTorch's training.
PARENT = f"""
import os, subprocess, sys
subprocess.Popen([sys.executable, "-c", {CHILD!r}, str(os.getpid())], start_new_session=True).wait()
"""


class ParentTest(unittest.TestCase):

  def test_a_stopped_child_ends_with_a_parent_that_is_killed(self):
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
      child = int(parent.stdout.readline())
      os.kill(child, signal.SIGSTOP)
      parent.kill()
      self.assertEqual(parent.stdout.read(), "")  # The end of the pipe: nobody has it open.

  def test_an_orphan_does_not_begin(self):
    orphan = subprocess.run([sys.executable, "-c", CHILD, "1"], capture_output=True, text=True, check=False)
    self.assertIn("the parent has ended", orphan.stderr)


if __name__ == "__main__":
  unittest.main()
