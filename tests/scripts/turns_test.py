"""Turns that two trainings take, and what their steps say."""

import os
import pathlib
import signal
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "bench" / "run"))
from turns import median_with_interval, take_turns, turns_of  # noqa: E402


class TurnsTest(unittest.TestCase):

  def test_a_turn_is_what_lies_between_two_stops(self):
    steps = [4, 1, 13, 2, 7, 3, 12, 5, 5, 15, 4]  # Stops of twelve seconds; a warm-up and a rest.
    self.assertEqual(turns_of(steps, pause=12), [3, 5])
    self.assertEqual(turns_of([1, 1], pause=8), [])

  def test_the_interval_is_that_of_the_binomial_distribution(self):
    self.assertEqual(median_with_interval([6, 1, 5, 2, 4, 3]), (3.5, 1, 6))
    self.assertEqual(median_with_interval(range(1, 31)), (15.5, 10, 21))
    with self.assertRaises(ValueError):
      median_with_interval([1, 2, 3])

  def test_all_go_on_in_the_end(self):
    sleepers = [subprocess.Popen(["sleep", "60"]) for _ in range(2)]
    try:
      take_turns([[sleeper.pid] for sleeper in sleepers], seconds=0.01, count=2)
      for sleeper in sleepers:
        state = pathlib.Path(f"/proc/{sleeper.pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
        self.assertNotEqual(state, "T")
    finally:
      for sleeper in sleepers:
        os.kill(sleeper.pid, signal.SIGKILL)
        sleeper.wait()


if __name__ == "__main__":
  unittest.main()
